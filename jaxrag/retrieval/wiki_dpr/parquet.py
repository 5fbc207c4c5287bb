"""Passages and vectors in parquet files, streamed with pyarrow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.types import InputError, Passage

_TEXTS = ("id", "text", "title")
_VECTORS = "embeddings"
_BATCH = 2048  # rows that are decoded at a time: 6 MB of vectors of 768 float32
_BUFFER = 1 << 20  # bytes of a column that are read at a time


class _Group(NamedTuple):
    """A row group: its file, its number there, and its first row among all files'."""

    path: Path
    number: int
    start: int


class ParquetVectors:
    """``Published`` of parquet files (see `jaxrag.retrieval.wiki_dpr.sources`).

    Vectors are decoded a few thousand rows at a time. Going on where the last call ended costs
    nothing; going elsewhere decodes that place's row group from its beginning.
    """

    def __init__(self, groups: Sequence[_Group], count: int) -> None:
        self._groups, self.count = groups, count
        self._at, self._rest = -1, np.zeros((0, 0), np.float32)
        self._stream: Iterator[np.ndarray] = iter(())
        self.dimension = next(self._batches(0)).shape[1]

    @classmethod
    def open(cls, paths: Sequence[Path]) -> ParquetVectors:
        """Reads what the files say about themselves.

        Raises:
          InputError: pyarrow is not there, a file is none of parquet or cut short, or it has no
            such columns.
        """
        groups, count = [], 0
        for path in paths:
            with _reading(path), _opened(path) as file:
                _check_columns(path, file.schema_arrow)
                for number in range(file.metadata.num_row_groups):
                    groups.append(_Group(path, number, count))
                    count += file.metadata.row_group(number).num_rows
        if not count:
            raise InputError(f"the parquet files from {paths[0]} on have no rows")
        return cls(groups, count)

    def passages(self) -> Iterator[Passage]:
        """See `Published`."""
        for path in dict.fromkeys(group.path for group in self._groups):
            with _reading(path), _opened(path) as file:
                for batch in file.iter_batches(_BATCH, columns=list(_TEXTS)):
                    columns = [batch.column(name).to_pylist() for name in _TEXTS]
                    for name, text, title in zip(*columns, strict=True):
                        if name is None or text is None:
                            raise InputError(f"{path} has a passage without id or text: {name!r}")
                        yield Passage(str(name), title or "", text)

    def vectors(self, rows: range) -> Float[np.ndarray, "n d"]:
        """See `Published`."""
        if rows.start != self._at:
            self._stream, self._rest = self._batches(rows.start), self._rest[:0]
        parts, missing = [], len(rows)
        while missing:
            if not len(self._rest):
                self._rest = next(self._stream)
                self._check_length(self._rest)
            parts.append(self._rest[:missing])
            self._rest = self._rest[missing:]
            missing -= len(parts[-1])
        self._at = rows.stop
        return np.concatenate(parts)

    def _check_length(self, batch: np.ndarray) -> None:
        if batch.shape[1] != self.dimension:
            raise InputError(
                f"vectors of {self.dimension} and of {batch.shape[1]} numbers in one corpus"
            )

    def _batches(self, row: int) -> Iterator[np.ndarray]:
        """The vectors from a row on."""
        first = max(i for i, group in enumerate(self._groups) if group.start <= row)
        skip = row - self._groups[first].start
        for group in self._groups[first:]:
            with _reading(group.path), _opened(group.path) as file:
                start = group.start
                batches = file.iter_batches(_BATCH, row_groups=[group.number], columns=[_VECTORS])
                for batch in batches:
                    found = _matrix(batch.column(_VECTORS), group.path, start)
                    start += len(found)
                    if skip < len(found):
                        yield found[skip:]
                    skip = max(0, skip - len(found))


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError("parquet files are read with pyarrow: pip install pyarrow") from None
    return pyarrow.parquet


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with _parquet().ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
        yield file


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns what pyarrow says of a damaged file into an error that names it."""
    _parquet()
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is no parquet file, or is cut short or damaged ({error}); get it again"
        ) from error


def _check_columns(path: Path, schema: Any) -> None:
    import pyarrow as pa

    missing = [name for name in (*_TEXTS, _VECTORS) if name not in schema.names]
    if missing:
        raise InputError(f"{path} has no column {', '.join(missing)}; it has {schema.names}")
    kind = schema.field(_VECTORS).type
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(kind) for is_kind in lists) or not pa.types.is_floating(kind.value_type):
        raise InputError(f"column {_VECTORS} of {path} is {kind}; wanted are lists of floats")


def _matrix(column: Any, path: Path, start: int) -> Float[np.ndarray, "n d"]:
    """A column of lists of one length as a matrix; ``start`` is its first row's number."""
    import pyarrow.compute as pc

    lengths = pc.call_function("list_value_length", [column]).to_numpy(
        zero_copy_only=False
    )  # NaN where there is no list
    wrong = np.flatnonzero(~(lengths == lengths[0]) | ~(lengths > 0))
    if wrong.size:
        raise InputError(
            f"the vector of row {start + int(wrong[0])} ({path}) has {lengths[wrong[0]]} numbers, "
            f"others have {lengths[0]}"
        )
    values = column.flatten().to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # told where what is stored is checked
        return values.reshape(len(column), -1).astype(np.float32, copy=False)
