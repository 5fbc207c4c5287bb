"""A run's log: JSON lines in a file, and warnings on standard error."""

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
    """Lines on the current ``sys.stderr``, which a progress bar may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)


class _JsonLines(logging.FileHandler):
    """One object per record: ``time`` (UTC), ``level``, ``message`` and further fields.

    Further fields are those of ``extra={"fields": {...}}`` in the logging call.
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
        with contextlib.suppress(OSError):  # the disk may be full already when the file is opened
            super().emit(record)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignores a log that cannot be written; answers and store report a full disk."""


@contextlib.contextmanager
def run_log(file: Path) -> Iterator[None]:
    """Inside the block, jaxrag logs INFO and above to ``file``, WARNING and above to the screen.

    ``file`` is appended to, so it holds the records of all processes of a run.
    """
    readable, lines = _Readable(logging.WARNING), _JsonLines(file, delay=True, encoding="utf-8")
    before = _LOGGER.level, _LOGGER.propagate
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False  # the root logger may have a handler that would print it twice
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
