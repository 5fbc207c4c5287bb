"""Published passages with their vectors, as the data set wiki_dpr has them, and FAISS's vectors."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Float

from jaxrag.types import InputError, Passage

_ENDS = 1 << 20  # bytes of a file's beginning and end that are fingerprinted
_TEXTS = ("id", "text", "title")
_VECTORS = "embeddings"
_BATCH = 2048  # passages decoded at a time
_BUFFER = 1 << 20  # bytes of a column read at a time
_FAISS = struct.Struct("<4siqqqBiQ")
"""FAISS's header: kind, dimension, number of vectors, two unused, is_trained, metric, count of all
numbers."""
_INNER_PRODUCT = 0  # among faiss's metrics


def fingerprint(folder: str | Path) -> list[dict[str, Any]]:
    """Name, size and hash of the first and last MiB of each file of a folder."""
    paths = filter(Path.is_file, sorted(Path(folder).expanduser().iterdir(), key=_order))
    return [fingerprint_file(path) for path in paths]


def fingerprint_file(path: Path) -> dict[str, Any]:
    """Name, size and hash of the first and last MiB of a file."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        content = hashlib.sha256(stream.read(_ENDS))
        stream.seek(max(0, size - _ENDS))
        content.update(stream.read(_ENDS))
    return {"name": path.name, "bytes": size, "ends": content.hexdigest()}


def _order(path: Path) -> list[Any]:
    parts = re.split(r"(\d+)", path.name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


class _Group(NamedTuple):
    """A row group: its file, its number in the file, and its first row over all files."""

    path: Path
    number: int
    start: int


class ParquetVectors:
    """Passages and their vectors in parquet files, of which a row group is decoded as a whole."""

    def __init__(self, groups: Sequence[_Group], count: int) -> None:
        self._groups, self.count = groups, count
        self._decoded = functools.lru_cache(1)(self._decode)
        self.dimension = self._decode(0).shape[1]

    @classmethod
    def open(cls, folder: str | Path) -> ParquetVectors:
        """Reads the metadata of a folder's files, in the order of the numbers in their names.

        InputError if there are none, or one is not parquet, cut short or lacks a column.
        """
        paths = sorted(Path(folder).expanduser().glob("*.parquet"), key=_order)
        if not paths:
            raise InputError(
                f"{folder} is no folder of *.parquet files; what is imported are shards with the "
                "columns id, text, title and embeddings, as of wiki_dpr (config psgs_w100)."
            )
        groups, count = [], 0
        for path in paths:
            with _opened(path) as file:
                _check_columns(path, file.schema_arrow)
                for number in range(file.metadata.num_row_groups):
                    if rows := file.metadata.row_group(number).num_rows:
                        groups.append(_Group(path, number, count))
                        count += rows
        if not count:
            raise InputError(f"the parquet files from {paths[0]} on have no rows")
        return cls(groups, count)

    def passages(self) -> Iterator[Passage]:
        """The passages, read lazily; InputError for an invalid file."""
        for path in dict.fromkeys(group.path for group in self._groups):
            with _opened(path) as file:
                for batch in file.iter_batches(_BATCH, columns=list(_TEXTS)):
                    columns = [batch.column(name).to_pylist() for name in _TEXTS]
                    for name, text, title in zip(*columns, strict=True):
                        if name is None or text is None:
                            raise InputError(f"{path} has a passage without id or text: {name!r}")
                        yield Passage(str(name), title or "", text)

    def vectors(self, rows: range) -> Float[np.ndarray, "n d"]:
        """The vectors of consecutive rows, float32; fastest in order. Memory: two row groups.

        InputError if a file is damaged, or a vector is missing or of another length.
        """
        starts = [group.start for group in self._groups]
        first = bisect.bisect_right(starts, rows.start) - 1
        parts = [np.empty((0, self.dimension), np.float32)]
        for number in range(first, bisect.bisect_left(starts, rows.stop)):
            vectors, start = self._decoded(number), starts[number]
            if vectors.shape[1] != self.dimension:
                raise InputError(
                    f"vectors of {self.dimension} and of {vectors.shape[1]} numbers in one corpus"
                )
            parts.append(vectors[max(0, rows.start - start) : rows.stop - start])
        return np.concatenate(parts)

    def _decode(self, number: int) -> Float[np.ndarray, "n d"]:
        group = self._groups[number]
        with _opened(group.path) as file:
            column = file.read_row_group(group.number, [_VECTORS]).column(_VECTORS)
            return _matrix(column.combine_chunks(), group.path, group.start)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """A parquet file; pyarrow's errors about a damaged one become an InputError that names it."""
    try:
        with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not a parquet file, or is cut short or damaged ({error}); get it again"
        ) from error


