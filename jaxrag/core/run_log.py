"""What happens in a run, twice: readable on standard error, and as JSON lines in a file."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

_LOGGER = logging.getLogger("jaxrag")


class _Readable(logging.Handler):
    """Lines on whatever standard error is at that moment, so that a progress bar stays whole."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)


class _JsonLines(logging.FileHandler):
    """One object a line: ``time`` (UTC), ``level``, ``message``, and what was logged with it.

    A message logged with ``extra={"fields": {...}}`` has these fields beside the three.
    """

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
        with contextlib.suppress(OSError):  # opening it, too, may meet a full disk
            super().emit(record)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:
        """A log that cannot be written (a full disk) stops no run; answers and store do."""


@contextlib.contextmanager
def run_log(file: Path) -> Iterator[None]:
    """While it is open, what jaxrag logs goes to ``file`` from INFO up, to the screen from WARNING.

    ``file`` is appended to, so it tells of all processes that worked on a run.
    """
    readable, lines = _Readable(logging.WARNING), _JsonLines(file, delay=True, encoding="utf-8")
    before = _LOGGER.level, _LOGGER.propagate
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False  # some packages give the root a handler, which would say it again
    for handler in (readable, lines):
        _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        for handler in (readable, lines):
            _LOGGER.removeHandler(handler)
            handler.close()
        _LOGGER.setLevel(before[0])
        _LOGGER.propagate = before[1]
