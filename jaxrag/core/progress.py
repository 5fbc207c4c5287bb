"""Progress display of a long job, and its log file."""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from jaxrag.core.durable_files import open_to_append
from jaxrag.core.printable import printable, terminal_text

_LOGGER = logging.getLogger("jaxrag")
_EVERY = 10.0  # least seconds between lines; the last is written only if the job took longer
_SOON = 2.0  # until the first line, even if no item is finished: a program may be compiled
_QUIET = 60.0  # then the longest silence


class _StderrHandler(logging.Handler):
    """Writes to the current ``sys.stderr``, which a progress bar may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable(f"{record.levelname.lower()}: {record.getMessage()}"), file=sys.stderr)


class _JsonLines(logging.FileHandler):
    """One object per record: ``time`` (UTC), ``level``, ``message`` and ``extra["fields"]``."""

    def _open(self) -> Any:
        return open_to_append(Path(self.baseFilename))

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        return json.dumps(line, ensure_ascii=False, default=str)

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # the disk may be full already when the file is opened
            super().emit(record)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignores a log that cannot be written; a full disk is reported by other writers."""


@contextlib.contextmanager
def shown_warnings() -> Iterator[None]:
    """Writes WARNING and above to standard error, in a command of which not all is a run."""
    handler, before = _StderrHandler(logging.WARNING), _LOGGER.propagate
    _LOGGER.addHandler(handler)
    _LOGGER.propagate = False  # the root logger may have a handler that would print it twice
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.propagate = before


@contextlib.contextmanager
def run_log(file: Path) -> Iterator[None]:
    """Logs INFO and above, and an error that ends the work, to ``file``; warnings are shown."""
    lines, level = _JsonLines(file, delay=True, encoding="utf-8"), _LOGGER.level
    shown = any(isinstance(handler, _StderrHandler) for handler in _LOGGER.handlers)
    with contextlib.nullcontext() if shown else shown_warnings():
        _LOGGER.setLevel(logging.INFO)
        _LOGGER.addHandler(lines)
        try:
            yield
        except Exception as error:  # whoever catches it prints it
            text = f"{error}" or type(error).__name__
            lines.handle(_LOGGER.makeRecord("jaxrag", logging.ERROR, "", 0, text, (), None))
            raise
        finally:
            _LOGGER.removeHandler(lines)
            lines.close()
            _LOGGER.setLevel(level)


class Advance(Protocol):
    """Callback of a job that finishes items."""

    def __call__(self, count: int, note: str = "", *, share: float = 0.0) -> None:
        """Adds ``count`` finished items and shows ``note``.

        ``share`` is that of the work that is done, where all items advance together.
        """
        ...


@contextlib.contextmanager
def progress(
    total: int, label: str, *, done: int = 0, console: Console | None = None
) -> Iterator[Advance]:
    """Shows the number of finished items, items per second and the remaining time.

    A bar on a terminal or in a notebook, otherwise lines of text. Rate and remaining time leave out
    the first items that finish, and the time until then, in which programs may be compiled; the
    last line has the rate of the whole job.

    Args:
      total: number of items.
      label: the job's name, such as "encoding".
      done: items finished by an earlier run, which do not count towards the rate.
      console: replaces standard error.
    """
    console = console or _console()
    job = _Job(total, done)
    show = _bar if console.is_terminal or console.is_jupyter else _lines
    with show(job, label, console) as update:

        def advance(count: int, note: str = "", *, share: float = 0.0) -> None:
            now = time.monotonic()
            job.add(count, note, share, now)
            update(now)

        yield advance


@contextlib.contextmanager
def _bar(job: _Job, label: str, console: Console) -> Iterator[Callable[[float], None]]:
    text = TextColumn("{task.description}", markup=False)
    state = TextColumn("{task.fields[state]}", markup=False)
    with Progress(text, BarColumn(), state, console=console) as bar:
        task = bar.add_task(printable(label), total=job.total, completed=job.done, state="")

        def update(now: float) -> None:
            completed = job.done + max(job.fresh, job.share * (job.total - job.done))
            bar.update(task, completed=completed, state=printable(job.state(now)))

        yield update


@contextlib.contextmanager
def _lines(job: _Job, label: str, console: Console) -> Iterator[Callable[[float], None]]:
    last, ended = job.start, threading.Event()

    def line(now: float) -> None:
        nonlocal last
        last = now
        text = printable(f"{label}: {job.state(now)}")
        print(text, file=console.file or sys.stderr, flush=True)

    def update(now: float) -> None:
        if now - last >= _EVERY and job.done + job.fresh < job.total:
            line(now)

    def break_silence() -> None:
        quiet = pause = _SOON
        while not ended.wait(pause):
            if (now := time.monotonic()) - last >= quiet:
                line(now)
            quiet = _QUIET
            pause = last + quiet - now

    threading.Thread(target=break_silence, daemon=True).start()
    try:
        yield update
    finally:
        ended.set()
    if time.monotonic() - job.start >= _EVERY:
        line(time.monotonic())


def tell(text: str) -> None:
    """Says something about a job on standard error and in the log."""
    _LOGGER.info(text)
    _console().print(terminal_text(text), soft_wrap=True)


def _console() -> Console:
    """Standard error; in a notebook without ipywidgets, which rich's bars need, as plain text."""
    widgets = importlib.util.find_spec("ipywidgets") is not None
    return Console(stderr=True, force_jupyter=None if widgets else False)


def size_text(count: float) -> str:
    """A number of bytes in a unit that fits."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count} bytes"


def duration_text(seconds: float) -> str:
    """A time in seconds up to ten minutes, in minutes up to two hours, else in hours."""
    if seconds >= 7200:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 600 else f"{seconds:.0f} s"


class _Job:
    """Counts items finished since the ``start``, and measures seconds per item after the first."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.done, self.start = total, done, time.monotonic()
        self.fresh, self.share, self._note = 0, 0.0, ""
        self._first: tuple[float, int] | None = None

    def add(self, count: int, note: str, share: float, now: float) -> None:
        self.fresh += count
        self.share, self._note = share, note
        if self._first is None and self.fresh:
            self._first = now, self.fresh

    def state(self, now: float) -> str:
        """Finished items, their rate, the remaining time, and the note."""
        seconds, remaining = now - self.start, self.total - self.done - self.fresh
        parts = [f"{self.done + self.fresh:,}/{self.total:,}"]
        if remaining <= 0:
            parts += [_rate(self.fresh, seconds), f"took {seconds:.0f} s"]
        elif self.fresh:
            seconds_each = self._seconds_each(now)
            parts += [_rate(1, seconds_each), f"{duration_text(remaining * seconds_each)} left"]
        else:
            parts += [f"{100 * self.share:.0f} % of the work"] if self.share else []
            parts.append(f"{seconds:.0f} s so far")
        return ", ".join(filter(None, parts)) + (f"; {self._note}" if self._note else "")

    def _seconds_each(self, now: float) -> float:
        """Seconds per item; until more than the first have finished, those of the first."""
        since, before = self._first or (self.start, 0)
        if self.fresh == before:
            since, before = self.start, 0
        return (now - since) / (self.fresh - before)


def _rate(items: int, seconds: float) -> str:
    """Items per second, or seconds per item where that is below 1; "" for no items."""
    rate = items / max(seconds, 1e-9)
    if rate >= 1:
        return f"{rate:,.1f}/s"
    return f"{1 / rate:,.1f} s each" if rate else ""
