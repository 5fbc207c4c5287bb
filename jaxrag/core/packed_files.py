"""Reading files that may be packed with gzip, bzip2 or xz, or lie in a zip or tar archive."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from jaxrag.types import InputError

LONGEST = 64 << 20
"""Bytes of the longest line that is read; a packed file may unpack to a line of any length."""
_BUFFER = 1 << 20
_TAR_AT, _TAR = 257, b"ustar"  # where a tar archive is marked
_OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_DAMAGE = (
    EOFError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)


@contextlib.contextmanager
def open_packed(path: Path) -> Iterator[BinaryIO]:
    """The unpacked bytes of a file as a stream; InputError if it is missing, cut or damaged."""
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    with Path(path).open("rb", buffering=_BUFFER) as raw, _damage_explained(path):
        yield _unpacked(raw)


@contextlib.contextmanager
def open_published(path: Path, name: str) -> Iterator[BinaryIO]:
    """The unpacked bytes of a published file: as it is, packed, or ``name`` in an archive."""
    if not (Path(path).is_file() and _is_archive(Path(path))):
        with open_packed(path) as stream:
            yield stream
        return
    with open_member(path, name) as member:
        if member is None:
            raise InputError(f"{path}: this archive has no file {name}")
        yield io.BufferedReader(cast(Any, member), _BUFFER)  # lines are read faster from it


def _is_archive(path: Path) -> bool:
    """Whether a file is a zip archive or, unpacked, a tar archive."""
    if zipfile.is_zipfile(path):
        return True
    with open_packed(path) as stream:
        start = stream.read(_TAR_AT + len(_TAR))
    return start[_TAR_AT:] == _TAR


@contextlib.contextmanager
def open_member(archive: Path, name: str) -> Iterator[BinaryIO | None]:
    """The content of the file of this name in a zip or tar archive, whatever its folder; or None.

    The member's own path is never used on this machine. InputError for a damaged archive.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_damage_explained(archive))
        if zipfile.is_zipfile(archive):
            packed = stack.enter_context(zipfile.ZipFile(archive))
            names = [member for member in packed.namelist() if _is_member(member, name)]
            yield stack.enter_context(packed.open(names[0])) if names else None  # pyright: ignore
            return
        tar = stack.enter_context(tarfile.open(archive, "r|*"))
        for member in tar:
            if member.isfile() and _is_member(member.name, name):
                yield tar.extractfile(member)  # pyright: ignore
                return
        yield None


def _is_member(path: str, name: str) -> bool:
    """Whether a path in an archive is the wanted file, not one that a Mac added beside it."""
    return f"/{path}".endswith(f"/{name}") and "__MACOSX" not in path


def read_members(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """The files of a tar archive in its order: path, below the archive's, and unpacked content.

    A content must be read before the next is taken. InputError as `open_packed`, or for no archive.
    """
    with open_packed(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile():
                content = io.BufferedReader(cast(Any, archive.extractfile(member)), _BUFFER)
                yield Path(path) / member.name, _unpacked(cast(BinaryIO, content))


def count_lines(path: Path, lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines, numbered from 1; InputError for damage, and for a line of over `LONGEST` bytes."""
    if isinstance(lines, io.IOBase):
        lines = iter(functools.partial(lines.readline, LONGEST + 1), b"")
    with _damage_explained(path):
        for number, line in enumerate(lines, 1):
            if len(line) > LONGEST:
                raise InputError(f"{path}, line {number}: it has over {LONGEST >> 20} MiB.")
            yield number, line


@contextlib.contextmanager
def _damage_explained(path: Path) -> Iterator[None]:
    """Turns an error of unpacking into an InputError that names the file."""
    try:
        yield
    except (*_DAMAGE, OSError) as error:
        # bz2 raises a plain OSError without a number
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(
            f"{path}: the packed file is cut short or damaged ({error}); get it again"
        ) from None


def _unpacked(raw: BinaryIO) -> BinaryIO:
    first = cast("io.BufferedReader", raw).peek(6)
    for magic, opener in _OPENERS.items():
        if first.startswith(magic):
            # lines of a BufferedReader are read in C, those of the openers' classes in Python
            return io.BufferedReader(cast(Any, opener(raw)), _BUFFER)
    return raw
