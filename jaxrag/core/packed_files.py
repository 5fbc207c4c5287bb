"""Reading files that may be packed with gzip, bzip2 or xz, told by their first bytes."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from jaxrag.types import InputError

_BUFFER = 1 << 20
_OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError)


@contextlib.contextmanager
def open_packed(path: Path) -> Iterator[BinaryIO]:
    """The unpacked bytes of a file as a stream.

    Raises:
      InputError: there is no such file, or its packed content is cut short or damaged.
    """
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    with Path(path).open("rb", buffering=_BUFFER) as raw:
        try:
            yield _unpacked(raw)
        except (*_DAMAGE, OSError) as error:
            _explain_damage(path, error)
            raise


def read_members(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """The files of a tar archive in its order: path, below the archive's, and unpacked content.

    The archive, and each file in it, may be packed. A content must be read before the next is
    taken.

    Raises:
      InputError: see `open_packed`; or it is not a tar archive.
    """
    with open_packed(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile():
                content = io.BufferedReader(cast(Any, archive.extractfile(member)), _BUFFER)
                yield Path(path) / member.name, _unpacked(cast(BinaryIO, content))


def count_lines(path: Path, lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1; damaged content is an InputError with the last number."""
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            yield number, line
    except (*_DAMAGE, OSError) as error:
        _explain_damage(path, error, f" after line {number}")
        raise


def _explain_damage(path: Path, error: Exception, where: str = "") -> None:
    """Raises an InputError that names the file, unless the error is not one of unpacking."""
    # bz2 raises a plain OSError without a number
    if not isinstance(error, OSError) or error.errno is None:
        raise InputError(
            f"{path}: the packed file is cut short or damaged{where} ({error}); get it again"
        ) from None


def _unpacked(raw: BinaryIO) -> BinaryIO:
    first = cast("io.BufferedReader", raw).peek(6)
    for magic, opener in _OPENERS.items():
        if first.startswith(magic):
            # lines of a BufferedReader are read in C, those of the openers' classes in Python
            return io.BufferedReader(cast(Any, opener(raw)), _BUFFER)
    return raw
