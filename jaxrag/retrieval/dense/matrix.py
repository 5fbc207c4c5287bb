"""The matrix of passage vectors on disk, and exact scores of its rows.

Search kernels find candidates with scores whose rounding depends on batch and device. `rank`
computes the final scores, so that a ranking depends on nothing but its query.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

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

_CELLS = 1 << 20  # numbers of candidates' vectors in memory at a time


@dataclasses.dataclass(frozen=True)
class Matrix:
    """The vectors of a corpus, row by row, as memory maps of its shards."""

    directory: Path
    manifest: Manifest
    rows: ShardedRows

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
    compares the hashes of all files; None does so up to 1 GiB. InputError if it is missing,
    incomplete, damaged, or made from something else.
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
    """Encodes a corpus into a matrix on disk, row i for passage i, or finishes a build.

    A resumed build keeps the rows that reached the disk, and writes the same files as another, of
    ``shard_rows`` rows in the precision ``dtype``. ``part`` is what this process builds.
    InputError for an empty corpus, a vector that is not finite or of the wrong length, a directory
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

    Scores are computed in float64 from the stored vectors and rounded to float32; equal scores are
    in the order of rows. InputError for a row out of range.
    """
    rows = check_rows(candidates, len(matrix), matrix.directory, none=True).clip(0)
    scores = np.empty(candidates.shape, np.float32)
    step = max(1, _CELLS // max(rows.shape[1] * matrix.dimension, 1))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        vectors = matrix.stored(part.ravel()).reshape(*part.shape, -1).astype(np.float64)
        query_part = queries[start : start + step].astype(np.float64)[:, None]
        # vecdot sums each score by itself; a BLAS product of matrices would mix the rows
        if metric == "inner_product":
            scores[start : start + step] = np.vecdot(vectors, query_part)
        else:
            vectors -= query_part
            scores[start : start + step] = -np.vecdot(vectors, vectors)
    scores[candidates < 0] = -np.inf
    order = np.lexsort((candidates, -scores), axis=1)
    return RankedRows(*(np.take_along_axis(a, order, axis=1) for a in (candidates, scores)))
