"""The one place where scores are made: found rows are scored again, exactly and one by one.

The kernels that find candidates round differently from batch to batch and device to device. What
a query gets in the end must not: so candidates are scored once more from the stored vectors in
float64, and the result is rounded to float32. Equal scores come in the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxrag.retrieval.dense.matrix import Matrix
from jaxrag.types import InputError, Ranking

Metric = Literal["inner_product", "l2"]
"""How a passage is scored: <q, p>, or -|q - p|^2."""

_CELLS = 1 << 18  # float64 numbers held at once: 2 MiB, what a cache holds


class RankedRows(NamedTuple):
    """Rows and scores of each query, best first; where fewer were found, -1 and -inf at the end."""

    rows: Int[np.ndarray, "q m"]
    scores: Float[np.ndarray, "q m"]

    def rankings(self, k: int) -> list[Ranking]:
        """The ``k`` best of each query as plain data."""
        counts = (self.rows[:, :k] >= 0).sum(axis=1).tolist()
        pairs = zip(self.rows[:, :k].tolist(), self.scores[:, :k].tolist(), counts, strict=True)
        return [Ranking(tuple(rows[:n]), tuple(scores[:n])) for rows, scores, n in pairs]


def rank(
    matrix: Matrix,
    queries: Float[np.ndarray, "q d"],
    candidates: Int[np.ndarray, "q m"],
    *,
    metric: Metric,
) -> RankedRows:
    """Scores each query's candidates (rows of the matrix, -1 for none) and sorts them."""
    scores = np.empty(candidates.shape, np.float32)
    for part in _parts(candidates.shape[0], candidates.shape[1] * matrix.dimension):
        rows = candidates[part]
        vectors = matrix.stored(rows.clip(0).ravel()).astype(np.float64)
        vectors = vectors.reshape(*rows.shape, matrix.dimension)
        scores[part] = np.where(rows < 0, -np.inf, _scores(queries[part], vectors, metric))
    order = np.lexsort((candidates, -scores), axis=1)
    return RankedRows(*(np.take_along_axis(a, order, axis=1) for a in (candidates, scores)))


def _scores(
    queries: Float[np.ndarray, "q d"], vectors: Float[np.ndarray, "q m d"], metric: Metric
) -> Float[np.ndarray, "q m"]:
    # einsum without optimize adds up each score by itself; a BLAS product would mix the rows.
    wide = queries.astype(np.float64)
    if metric == "inner_product":
        return np.einsum("qmd,qd->qm", vectors, wide)
    apart = vectors - wide[:, None]
    return -np.einsum("qmd,qmd->qm", apart, apart)


def _parts(queries: int, cells: int) -> Iterator[slice]:
    step = max(1, _CELLS // max(cells, 1))
    for start in range(0, queries, step):
        yield slice(start, start + step)


def check_query(vectors: Float[np.ndarray, "q d"], k: int, dimension: int) -> np.ndarray:
    """The queries as float32 [q d]; InputError where they or ``k`` cannot be searched with."""
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise InputError(
            f"queries must have shape [q, {dimension}], as the index has; got {vectors.shape}"
        )
    if not np.isfinite(vectors).all():
        bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise InputError(f"query {bad} has a number that is not finite; check its encoder")
    if k < 1:
        raise InputError(f"k must be at least 1, not {k}")
    return vectors
