"""Exact search of sparse vectors: candidates by the devices, scores and proof in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Float, Int, UInt16

from jaxrag.functional import sparse
from jaxrag.retrieval.rescoring import RankedRows
from jaxrag.types import Ranking

_BLOCK = 32  # queries searched together
_SPARE = 4  # candidates beyond k, so that rounding at the k-th place can be told
_MOST = 1 << 13  # candidates of a query; among more near-equals every passage is scored
_CELLS = 1 << 20  # entries scored at once in float64


@dataclasses.dataclass(frozen=True)
class SparseSearch:
    """Rows of ``length`` ids and values on the devices.

    ``held`` are, on one CPU device, the mapped files themselves; else one array of all rows, spread
    over ``mesh``.
    """

    files: tuple[np.ndarray, ...]
    length: int
    mesh: Mesh
    held: tuple[Any, ...]
    mapped: bool

    @classmethod
    def of(
        cls, files: tuple[np.ndarray, ...], length: int, devices: Sequence[Any] | None
    ) -> SparseSearch:
        """Puts the files on the devices, by default all of this process."""
        devices = list(devices or jax.local_devices())
        mesh = Mesh(np.asarray(devices), ("rows",))
        mapped = len(devices) == 1 and devices[0].platform == "cpu"
        if mapped:  # a map that is aligned is not copied
            held = tuple(jax.device_put(file, devices[0]) for file in files)
        else:
            held = (_spread(files, mesh),)
        return cls(files, length, mesh, held, mapped)

    def __len__(self) -> int:
        return sum(map(len, self.files))

    def search(self, queries: Float[np.ndarray, "q v"], k: int) -> list[Ranking]:
        """The ``k`` best of each query; ``k`` is at most the number of passages."""
        padded = np.pad(queries, ((0, 0), (0, 1)))
        rankings = []
        for start in range(0, len(queries), _BLOCK):
            rankings += self._search(padded[start : start + _BLOCK], k, k + _SPARE)
        return rankings

    def _search(self, queries: Float[np.ndarray, "q w"], k: int, wanted: int) -> list[Ranking]:
        if wanted > max(_MOST, 2 * k):
            return [self._everything(query[None], k) for query in queries]
        candidates, last = self._candidates(queries, min(wanted, len(self)))
        ranked = self._rank(queries, candidates)
        best = ranked.rankings(k)
        if wanted < len(self):
            unsure = np.flatnonzero(~(self._most(last) < ranked.scores[:, k - 1]))
            again = self._search(queries[unsure], k, 8 * wanted) if unsure.size else []
            for at, ranking in zip(unsure, again, strict=True):
                best[at] = ranking
        return best

    def _most(self, score: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
        """What a passage's exact score can be at most whose float32 score is this.

        Terms are not negative, so a sum of l products is off by less than (l + 2) units in its last
        place, twice that is allowed; and each product may have vanished below 1e-37.
        """
        length = self.length
        return score.astype(np.float64) * (1 + 2 * (length + 2) * 2.0**-24) + length * 1e-37

    def _candidates(
        self, queries: Float[np.ndarray, "q w"], wanted: int
    ) -> tuple[Int[np.ndarray, "q m"], Float[np.ndarray, " q"]]:
        """The devices' best rows, and the score of the last."""
        size = 1 if len(queries) == 1 else _BLOCK
        table = sparse.weight_table(np.pad(queries[:, :-1], ((0, size - len(queries)), (0, 0))))
        if not self.mapped:
            found = [
                sparse.sharded_search(
                    self.held[0], table, k=wanted, count=len(self), mesh=self.mesh, axis="rows"
                )
            ]
        else:
            table, first = jax.device_put(table, self.mesh.devices[0]), 0
            found = []
            for part in self.held:
                count = min(len(part), len(self) - first)
                found.append(sparse.search(part, table, k=wanted, count=count, offset=first))
                first += len(part)
        scores, rows = (np.concatenate(x, axis=1)[: len(queries)] for x in zip(*found, strict=True))
        order = np.argsort(-scores, axis=1, kind="stable")[:, :wanted]
        rows, scores = (np.take_along_axis(x, order, axis=1) for x in (rows, scores))
        return rows, scores[:, -1]

    def _rank(
        self, queries: Float[np.ndarray, "q w"], candidates: Int[np.ndarray, "q m"]
    ) -> RankedRows:
        """Scores in float64, entry by entry, and sorts."""
        scores = np.empty(candidates.shape)
        length = self.length
        step = max(1, _CELLS // length)
        for query, rows, into in zip(queries, candidates, scores, strict=True):
            for start in range(0, len(rows), step):
                entries = self.entries(rows[start : start + step])
                weights = query[np.minimum(entries[:, :length], len(query) - 1)].astype(np.float64)
                products = weights * entries[:, length:].view(np.float16)
                # column by column: NumPy's own sum adds in an order that depends on the shape
                into[start : start + step] = sum(products.T, np.zeros(len(entries)))
        order = np.lexsort((candidates, -scores), axis=1)
        return RankedRows(*(np.take_along_axis(x, order, axis=1) for x in (candidates, scores)))

    def entries(self, rows: Int[np.ndarray, " m"]) -> UInt16[np.ndarray, "m 2*l"]:
        """What is stored of some rows: ids, then the bits of values."""
        file_of, at = np.divmod(rows, len(self.files[0]))
        entries = np.empty((len(rows), self.files[0].shape[1]), np.uint16)
        for file in np.unique(file_of):
            here = file_of == file
            entries[here] = self.files[file][at[here]]
        return entries

    def _everything(self, query: Float[np.ndarray, "1 w"], k: int) -> Ranking:
        """Every passage scored: for a query with very many ties."""
        if not query.any():
            return Ranking(tuple(range(k)), (0.0,) * k)
        best = np.empty((1, 0), np.int64)
        for start in range(0, len(self), _MOST):
            rows = np.arange(start, min(start + _MOST, len(self)))[None]
            best = self._rank(query, np.concatenate([best, rows], axis=1)).rows[:, :k]
        return self._rank(query, best).rankings(k)[0]


def _spread(files: Sequence[np.ndarray], mesh: Mesh) -> Any:
    """All rows over the devices, each of which reads its own; rows of zeros at the end."""
    count, devices = sum(map(len, files)), mesh.devices.size
    shape = (-(-count // devices) * devices, files[0].shape[1])
    shard_rows = len(files[0])

    def rows(index: Any) -> np.ndarray:
        wanted = range(*index[0].indices(shape[0]))
        held = np.zeros((len(wanted), shape[1]), np.uint16)
        for number, file in enumerate(files):
            first = number * shard_rows
            start, stop = max(wanted.start, first), min(wanted.stop, first + len(file))
            if start < stop:
                held[start - wanted.start : stop - wanted.start] = file[
                    start - first : stop - first
                ]
        return held

    return jax.make_array_from_callback(shape, NamedSharding(mesh, P("rows")), rows)
