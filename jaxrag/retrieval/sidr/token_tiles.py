"""Token sets on disk: files of tiles, as the search kernel reads them, and exact scores of them.

A file holds the passages of some rows as one uint16 array [s tile]:

* the widths of its tiles, in its first row;
* a row for each tile: the passage of each column, counted from the file's first;
* the tiles, each ``width`` rows of token ids (see `jaxrag.functional.bag_of_tokens`).

Passages are sorted by their number of tokens, so that there is little padding.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxrag.core.durable_files import atomic_write
from jaxrag.functional.bag_of_tokens import PAD, STEP
from jaxrag.retrieval.corpus.manifest import File, finished
from jaxrag.types import Ranking

MOST_ROWS = 1 << 16
"""Most passages of a file: their numbers in it are uint16."""

_TILE = 4096
_PAIRS = 1 << 10  # passages scored at once
_SLAB = 1 << 14  # passages whose tokens are read at once; as many as there are threads
_EVEN = 64  # heights of files are multiples of this, so that few programs are compiled


def tile_size(rows: int) -> int:
    """Columns of a tile in files of ``rows`` passages, for at most 16 tiles in a file."""
    return min(_TILE, max(32, 1 << (-(-rows // 16) - 1).bit_length()))


@dataclasses.dataclass(frozen=True)
class TokenFile:
    """A file of tiles: ``count`` passages, beginning with row ``first`` of the corpus."""

    array: np.ndarray
    first: int
    count: int

    @property
    def tile(self) -> int:
        """Columns of a tile."""
        return self.array.shape[1]

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return -(-self.count // self.tile)

    @cached_property
    def slots(self) -> np.ndarray:
        """The rows of all tiles [s tile]."""
        return self.array[1 + self.tiles :]

    @cached_property
    def widths(self) -> Int[np.ndarray, " i"]:
        """Rows of each tile."""
        return self.array[0, : self.tiles].astype(np.int32)

    @cached_property
    def starts(self) -> Int[np.ndarray, " i"]:
        """First row of each tile among ``slots``."""
        widths = self.widths
        return np.cumsum(widths, dtype=np.int32) - widths

    @cached_property
    def order(self) -> np.ndarray:
        """The passage of each column, counted from the file's first."""
        return self.array[1 : 1 + self.tiles].reshape(-1)[: self.count]

    def tokens(self, columns: Int[np.ndarray, " m"]) -> np.ndarray:
        """Token ids [w m] of some columns' passages, ascending, padded with ``PAD``."""
        tile, column = np.divmod(columns, self.tile)
        widths = self.widths[tile]
        steps = np.arange(widths.max(initial=0))[:, None]
        first = self.starts[tile].astype(np.int64) * self.tile + column
        ids = np.take(self.slots.reshape(-1), first + steps * self.tile, mode="clip")
        if (widths < len(steps)).any():
            ids[steps >= widths] = PAD  # beyond the width lies another tile
        return ids


