"""Published passages with their vectors, read where they lie: WikiDPR's two forms.

Parquet shards with columns ``id``, ``text``, ``title`` and ``embeddings``, as the data set wiki_dpr
has them (config psgs_w100); or DPR's own psgs_w100.tsv with the vectors as .npy files. All of it is
streamed. What was published as pickles is not read.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from jaxrag.retrieval.wiki_dpr.parquet import ParquetVectors
from jaxrag.types import InputError, Passage

_ENDS = 1 << 20  # bytes of a file's beginning and end that are part of its fingerprint
_HEADER = ["id", "text", "title"]
_IDS = "ids.npy"
_FORMS = (
    "either *.parquet with the columns id, text, title and embeddings, or one *.tsv or *.tsv.gz "
    "(columns id, text, title) and *.npy files with as many rows of vectors"
)


class Published(Protocol):
    """Passages and their vectors, in the same order."""

    @property
    def count(self) -> int:
        """How many."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    def passages(self) -> Iterator[Passage]:
        """The passages, read as they are needed; InputError where a file is not as it must be."""
        ...

    def vectors(self, rows: range) -> Float[np.ndarray, "n d"]:
        """The vectors of a run of rows, float32 or float16; fastest in order.

        Raises:
          InputError: a file is damaged, or a vector is missing or of another length.
        """
        ...


def open_published(folder: str | Path) -> Published:
    """The files in a folder, whichever form they have; several are taken in the order of names.

    Numbers in names count as such: "vectors-2.npy" comes before "vectors-10.npy".

    Raises:
      InputError: no such folder, neither form or both, or files that are no such files.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; the published files are {_FORMS}.")
    parquet = _named(folder, "*.parquet")
    arrays = [path for path in _named(folder, "*.npy") if path.name != _IDS]
    tables = _named(folder, "*.tsv") + _named(folder, "*.tsv.gz")
    if parquet and not arrays and not tables:
        return ParquetVectors.open(parquet)
    if arrays and len(tables) == 1 and not parquet:
        return NpyVectors(tables[0], arrays)
    raise InputError(
        f"{folder} has {len(parquet)} parquet, {len(arrays)} npy and {len(tables)} tsv files; "
        f"what can be imported is {_FORMS}."
    )


def fingerprint(folder: str | Path) -> list[dict[str, Any]]:
    """What tells the files of a folder from others: name, size, hash of their first and last MiB.

    Of parquet, the last holds the description of all that is in the file.
    """
    paths = [path for path in Path(folder).expanduser().iterdir() if path.is_file()]
    return [_fingerprint(path) for path in sorted(paths, key=_order)]


def _fingerprint(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with path.open("rb") as stream:
        content = hashlib.sha256(stream.read(_ENDS))
        stream.seek(max(0, size - _ENDS))
        content.update(stream.read(_ENDS))
    return {"name": path.name, "bytes": size, "ends": content.hexdigest()}


class NpyVectors:
    """``Published`` of a table of passages and arrays of vectors [n d], float16 or float32.

    With an ``ids.npy`` [n] beside them, the passages' ids are compared with it.
    """

    def __init__(self, table: Path, arrays: list[Path]) -> None:
        self._table, self._arrays = table, arrays
        lengths = [len(_array(path)) for path in arrays]
        self._starts = np.cumsum([0, *lengths])
        widths = {_array(path).shape[1]: path for path in arrays}
        if len(widths) > 1:
            told = ", ".join(f"{path.name} of {width}" for width, path in widths.items())
            raise InputError(f"the files hold vectors of different lengths: {told} numbers")
        self.count, self.dimension = int(self._starts[-1]), next(iter(widths))

    def passages(self) -> Iterator[Passage]:
        """See `Published`; ends in an error where there are not as many as vectors."""
        ids, number = self._ids(), 0
        for number, (name, text, title) in enumerate(_lines(self._table), start=1):
            if number > self.count:
                break
            if ids is not None and str(ids[number - 1]) != name:
                raise InputError(
                    f"row {number} of {self._table} is passage {name!r}, and of {_IDS} "
                    f"{str(ids[number - 1])!r}: the vectors are in another order"
                )
            yield Passage(name, title, text)
        if number != self.count:
            more = "more" if number > self.count else f"only {number:,}"
            raise InputError(
                f"there are {self.count:,} vectors and {more} passages in {self._table}: the "
                "files do not belong together, or one is cut short"
            )

    def vectors(self, rows: range) -> Float[np.ndarray, "n d"]:
        """See `Published`; the files are mapped into memory for the moment only."""
        first = int(np.searchsorted(self._starts, rows.start, side="right")) - 1
        parts = []
        for path, start in zip(self._arrays[first:], self._starts[first:], strict=False):
            if start >= rows.stop:
                break
            part = _array(path)[max(0, rows.start - start) : rows.stop - start]
            parts.append(np.array(part))
        return np.concatenate(parts)

    def _ids(self) -> np.ndarray | None:
        path = self._table.with_name(_IDS)
        if not path.is_file():
            return None
        ids = _load(path)
        if ids.shape != (self.count,) or ids.dtype.kind not in "iuU":
            raise InputError(
                f"{path} is {ids.dtype} {ids.shape}; it must hold {self.count:,} ids, integers or "
                "texts"
            )
        return ids


def _array(path: Path) -> np.ndarray:
    array = _load(path)
    if array.ndim != 2 or array.dtype not in (np.float16, np.float32) or not array.size:
        raise InputError(
            f"{path} is {array.dtype} {array.shape}; vectors are float16 or float32 [rows, length]"
        )
    return array


def _load(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} is no array of numbers, or is cut short ({error})") from None


def _lines(table: Path) -> Iterator[list[str]]:
    """The rows below the header of a table as DPR publishes it, quoted like CSV."""
    opened: Any = gzip.open if table.suffix == ".gz" else open
    number = 0
    try:
        with opened(table, "rt", encoding="utf-8", newline="") as stream:
            for number, line in enumerate(csv.reader(stream, delimiter="\t"), start=1):
                if number == 1 and line != _HEADER:
                    raise InputError(f"the columns of {table} are {line}; wanted are {_HEADER}")
                if len(line) != len(_HEADER):
                    raise InputError(f"row {number} of {table} has {len(line)} fields, not 3")
                if number > 1:
                    yield line
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{table} is damaged or cut short after row {number} ({error})") from None


def _named(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern), key=_order)


def _order(path: Path) -> list[Any]:
    parts = re.split(r"(\d+)", path.name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]
