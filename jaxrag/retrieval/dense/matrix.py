"""The matrix of passage vectors on disk, and exact scores of its rows.

Search kernels find candidates with scores whose rounding depends on batch and device. `rank`
computes the final scores from the stored vectors, each by itself, so that a ranking depends on
nothing but its query.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxrag.retrieval.corpus.builds import (
    WHOLE,
    BuildPart,
    ShardedRows,
    Stream,
    build_arrays,
    check_rows,
    encoded_rows,
)
from jaxrag.retrieval.corpus.manifest import Manifest, open_manifest, source_of
from jaxrag.retrieval.retriever import QueryEncoder, RankedRows, TextEncoder
from jaxrag.types import InputError

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

KIND = "matrix"
StoredType = Literal["float16", "float32"]
Metric = Literal["inner_product", "l2"]
"""How a passage is scored: <q, p>, or -|q - p|^2."""

_CELLS = 1 << 19  # numbers of candidates' vectors at a time in float32
_WIDE_CELLS = 1 << 15  # the same in float32 and float64
_READ = 1 << 22  # numbers read from disk at once, so that a file of the matrix is visited once
_SPARE = 1  # candidates beyond k that float32 scores leave, for their rounding at the k-th place

_kept = threading.local()  # arrays of `_scratch`


class Held(NamedTuple):
    """Vectors in memory, float32, and the largest of their norms."""

    vectors: Float[np.ndarray, "n d"]
    longest: float


@dataclasses.dataclass(frozen=True)
class Matrix:
    """The vectors of a corpus, row by row, as memory maps of its shards.

    Attributes:
      held: the vectors once more in memory, from where candidates are scored faster; None if they
        are read from the memory maps.
    """

    directory: Path
    manifest: Manifest
    rows: ShardedRows
    held: Held | None = None

    def __len__(self) -> int:
        return self.manifest.settings["passages"]["count"]

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.manifest.settings["dimension"]

    @property
    def identity(self) -> dict[str, Any]:
        """All that determines the vectors, plain JSON: encoder, passages and content hash."""
        settings = self.manifest.settings
        return {
            "encoder": settings["encoder"],
            "passages": settings["passages"]["identity"],
            "dtype": settings["dtype"],
            "content": self.manifest.content,
        }

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimension."""
        return len(self), self.dimension

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Consecutive rows in the stored precision."""
        start, stop, _ = rows.indices(len(self))
        return self.rows.span(start, max(start, stop))

    def stored(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Vectors of the given rows [n d] in the stored precision, in the given order."""
        return self.rows.take(rows)

    def in_memory(self, limit: int) -> Matrix:
        """The matrix with its vectors held in float32 if they take at most ``limit`` bytes."""
        if 4 * len(self) * self.dimension > limit:
            return self
        vectors = np.empty(self.shape, np.float32)
        longest = 0.0
        step = max(1, _READ // self.dimension)
        for start in range(0, len(self), step):
            part = vectors[start : start + step]
            _to_float32(self[start : start + step], part)
            longest = max(longest, math.sqrt(np.vecdot(part, part).max()))
        return dataclasses.replace(self, held=Held(vectors, longest))

    def longest(self, vectors: Float[np.ndarray, "b m d"]) -> float | Float[np.ndarray, " b"]:
        """Upper bound on the norms of each query's candidates, given their vectors."""
        if self.held:
            return self.held.longest
        return np.sqrt(np.vecdot(vectors, vectors).max(axis=1))

    def of_candidates(
        self, candidates: Int[np.ndarray, "q m"], *, cells: int = _CELLS
    ) -> Iterator[tuple[slice, Float[np.ndarray, "b m d"]]]:
        """Vectors of candidates in float32, those of a few queries at a time.

        Args:
          candidates: rows of the matrix; -1 gives row 0.
          cells: at most so many numbers at a time, unless one query has more.

        Yields:
          Queries and the vectors of their candidates, which are overwritten by the next ones.

        Raises:
          InputError: a row out of range.
        """
        count, width = candidates.shape
        rows = check_rows(candidates, len(self), self.directory, none=True).clip(0)
        step = max(1, cells // max(width * self.dimension, 1))
        read = step if self.held else max(step, _READ // max(width * self.dimension, 1))
        buffer = _scratch(np.float32, min(step, count), width, self.dimension)
        for first in range(0, count, read):
            block = rows[first : first + read]
            stored = None if self.held else self.stored(block.ravel()).reshape(*block.shape, -1)
            for start in range(0, len(block), step):
                part = slice(start, min(start + step, len(block)))
                vectors = buffer[: part.stop - start]
                if self.held:
                    np.take(self.held.vectors, block[part], axis=0, out=vectors, mode="clip")
                elif stored is not None:
                    _to_float32(stored[part], vectors)
                yield slice(first + start, first + part.stop), vectors


def open_matrix(
    directory: str | Path,
    passages: Passages,
    encoder: QueryEncoder,
    *,
    made_by: str | None = None,
    verify: bool | None = None,
) -> Matrix:
    """Opens the finished matrix of ``passages``.

    ``made_by`` is the identity of what made the vectors; None: that of ``encoder``. ``verify``
    compares the hashes of all files; None does so up to 1 GiB. Sizes are always compared.

    Raises:
      InputError: no matrix there, or it is incomplete, damaged, or made from something else.
    """
    directory = Path(directory).absolute()
    source = source_of(passages, encoder=made_by or encoder.identity)
    manifest = open_manifest(directory, KIND, source, verify=verify)
    return Matrix(directory, manifest, ShardedRows.open(directory, manifest))


def write_matrix(
    passages: Passages,
    encoder: TextEncoder,
    directory: str | Path,
    *,
    shard_rows: int = 50_000,
    dtype: StoredType = "float16",
    part: BuildPart = WHOLE,
) -> None:
    """Encodes a corpus into a matrix on disk, or finishes an interrupted build.

    Encoded rows are kept, up to the last that reached the disk; missing or damaged shards are
    encoded again. A resumed build writes the same files as an uninterrupted one.

    Args:
      passages: the corpus; row i of the matrix belongs to passage i.
      encoder: its ``stream_passages`` makes the vectors.
      directory: made if need be.
      shard_rows: rows of one file.
      dtype: stored precision.
      part: of the files that this process builds.

    Raises:
      InputError: an empty corpus, a vector that is not finite or of the wrong length, a directory
        that holds another index, or a full disk.
    """
    layout = {"dimension": encoder.dimension, "dtype": dtype, "shard_rows": shard_rows}
    hint = "check the encoder's weights and dtype, or that passage's text"

    def checked(vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        if vectors.shape[1:] != (encoder.dimension,):
            raise InputError(
                f"the encoder gave vectors of shape {vectors.shape[1:]} instead of "
                f"({encoder.dimension},)"
            )
        return as_stored(vectors, dtype, rows, passages, hint=hint)

    write_vectors(
        Path(directory).absolute(),
        source_of(passages, encoder=encoder.identity) | layout,
        encoded_rows(passages, encoder.stream_passages, checked),
        label="encoding passages",
        part=part,
    )


def write_vectors(
    directory: Path, settings: dict[str, Any], make: Stream, *, label: str, part: BuildPart = WHOLE
) -> None:
    """Writes the files of a matrix from vectors in the stored precision."""
    if settings["dtype"] not in ("float16", "float32"):
        raise InputError(f"dtype must be 'float16' or 'float32', not {settings['dtype']!r}")
    build_arrays(
        directory,
        settings,
        make,
        width=settings["dimension"],
        dtype=settings["dtype"],
        kind=KIND,
        stem="vectors",
        label=label,
        part=part,
    )


def as_stored(
    vectors: np.ndarray,
    dtype: StoredType,
    rows: Sequence[int] | np.ndarray,
    passages: Passages,
    *,
    hint: str,
) -> np.ndarray:
    """Vectors in the stored precision; InputError, ending in ``hint``, if one is not finite."""
    with np.errstate(over="ignore"):
        stored = vectors.astype(dtype)
    wrong = np.flatnonzero(~np.isfinite(stored).all(axis=1))
    if wrong.size:
        row = int(rows[int(wrong[0])])
        raise InputError(
            f"the vector of passage {passages[row].id!r} (row {row}) is not finite in {dtype}; "
            f"{hint}"
        )
    return stored


def check_metric(metric: str) -> None:
    """InputError for an unknown metric."""
    if metric not in ("inner_product", "l2"):
        raise InputError(f"metric must be 'inner_product' or 'l2', not {metric!r}")


def rank(
    matrix: Matrix,
    queries: Float[np.ndarray, "q d"],
    candidates: Int[np.ndarray, "q m"],
    *,
    metric: Metric,
) -> RankedRows:
    """Scores each query's candidates (rows of the matrix, -1 for none) and sorts them.

    Scores are computed in float64 and rounded to float32; equal scores are in the order of rows.
    """
    scores = np.empty(candidates.shape, np.float32)
    for part, vectors in matrix.of_candidates(candidates, cells=_WIDE_CELLS):
        scores[part] = _scores(queries[part], vectors, metric)
    return _sorted(candidates, scores)


def best_of(
    matrix: Matrix,
    queries: Float[np.ndarray, "q d"],
    candidates: Int[np.ndarray, "q m"],
    k: int,
    *,
    metric: Metric,
) -> RankedRows:
    """The ``k`` best of each query's candidates (rows of the matrix, -1 for none), as by `rank`.

    For inner products, float32 scores leave out candidates that cannot be among the ``k`` best
    whatever their rounding, so that few scores are computed in float64.
    """
    if metric != "inner_product" or candidates.shape[1] <= 2 * (k + _SPARE):
        return _first(rank(matrix, queries, candidates, metric=metric), k)
    ranked, sure = _rank_likely(matrix, queries, candidates, k)
    best = _first(ranked, k)
    if not sure.all():
        full = rank(matrix, queries[~sure], candidates[~sure], metric=metric)
        best.rows[~sure], best.scores[~sure] = _first(full, k)
    return best


def _first(ranked: RankedRows, k: int) -> RankedRows:
    return RankedRows(ranked.rows[:, :k], ranked.scores[:, :k])


def _sorted(rows: Int[np.ndarray, "q m"], scores: Float[np.ndarray, "q m"]) -> RankedRows:
    """Rows, -1 for none, with the best score first and equal ones in the order of rows."""
    scores[rows < 0] = -np.inf
    order = np.lexsort((rows, -scores), axis=1)
    return RankedRows(*(np.take_along_axis(a, order, axis=1) for a in (rows, scores)))


def _rank_likely(
    matrix: Matrix, queries: Float[np.ndarray, "q d"], candidates: Int[np.ndarray, "q m"], k: int
) -> tuple[RankedRows, Bool[np.ndarray, " q"]]:
    """`rank` of the candidates that are best by float32 inner product, `_SPARE` more than ``k``.

    Returns:
      The ranked candidates, and whether the k best of all are certainly among them. They are if the
      best float32 score left out is further below the k-th than both can be rounded: the error of a
      float32 sum is at most (d + 2) 2^-24 times the product of the vectors' lengths.
    """
    likely = k + _SPARE
    rows = np.empty((len(queries), likely), candidates.dtype)
    scores = np.empty(rows.shape, np.float32)
    sure = np.empty(len(queries), np.bool_)
    for part, vectors in matrix.of_candidates(candidates):
        rough = np.matmul(vectors, queries[part][:, :, None])[..., 0]
        rough[candidates[part] < 0] = -np.inf
        order = np.argpartition(-rough, likely, axis=1)[:, : likely + 1]
        best, left_out = order[:, :likely], order[:, likely:]
        at_k = np.partition(np.take_along_axis(rough, best, axis=1), _SPARE, axis=1)[:, _SPARE]
        bound = np.take_along_axis(rough, left_out, axis=1)[:, 0]
        lengths = np.linalg.norm(queries[part], axis=1) * matrix.longest(vectors)
        error = 2 * 2.0**-24 * (matrix.dimension + 2) * lengths
        sure[part] = (bound + error < at_k) | (bound == -np.inf)
        rows[part] = np.take_along_axis(candidates[part], best, axis=1)
        flat = (best + np.arange(len(best))[:, None] * vectors.shape[1]).ravel()
        chosen = vectors.reshape(-1, matrix.dimension)[flat].reshape(*best.shape, -1)
        scores[part] = _scores(queries[part], chosen, "inner_product")
    return _sorted(rows, scores), sure


def _scratch(dtype: type[np.floating], *shape: int) -> np.ndarray:
    """An uninitialized array in memory that the thread keeps: new memory would cost page faults.

    The next call with the same type in the same thread gives the same memory.
    """
    size = math.prod(shape)
    buffer = getattr(_kept, dtype.__name__, None)
    if buffer is None or buffer.size < size:
        buffer = np.empty(size, dtype)
        if size <= 2 * _CELLS:
            setattr(_kept, dtype.__name__, buffer)
    return buffer[:size].reshape(shape)


def _to_float32(stored: np.ndarray, out: Float[np.ndarray, ...]) -> None:
    """Writes finite vectors in float32.

    NumPy converts float16 number by number. In whole arrays: the bits are moved to where float32
    has them, and the exponents' other offset is a factor of 2^112.
    """
    if stored.dtype != np.float16:
        np.copyto(out, stored)
        return
    bits = out.view(np.int32)
    np.copyto(bits, stored.view(np.int16))
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, np.int32(-0x70000001), out=bits)
    np.multiply(out, np.float32(2.0**112), out=out)


def _scores(
    queries: Float[np.ndarray, "q d"], vectors: Float[np.ndarray, "q m d"], metric: Metric
) -> Float[np.ndarray, "q m"]:
    """Scores of float32 vectors, computed in float64."""
    # vecdot sums each score by itself; a BLAS product of matrices would mix the rows.
    wide = _scratch(np.float64, *vectors.shape)
    np.copyto(wide, vectors)
    asked = queries.astype(np.float64)[:, None]
    if metric == "inner_product":
        return np.vecdot(wide, asked)
    wide -= asked
    return -np.vecdot(wide, wide)
