"""Reading files that may be packed with gzip, bzip2 or xz, told by their first bytes."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from jaxrag.types import InputError

_OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


@contextlib.contextmanager
def open_packed(path: Path) -> Iterator[BinaryIO]:
    """The unpacked bytes of a file as a stream.

    Raises:
      InputError: there is no such file, or its packed content is cut short or damaged.
    """
    try:
        with path.open("rb") as plain:
            first = plain.read(6)
            opener = next((o for magic, o in _OPENERS.items() if first.startswith(magic)), None)
            if opener is None:
                plain.seek(0)
                yield plain
                return
        with cast("BinaryIO", opener(path, "rb")) as unpacked:
            yield unpacked
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"{path}: no such file") from None
    except (*_DAMAGE, OSError) as error:
        # bz2 raises a plain OSError without a number
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(
            f"{path}: the packed file is cut short or damaged ({error}); get it again"
        ) from None
