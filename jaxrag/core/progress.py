"""How far a long job is: a bar on a terminal or in a notebook, now and then a line in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Advance(Protocol):
    """Told how many items were finished since the last call, and what else to show."""

    def __call__(self, count: int, note: str = "") -> None:
        """Moves on."""
        ...


@contextlib.contextmanager
def progress(
    total: int, what: str, *, done: int = 0, every: float = 10.0, console: Console | None = None
) -> Iterator[Advance]:
    """Gives a function that is told how many items were finished since it was last called.

    Shows on standard error the items done, items a second and the time that remains; ``done``
    items come from an earlier run and do not count towards the rate. Where standard error is
    neither a terminal nor a notebook, a plain line is written at most every ``every`` seconds,
    and one at the end if the job took longer than that.
    """
    console = console or Console(stderr=True)
    show = _bar if console.is_terminal or console.is_jupyter else _lines
    with show(total, what, done, every, console) as advance:
        yield advance


@contextlib.contextmanager
def _bar(total: int, what: str, done: int, _: float, console: Console) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    start, fresh = time.monotonic(), 0
    with Progress(*columns, console=console) as shown:
        task = shown.add_task(what, total=total, completed=done, rate="", note="")

        def advance(count: int, note: str = "") -> None:
            nonlocal fresh
            fresh += count
            rate = _rate(fresh, time.monotonic() - start)
            shown.update(task, advance=count, rate=rate, note=note)

        yield advance


@contextlib.contextmanager
def _lines(total: int, what: str, done: int, every: float, console: Console) -> Iterator[Advance]:
    start = last = time.monotonic()
    fresh, said = 0, ""

    def line(now: float) -> None:
        passed, missing = now - start, total - done - fresh
        parts = [f"{what}: {done + fresh:,}/{total:,}", _rate(fresh, passed)]
        if missing <= 0 or not fresh:
            parts.append(f"took {passed:.0f} s" if missing <= 0 else f"{passed:.0f} s so far")
        else:
            parts.append(f"{missing * passed / fresh:.0f} s left")
        more = f"; {said}" if said else ""
        text = ", ".join(part for part in parts if part)
        print(text + more, file=console.file or sys.stderr, flush=True)

    def advance(count: int, note: str = "") -> None:
        nonlocal fresh, last, said
        fresh, said = fresh + count, note
        now = time.monotonic()
        if now - last >= every and done + fresh < total:
            last = now
            line(now)

    yield advance
    if time.monotonic() - start >= every:
        line(time.monotonic())


def _rate(fresh: int, passed: float) -> str:
    """Items a second, or seconds an item where that is below 1; "" before the first."""
    rate = fresh / max(passed, 1e-9)
    if rate >= 1:
        return f"{rate:,.1f}/s"
    return f"{1 / rate:,.1f} s each" if rate else ""
