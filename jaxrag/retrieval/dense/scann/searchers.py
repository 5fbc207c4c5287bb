"""Candidates from the searchers of all shards, the same whatever the batch."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jaxrag.retrieval.dense.matrix import Metric
from jaxrag.retrieval.retriever import RankedRows

SPARE = 4  # candidates among which the cut is chosen
_ROUNDING = 2.0**-16  # of the largest score: more than ScaNN's float32 scores differ by batch
_MOST = 256  # queries that a searcher gets at once


@dataclasses.dataclass(frozen=True)
class Searchers:
    """ScaNN's searchers of consecutive ranges of rows, which share a tree.

    Attributes:
      shards: one searcher a shard.
      rows: number of rows of each.
      metric: of the scores.
    """

    shards: tuple[Any, ...]
    rows: tuple[int, ...]
    metric: Metric

    @functools.cached_property
    def threads(self) -> ThreadPoolExecutor:
        """Threads that search; ScaNN and NumPy release the interpreter's lock."""
        return ThreadPoolExecutor(os.cpu_count())

    def blocks(self, queries: Float[np.ndarray, "q d"]) -> list[Float[np.ndarray, "b d"]]:
        """Blocks of at most 256 queries, enough of them for every core."""
        cores = os.cpu_count() or 1
        parts = max(-(-len(queries) // _MOST), min(cores, len(queries) // 16))
        return np.array_split(queries, max(1, parts))

    def candidates(
        self, queries: Float[np.ndarray, "q d"], count: int, leaves: int, *, alone: bool
    ) -> Int[np.ndarray, "q m"]:
        """The ``count`` or more rows with the best scores by code; -1 where leaves hold fewer.

        ScaNN's scores depend on the batch in their last bits, and of equal ones it finds any. So
        `SPARE` more are searched, and the list ends where the scores first fall most. Where they
        fall nowhere, as among copies of a passage, more are searched.

        ``alone``: whether no other block is searched, so that shards are searched in parallel.
        """
        wanted = min(count + SPARE, sum(self.rows))
        best = self._best(queries, wanted, leaves, alone)
        if wanted == sum(self.rows):
            return best.rows
        last = _last(best.scores, min(count, wanted - 1))
        rows = np.where(np.arange(wanted) < last[:, None], best.rows, -1)
        unsure = np.flatnonzero(last == 0)
        if unsure.size:
            more = self.candidates(queries[unsure], 4 * count, leaves, alone=alone)
            rows = np.pad(rows, ((0, 0), (0, more.shape[1] - wanted)), constant_values=-1)
            rows[unsure] = more
        return rows

    def _best(
        self, queries: Float[np.ndarray, "q d"], wanted: int, leaves: int, alone: bool
    ) -> RankedRows:
        """The best of all shards."""
        search = functools.partial(self._search, queries, wanted, leaves)
        spread = alone and len(self.shards) > 1
        parts: Iterable[RankedRows] = (
            self.threads.map(search, range(len(self.shards)))
            if spread
            else map(search, range(len(self.shards)))
        )
        first, *others = parts
        if not others:
            return first
        rows = np.concatenate([first.rows, *(part.rows for part in others)], axis=1)
        scores = np.concatenate([first.scores, *(part.scores for part in others)], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :wanted]
        return RankedRows(*(np.take_along_axis(a, order, axis=1) for a in (rows, scores)))

    def _search(
        self, queries: Float[np.ndarray, "q d"], wanted: int, leaves: int, shard: int
    ) -> RankedRows:
        """The best of a shard by code, padded with -1 and -inf."""
        searcher, size = self.shards[shard], min(wanted, self.rows[shard])
        if len(queries) == 1:
            result = searcher.search(queries[0], size, size, leaves)
            rows, distances = (np.asarray(part)[None] for part in result)
        else:
            rows, distances = searcher.search_batched(queries, size, size, leaves, False, 0)
        rows = np.add(rows, sum(self.rows[:shard]), dtype=np.int64)
        scores = distances if self.metric == "inner_product" else -distances
        missing = np.isnan(distances)
        if missing.any():
            rows, scores = np.where(missing, -1, rows), np.where(missing, -np.inf, scores)
        short = ((0, 0), (0, wanted - rows.shape[1]))
        if short[1][1]:
            rows = np.pad(rows, short, constant_values=-1)
            scores = np.pad(scores, short, constant_values=-np.inf)
        return RankedRows(rows, scores)


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