def write_tokens(path: Path, passages: Sequence[np.ndarray], tile: int) -> File:
    """Writes the file of these passages' token ids, atomically."""
    lengths = np.fromiter(map(len, passages), np.int64, len(passages))
    order = np.argsort(lengths, kind="stable")
    starts = range(0, len(order), tile)
    tiles = [order[start : start + tile] for start in starts]
    longest = lengths[order][[min(start + tile, len(order)) - 1 for start in starts]]
    widths = (-(-longest // STEP) * STEP).tolist()
    height = 1 + len(widths) + sum(widths) + 1
    array = np.full((-(-height // _EVEN) * _EVEN, tile), PAD, np.uint16)
    array[0, : len(tiles)] = widths
    array[1 : 1 + len(tiles)].reshape(-1)[: len(order)] = order
    at = 1 + len(tiles)
    for columns, width in zip(tiles, widths, strict=True):
        rows = np.full((tile, width), PAD, np.uint16)
        taken = np.arange(width) < np.pad(lengths[columns], (0, tile - len(columns)))[:, None]
        rows[taken] = np.concatenate([passages[passage] for passage in columns])
        array[at : at + width] = rows.T
        at += width
    with atomic_write(path) as stream:
        np.save(stream, array)
    return finished(path)


def every_score(
    file: TokenFile, query: Float[np.ndarray, " v"]
) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Scores and rows of all passages of a file, for one query that ends with a zero."""
    scores = [
        _sum(query[np.minimum(file.slots[start : start + width], len(query) - 1)])
        for start, width in zip(file.starts, file.widths, strict=True)
    ]
    return np.concatenate(scores)[: file.count], file.first + file.order.astype(np.int64)


class BestPassages:
    """The ``k`` best of the passages scored so far for each query, best first.

    ``queries`` are float32 weights with a column of zeros at the end. Passages are given by their
    columns, counted over files of ``span`` columns each.
    """

    def __init__(
        self, files: Sequence[TokenFile], queries: Float[np.ndarray, "q v"], *, span: int, k: int
    ) -> None:
        self.files, self.queries, self.span, self.k = files, queries, span, k
        self.query_of = np.empty(0, np.int64)
        self.scores = np.empty(0)
        self.rows = np.empty(0, np.int64)

    def add(
        self,
        query_of: Int[np.ndarray, "q 1"],
        columns: Int[np.ndarray, "q m"],
        *,
        where: Bool[np.ndarray, "q m"],
    ) -> None:
        """Scores the passages of these columns for the queries ``query_of``."""
        new, columns = np.broadcast_to(query_of, where.shape)[where], columns[where]
        scores, rows = self._scores(new, columns)
        better = scores >= self.kth[new]
        of = np.concatenate([self.query_of, new[better]])
        scores = np.concatenate([self.scores, scores[better]])
        rows = np.concatenate([self.rows, rows[better]])
        order = np.lexsort((rows, -scores, of))
        starts = np.searchsorted(of[order], np.arange(len(self.queries)))
        order = order[np.arange(len(order)) - starts[of[order]] < self.k]
        self.query_of, self.scores, self.rows = of[order], scores[order], rows[order]

    def _scores(
        self, query_of: Int[np.ndarray, " m"], columns: Int[np.ndarray, " m"]
    ) -> tuple[Float[np.ndarray, " m"], Int[np.ndarray, " m"]]:
        """Scores (float64) and corpus rows of pairs of a query and a passage's column.

        A score is summed token by token in ascending order, independently of the other pairs.
        """
        scores, rows = np.empty(len(columns)), np.empty(len(columns), np.int64)
        if not len(columns):
            return scores, rows
        order = np.argsort(columns)  # neighbours have one length and lie together in memory

        def score(pairs: Int[np.ndarray, " n"]) -> None:
            ids, rows[pairs] = self._tokens(columns[pairs])
            for start in range(0, len(pairs), _PAIRS):
                some = slice(start, start + _PAIRS)
                scores[pairs[some]] = self._sums(query_of[pairs[some]], ids[:, some])

        threads = min(os.cpu_count() or 1, -(-len(order) // _PAIRS))
        if threads < 2:
            score(order)
        else:
            size = min(-(-len(order) // threads), _SLAB)
            slabs = [order[start : start + size] for start in range(0, len(order), size)]
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(score, slabs))
        return scores, rows

    def _tokens(self, columns: Int[np.ndarray, " n"]) -> tuple[np.ndarray, Int[np.ndarray, " n"]]:
        """Token ids [w n] of the passages in ascending columns, padded, and their corpus rows."""
        file_of, column = np.divmod(columns, self.span)
        cuts = [0, *(np.flatnonzero(np.diff(file_of)) + 1), len(columns)]
        ids, rows = [], np.empty(len(columns), np.int64)
        for start, stop in pairwise(cuts):
            file, some = self.files[int(file_of[start])], column[start:stop]
            ids.append(file.tokens(some))
            rows[start:stop] = file.first + file.order[some].astype(np.int64)
        padded = np.full((max(map(len, ids)), len(columns)), PAD, np.uint16)
        for (start, stop), some in zip(pairwise(cuts), ids, strict=True):
            padded[: len(some), start:stop] = some
        return padded, rows

    def _sums(self, query_of: Int[np.ndarray, " n"], ids: np.ndarray) -> Float[np.ndarray, " n"]:
        vocabulary = self.queries.shape[1] - 1
        at = query_of * (vocabulary + 1) + np.minimum(ids, vocabulary)
        return _sum(np.take(self.queries.reshape(-1), at, mode="clip"))

    @property
    def _starts(self) -> Int[np.ndarray, " p"]:
        return np.searchsorted(self.query_of, np.arange(len(self.queries) + 1))

    @property
    def kth(self) -> Float[np.ndarray, " q"]:
        """The k-th best score of each query, -inf where there are fewer."""
        starts = self._starts
        enough = np.diff(starts) == self.k
        kth = np.full(len(self.queries), -np.inf)
        kth[enough] = self.scores[starts[1:][enough] - 1]
        return kth

    def rankings(self) -> list[Ranking]:
        """The best passages of each query, with their scores."""
        return [
            Ranking(tuple(self.rows[a:b].tolist()), tuple(self.scores[a:b].tolist()))
            for a, b in pairwise(self._starts)
        ]


def _sum(weights: Float[np.ndarray, "w m"]) -> Float[np.ndarray, " m"]:
    """Sums of the columns in float64, from the first row to the last."""
    sums = np.zeros(weights.shape[1])
    for row in weights:  # NumPy's own sum adds in an order that depends on the shape
        sums += row
    return sums