def _check_columns(path: Path, schema: Any) -> None:
    missing = [name for name in (*_TEXTS, _VECTORS) if name not in schema.names]
    if missing:
        raise InputError(f"{path} has no column {', '.join(missing)}; it has {schema.names}")
    kind = schema.field(_VECTORS).type
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(kind) for is_kind in lists) or not pa.types.is_floating(kind.value_type):
        raise InputError(f"column {_VECTORS} of {path} is {kind}; it must be lists of floats")


def _matrix(column: Any, path: Path, start: int) -> Float[np.ndarray, "n d"]:
    """A column of lists of one length as a matrix; ``start`` is its first row's number."""
    lengths = pc.call_function("list_value_length", [column]).to_numpy(
        zero_copy_only=False
    )  # NaN for a missing list
    wrong = np.flatnonzero(~(lengths == lengths[0]) | ~(lengths > 0))
    if wrong.size:
        raise InputError(
            f"the vector of row {start + int(wrong[0])} ({path}) has {lengths[wrong[0]]} numbers, "
            f"others have {lengths[0]}"
        )
    values = column.flatten().to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # `as_stored` reports it
        return values.reshape(len(column), -1).astype(np.float32, copy=False)


@dataclasses.dataclass(frozen=True)
class FlatVectors:
    """The vectors of a file that faiss wrote of an IndexFlatIP: whole, in float32, row by row."""

    path: Path
    count: int
    dimension: int

    @classmethod
    def open(cls, path: str | Path) -> FlatVectors:
        """Reads the header of a file, or of the only ``*.index`` file of a folder.

        InputError for no such file, another kind of index, or a file that is cut short.
        """
        path = Path(path).expanduser()
        files = [path] if path.is_file() else sorted(path.glob("*.index"))
        if len(files) != 1:
            raise InputError(
                f"{path} is no file of faiss, nor a folder with one *.index file (there: "
                f"{', '.join(file.name for file in files) or 'none'}); give the file, such as "
                "e5_Flat.index"
            )
        path, size = files[0], files[0].stat().st_size
        with path.open("rb") as stream:
            header = stream.read(_FAISS.size)
        if not header.startswith(b"IxFI") or len(header) < _FAISS.size:
            raise InputError(
                f"{path} is no IndexFlatIP of faiss, or cut short (it begins {header[:4]!r}); only "
                "whole vectors of one can be imported"
            )
        _, dimension, count, _, _, _, metric, numbers = _FAISS.unpack(header)
        expected = _FAISS.size + 4 * numbers
        if metric != _INNER_PRODUCT or min(dimension, count) < 1 or numbers != dimension * count:
            raise InputError(
                f"the header of {path} is not an IndexFlatIP's with vectors: metric {metric}, "
                f"{count:,} vectors of {dimension} numbers, {numbers:,} numbers in all"
            )
        if size != expected:
            raise InputError(
                f"{path} has {size:,} bytes; {count:,} vectors of {dimension} numbers take "
                f"{expected:,}: it is cut short or damaged; get it again"
            )
        return cls(path, count, dimension)

    def vectors(self, rows: range) -> Float[np.ndarray, "n d"]:
        """The vectors of consecutive rows, float32."""
        offset = _FAISS.size + 4 * self.dimension * rows.start
        numbers = np.fromfile(self.path, "<f4", len(rows) * self.dimension, offset=offset)
        return numbers.reshape(len(rows), self.dimension)
