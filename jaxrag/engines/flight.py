"""Requests that are under way at an engine that batches by itself."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, NamedTuple

from jaxrag.engines.requests import Operation


class Workers:
    """A pool of threads that do not keep the process alive, unlike those of the standard library.

    So Ctrl-C ends a run at once, however long the answers that it waits for may take.
    """

    def __init__(self, count: int) -> None:
        self._count, self._threads = count, 0
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._queue = queue.SimpleQueue()

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        """Calls ``work`` in one of the threads."""
        future: Future[Any] = Future()
        self._queue.put((future, functools.partial(work, *args)))
        if self._threads < self._count:
            self._threads += 1
            threading.Thread(target=self._run, daemon=True).start()
        return future

    def close(self) -> None:
        """Cancels what has not begun, and lets the threads end."""
        with contextlib.suppress(queue.Empty):
            while item := self._queue.get_nowait():
                item[0].cancel()
        for _ in range(self._threads):
            self._queue.put(None)
        self._threads = 0

    def _run(self) -> None:
        while item := self._queue.get():
            future, work = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)


class Completed(NamedTuple):
    """A request that has come back, with a value or an error.

    ``seconds``: its share of the time since something came back last.
    """

    key: bytes
    operation: Operation
    pending: Any
    value: Any
    error: BaseException | None
    seconds: float


class RequestsInFlight:
    """Requests under way, each known by its key."""

    def __init__(self) -> None:
        self._flying: dict[bytes, tuple[Operation, Any]] = {}
        self._done: queue.SimpleQueue[tuple[bytes, Future[Any]]] = queue.SimpleQueue()
        self._last = time.perf_counter()

    def __len__(self) -> int:
        return len(self._flying)

    def find(self, key: bytes) -> Any:
        """What waits for the request with this key, or None."""
        return self._flying[key][1] if key in self._flying else None

    def start(self, key: bytes, operation: Operation, pending: Any) -> None:
        """Sends a request off."""
        assert operation.submit is not None
        if not self._flying:
            self._last = time.perf_counter()
        self._flying[key] = (operation, pending)
        try:
            future = operation.submit(pending.payload)
        except Exception as error:  # refused at the door: as if it had come back with that
            future = Future()
            future.set_exception(error)
        future.add_done_callback(lambda done: self._done.put((key, done)))

    def collect(self, *, wait: bool) -> list[Completed]:
        """All that has come back; with ``wait``, at least one."""
        arrived = [self._done.get()] if wait and self._flying else []
        while not self._done.empty():
            arrived.append(self._done.get())
        now = time.perf_counter()
        share = (now - self._last) / max(len(arrived), 1)
        if arrived:
            self._last = now
        landed = []
        for key, future in arrived:
            operation, pending = self._flying.pop(key)
            try:
                value, error = future.result(), None
            except (Exception, CancelledError) as failure:
                value, error = None, failure
            landed.append(Completed(key, operation, pending, value, error, share))
        return landed
