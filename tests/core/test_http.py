"""The event loop that all HTTP clients share; requests are tested with servers and web search."""

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jaxrag.core import http
from jaxrag.core.http import HttpClient


def test_a_client_collected_in_the_loops_own_thread_does_not_stop_it() -> None:
    client: Any = HttpClient(["http://localhost:1"], headers={}, timeout=1, patience=1)
    loop, collected = client._loop, threading.Event()
    client.itself = client  # so that only the collector finds it
    del client
    loop.call_soon_threadsafe(lambda: (gc.collect(), collected.set()))
    assert collected.wait(30)


def test_clients_made_at_once_share_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    new = asyncio.new_event_loop

    def slow() -> asyncio.AbstractEventLoop:
        time.sleep(0.05)
        return new()

    monkeypatch.setattr(asyncio, "new_event_loop", slow)
    http._started_loop.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        loops = {id(loop) for loop in pool.map(lambda _: http._loop(), range(4))}
    assert len(loops) == 1
