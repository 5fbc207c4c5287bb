"""File operations that survive ``kill -9`` and a full disk: a file is replaced whole or kept."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from jaxrag.core.checks import check_local
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")
_MOST = 4 << 30  # bytes of a file that is read as a whole
_NO_ROOM = {
    errno.ENOSPC: ("the disk that holds {} is full", "free some space"),
    errno.EDQUOT: ("the quota of the disk that holds {} is used up", "free some space"),
    errno.EFBIG: ("{} may not grow so large here", "raise the limit (ulimit -f)"),
    errno.EMFILE: ("{} needs more open files than allowed here", "raise the limit (ulimit -n)"),
}
"""Error numbers of limits of the machine: what happened to a file, and what to do."""
READ_ONLY = (errno.EROFS, errno.EACCES)
"""Error numbers of files that this process may not write."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content replaces ``path`` whole when the block ends without an error."""
    temporary = path.with_name(path.name + ".new")
    with explain_limits(path):
        try:
            temporary.unlink(missing_ok=True)  # of a killed process, or a link to elsewhere
            with temporary.open("xb") as stream:
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
def explain_limits(path: Path) -> Iterator[None]:
    """Turns an error of a full disk, or too many open files, into an InputError with ``path``."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        number = getattr(error, "errno", None)
        if isinstance(error, RuntimeError):  # ArrayRecord's C++ has no errno, only its message
            number = next((n for n in _NO_ROOM if os.strerror(n) in str(error)), None)
        if number not in _NO_ROOM:
            raise
        cause, way_out = _NO_ROOM[number]
        raise InputError(
            f"{cause.format(path)}; finished work is kept: {way_out} and run the same command again"
        ) from error


def open_own(path: Path, flags: int) -> int:
    """A handle, by flags of `os.open`, of a file that jaxrag writes; an absent one is created.

    InputError for a link, behind which another file would be changed, and no regular file.
    """
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
    else:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
    raise InputError(f"{path} is a link, a folder or a pipe where a file is written: remove it.")


def read_whole(path: Path) -> bytes:
    """The content of a file, which may be anyone's; InputError for one of over 4 GiB."""
    check_size(path)
    return path.read_bytes()


def check_size(path: Path) -> None:
    """Checks that a file has at most 4 GiB; InputError."""
    if (size := path.stat().st_size) > _MOST:
        raise InputError(f"{path} has {size:,} bytes, of at most {_MOST:,}: it is damaged.")


def open_to_append(path: Path) -> TextIO:
    """A UTF-8 stream behind the end of a file that jaxrag writes; see `open_own`."""
    return os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8")


def take_lock(handle: int, path: Path, kind: int = fcntl.LOCK_EX) -> bool:
    """Takes a lock on an open file or directory; False if another process holds it.

    InputError if the file system has no locks.
    """
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        message = f"{path}: its file system refuses locks ({error.strerror})"
        raise InputError(f"{message}; choose a directory on a disk of this machine.") from None
    return True


def wait_for_lock(handle: int, path: Path, waiting: str) -> None:
    """Takes a lock, and first logs ``waiting`` if another process holds it.

    It tries five times a second: a signal may not end a blocking wait in a process with threads.
    """
    if take_lock(handle, path):
        return
    _log.warning("%s: waiting for %s", waiting, path)
    while not take_lock(handle, path):
        time.sleep(0.2)


class LockedError(InputError):
    """Another process works in the directory."""


LOCKS, PART_LOCKS = ".lock*", ".lock-*"
"""Patterns of the lock files in a directory, and of those of `shared_directory`."""


@contextlib.contextmanager
def exclusive_directory(directory: Path) -> Iterator[None]:
    """Creates an index directory and locks it against other processes during the block.

    LockedError if another process holds it, or a part of it; InputError if the path is a file.
    """
    _make_directory(directory)
    with _lock(directory / ".lock", directory, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def shared_directory(directory: Path, number: int, count: int) -> Iterator[None]:
    """Locks a directory for process ``number`` of ``count`` that fill it together.

    LockedError if a process holds the whole directory or has the same number, or works there as one
    of another number of processes; InputError if the path is a file.
    """
    _make_directory(directory)
    locks = set(directory.glob(PART_LOCKS)) - set(directory.glob(f".lock-*-of-{count}"))
    with (
        _lock(directory / ".lock", directory, fcntl.LOCK_SH),
        _lock(directory / f".lock-{number}-of-{count}", directory, fcntl.LOCK_EX),
        contextlib.ExitStack() as free,
    ):
        for lock in sorted(locks):
            free.enter_context(_lock(lock, directory, fcntl.LOCK_SH))
        yield


def _make_directory(directory: Path) -> None:
    check_local({"the directory of the index": directory})
    make_directory(directory, "a directory for the index")


def make_directory(directory: Path, what: str) -> None:
    """Makes a directory with its parents, if need be; InputError for a file in its place."""
    try:
        with explain_limits(directory):
            directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        kind = "a link to nothing" if Path(error.filename).is_symlink() else "a file"
        raise InputError(f"{error.filename} is {kind}, not {what}.") from None


@contextlib.contextmanager
def _lock(path: Path, directory: Path, kind: int) -> Iterator[None]:
    try:  # NFS wants a file open for reading for one kind of lock
        handle = open_own(path, os.O_RDWR)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        yield  # nobody writes there
        return
    with os.fdopen(handle) as stream:
        if not take_lock(stream.fileno(), path, kind):
            part = path.name.removeprefix(".lock").strip("-").replace("-", " ")
            who = f"another process is building {f'part {part} of ' * bool(part)}an index"
            raise LockedError(f"{who} in {directory}; wait until it ends")
        yield
