"""States of files, which tell whether a file has changed, and results that a job computes once."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from jaxrag.types import InputError

_SETTLED = 2.0  # seconds after which a change of a file has surely changed its times

Given = ParamSpec("Given")
Result = TypeVar("Result")


class FileState(NamedTuple):
    """Size, times and inode of a file; they change with its content, once `settled`.

    ``changed_ns`` (ctime) is the system's own; the modification time is set by programs, too.
    """

    path: str
    bytes: int
    modified_ns: int
    changed_ns: int
    inode: int

    @classmethod
    def of(cls, path: str | Path) -> FileState:
        """The present state of a file; OSError if there is none."""
        stat = (path := Path(path).absolute()).stat()
        return cls(str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)

    @property
    def settled(self) -> bool:
        """Whether the last change was over two seconds ago; a further one has other times then."""
        return time.time() - self.changed_ns / 1e9 > _SETTLED


def check_unchanged(states: Iterable[FileState]) -> None:
    """InputError if a file is in another state than before: what was read may be half old."""
    for state in states:
        with contextlib.suppress(OSError):
            if FileState.of(state.path) == state:
                continue
        raise InputError(f"{state.path} changed while it was read: run the same command again.")


_JOB: ContextVar[dict[Any, Any] | None] = ContextVar("job", default=None)


@contextlib.contextmanager
def one_start() -> Iterator[None]:
    """Begins a job, in which functions marked `once` return the result of their first call.

    A job inside another belongs to it.
    """
    results = _JOB.get()
    token = _JOB.set({} if results is None else results)
    try:
        yield
    finally:
        _JOB.reset(token)


def once(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorator: in a job (`one_start`), the function is called once for equal arguments."""

    @functools.wraps(function)
    def called(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        results = _JOB.get()
        if results is None:
            return function(*args, **kwargs)
        key = function, args, tuple(sorted(kwargs.items()))
        if key not in results:
            results[key] = function(*args, **kwargs)
        return results[key]

    return called
