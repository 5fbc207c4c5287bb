"""File operations that survive ``kill -9`` and a full disk: a file is replaced whole or kept."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from jaxrag.core.checks import check_local
from jaxrag.types import InputError

_NO_ROOM = {
    errno.ENOSPC: ("the disk that holds {} is full", "free some space"),
    errno.EDQUOT: ("the quota of the disk that holds {} is used up", "free some space"),
    errno.EFBIG: ("{} may not grow so large here", "raise the limit (ulimit -f)"),
}
"""Error numbers of a full disk: what happened to a file, and what to do."""


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A binary stream whose content replaces ``path`` when the block ends without an error.

    After an error the previous file is unchanged.

    Raises:
      InputError: the disk is full.
    """
    temporary = path.with_name(path.name + ".new")
    with explain_full_disk(path):
        try:
            with temporary.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        rename(temporary, path)


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file with `atomic_write`."""
    with atomic_write(path) as stream:
        stream.write(utf8(text))


def utf8(text: str) -> bytes:
    """The UTF-8 bytes of a text; a lone surrogate, which has no UTF-8 form, as its JSON escape."""
    return text.encode("utf-8", errors="backslashreplace")


def rename(source: Path, target: Path) -> None:
    """Renames a file or directory; on disk when this returns."""
    source.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Waits until a file's content, or a directory's list of entries, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def explain_full_disk(path: Path) -> Iterator[None]:
    """Turns a full-disk error inside the block into an InputError that names ``path``."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        number = getattr(error, "errno", None)
        if isinstance(error, RuntimeError):  # ArrayRecord's C++ has no errno, only its message
            number = next((n for n in _NO_ROOM if os.strerror(n) in str(error)), None)
        if number not in _NO_ROOM:
            raise
        what, way_out = _NO_ROOM[number]
        raise InputError(
            f"{what.format(path)}; finished work is kept: {way_out} and run the same command again"
        ) from error


class LockedError(InputError):
    """Another process works in the directory."""


LOCKS, PART_LOCKS = ".lock*", ".lock-*"
"""Patterns of the lock files in a directory, and of those of `shared_directory`."""


@contextlib.contextmanager
def exclusive_directory(directory: Path) -> Iterator[None]:
    """Creates an index directory and locks it against other processes during the block.

    Raises:
      LockedError: another process holds the lock, or one of `shared_directory`.
      InputError: the path is a file.
    """
    _make_directory(directory)
    with _lock(directory / ".lock", directory, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def shared_directory(directory: Path, number: int, count: int) -> Iterator[None]:
    """Locks a directory for process ``number`` of ``count`` that fill it together.

    Raises:
      LockedError: a process holds the whole directory or has the same number, or one works there
        as one of another number of processes.
      InputError: the path is a file.
    """
    _make_directory(directory)
    others = set(directory.glob(PART_LOCKS)) - set(directory.glob(f".lock-*-of-{count}"))
    with (
        _lock(directory / ".lock", directory, fcntl.LOCK_SH),
        _lock(directory / f".lock-{number}-of-{count}", directory, fcntl.LOCK_EX),
        contextlib.ExitStack() as free,
    ):
        for other in sorted(others):
            free.enter_context(_lock(other, directory, fcntl.LOCK_SH))
        yield


def _make_directory(directory: Path) -> None:
    check_local({"the directory of the index": directory})
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{directory} is a file; give a directory for the index") from None


@contextlib.contextmanager
def _lock(path: Path, directory: Path, kind: int) -> Iterator[None]:
    with path.open("a+") as stream:  # NFS wants a file open for reading for one kind of lock
        try:
            fcntl.flock(stream, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            part = path.name.removeprefix(".lock").strip("-").replace("-", " ")
            who = f"another process is building {f'part {part} of ' * bool(part)}an index"
            raise LockedError(f"{who} in {directory}; wait until it ends") from None
        yield
