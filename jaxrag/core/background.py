"""Iteration in a background thread, which makes items while earlier ones are used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
_here = threading.local()


class StoppedError(Exception):
    """The iteration of this background thread was closed; see `check_stopped`."""


def check_stopped() -> None:
    """Ends an iteration of `in_background` that was closed, in a long item, by `StoppedError`."""
    stopped = getattr(_here, "stopped", None)
    if stopped is not None and stopped.is_set():
        raise StoppedError


class _Raised(NamedTuple):
    """What ended the iteration; None at its regular end."""

    error: BaseException | None


def in_background(items: Iterable[T], *, ahead: int) -> Generator[T]:
    """Yields ``items`` in their order; a thread makes them, up to ``ahead`` items in advance.

    An exception of ``items`` is raised after the items before it. When the generator is closed, the
    thread stops after its current item, or where that calls `check_stopped`, and is waited for.
    """
    buffer: queue.Queue[Any] = queue.Queue(ahead)
    stopped = threading.Event()

    def put(item: Any) -> bool:
        while not stopped.is_set():
            try:
                buffer.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def run() -> None:
        _here.stopped = stopped
        ended: BaseException | None = None
        try:
            for item in items:
                if not put(item):
                    break
        except BaseException as error:  # raised again where the items are used
            ended = error
        put(_Raised(ended))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while not isinstance(item := buffer.get(), _Raised):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        thread.join()
        if close := getattr(items, "close", None):
            close()
