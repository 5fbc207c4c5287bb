"""Candidates from the searchers of all shards, the same whatever the batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jaxrag.retrieval.dense.matrix import Metric
from jaxrag.retrieval.retriever import RankedRows

SPARE = 4  # candidates among which the cut is chosen
_ROUNDING = 2.0**-16  # of the largest score: more than ScaNN's float32 scores differ by batch
_BATCH = 256  # queries that one of its threads gets at once


@dataclasses.dataclass(frozen=True)
class Searchers:
    """ScaNN's searchers of consecutive ranges of so many ``rows``, which share a tree."""

    shards: tuple[Any, ...]
    rows: tuple[int, ...]
    metric: Metric

    def candidates(
        self, queries: Float[np.ndarray, "q d"], count: int, leaves: int
    ) -> Int[np.ndarray, "q m"]:
        """The ``count`` or more rows with the best scores by code; -1 where leaves hold fewer.

        ScaNN's scores depend on the batch in their last bits, and of equal ones it finds any. So
        `SPARE` more are searched, and the list ends where the scores first fall most; if nowhere,
        as among copies of a passage, still more.
        """
        wanted = min(count + SPARE, sum(self.rows))
        best = self._best(queries, wanted, leaves)
        if wanted == sum(self.rows):
            return best.rows
        last = _last(best.scores, min(count, wanted - 1))
        rows = np.where(np.arange(wanted) < last[:, None], best.rows, -1)
        unsure = np.flatnonzero(last == 0)
        if unsure.size:
            more = self.candidates(queries[unsure], 4 * count, leaves)
            rows = np.pad(rows, ((0, 0), (0, more.shape[1] - wanted)), constant_values=-1)
            rows[unsure] = more
        return rows

    def _best(self, queries: Float[np.ndarray, "q d"], wanted: int, leaves: int) -> RankedRows:
        """The best of all shards."""
        parts = [self._search(queries, wanted, leaves, shard) for shard in range(len(self.shards))]
        if len(parts) == 1:
            return parts[0]
        rows, scores = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
        order = np.argsort(-scores, axis=1, kind="stable")[:, :wanted]
        return RankedRows(*(np.take_along_axis(a, order, axis=1) for a in (rows, scores)))

    def _search(
        self, queries: Float[np.ndarray, "q d"], wanted: int, leaves: int, shard: int
    ) -> RankedRows:
        """The best of a shard by code, padded with -1 and -inf; in ScaNN's own threads."""
        searcher, size = self.shards[shard], min(wanted, self.rows[shard])
        results = searcher.search_batched(queries, size, size, leaves, True, _BATCH)
        rows = np.add(results[0], sum(self.rows[:shard]), dtype=np.int64)
        scores = results[1] if self.metric == "inner_product" else -results[1]
        missing = np.isnan(scores)
        rows, scores = np.where(missing, -1, rows), np.where(missing, -np.inf, scores)
        short = ((0, 0), (0, wanted - rows.shape[1]))
        rows = np.pad(rows, short, constant_values=-1)
        return RankedRows(rows, np.pad(scores, short, constant_values=-np.inf))


def _last(scores: Float[np.ndarray, "q m"], count: int) -> Int[np.ndarray, " q"]:
    """How many of each query's sorted scores to keep: 0 if the scores from ``count`` on are equal.

    Where a score is -inf, which stands for none, all are kept.
    """
    window = scores[:, count - 1 :]
    ended = window[:, -1] == -np.inf
    window = np.where(ended[:, None], 0, window)
    falls = window[:, :-1] - window[:, 1:]
    rounding = _ROUNDING * np.maximum(np.abs(scores[:, 0]), np.abs(window[:, -1]))
    largest = falls.max(axis=1)
    where = (falls >= (largest - rounding)[:, None]).argmax(axis=1)  # codes make equal falls
    last = np.where(largest > 2 * rounding, count + where, 0)
    return np.where(ended, scores.shape[1], last)
