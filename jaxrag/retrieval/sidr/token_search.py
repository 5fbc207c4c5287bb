"""Exact search of token sets: upper bounds on the devices, then float64 scores on the host.

The devices bound every passage's score and keep the best two of each block. The blocks with the
best bounds are scored, until no other block's bound reaches the k-th best score.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Float, Int, UInt8, UInt32

from jaxrag.functional import bag_of_tokens as kernel
from jaxrag.functional.bag_of_tokens import BLOCK, GROUP, LEVELS, Blocks, Part, Selected
from jaxrag.retrieval.retriever import check_queries
from jaxrag.retrieval.sidr.token_tiles import BestPassages, TokenFile, every_score
from jaxrag.types import InputError, Ranking

_SIZES = (1, 32, 64)  # queries of a table
_ALONE = 4  # up to so many queries are searched one by one
_FILES = 8  # most files whose blocks are kept at once by a thread
_MOST = 1 << 13  # most blocks of a query; with more ties every passage is scored
_ABOVE = 1 + 2.0**-40  # more than the rounding of bounds and scores in float64
_TINY = 1e-30  # queries with smaller weights are out of float32's range


@dataclasses.dataclass(frozen=True)
class TokenSearch:
    """Files of tiles on the devices.

    On one CPU device, ``parts`` are the memory-mapped files themselves; else one `Part` of all
    files, sharded over ``mesh``.
    """

    files: tuple[TokenFile, ...]
    mesh: Mesh
    parts: tuple[Part, ...]
    mapped: bool

    @classmethod
    def make(cls, files: tuple[TokenFile, ...], devices: Sequence[Any] | None) -> TokenSearch:
        """Puts the files on the devices, by default all of this process."""
        devices = list(devices or jax.local_devices())
        mesh = Mesh(np.asarray(devices), ("rows",))
        if len(devices) == 1 and devices[0].platform == "cpu":
            put = partial(jax.device_put, device=devices[0])  # no copy if aligned
            parts = tuple(Part(*map(put, _part(file))) for file in files)
            return cls(files, mesh, parts, mapped=True)
        return cls(files, mesh, (_shard(files, mesh),), mapped=False)

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """Threads that search; XLA and NumPy release the interpreter's lock."""
        return ThreadPoolExecutor(_threads())

    @property
    def span(self) -> int:
        """Columns of a file, padding included."""
        return self.files[0].tiles * self.files[0].tile

    def search(self, queries: Float[np.ndarray, "q v"], k: int) -> list[Ranking]:
        """The ``k`` best of each query; ``k`` is at most the number of passages."""
        rankings = []
        step = 1 if len(queries) <= _ALONE else _SIZES[-1]
        for start in range(0, len(queries), step):
            rankings += self._search(queries[start : start + step], k)
        return rankings

    def _search(self, queries: Float[np.ndarray, "q v"], k: int) -> list[Ranking]:
        largest = queries.max(axis=1).astype(np.float64)
        padded = np.pad(queries, ((0, 0), (0, 1)))
        done: dict[int, Ranking] = {}
        left = np.flatnonzero(largest >= _TINY)
        wanted = 2 * k + 32
        while left.size and wanted <= max(_MOST, 3 * k):
            selected = self._best_blocks(_table(queries[left], largest[left]), wanted + 1)
            selected = jax.tree.map(lambda x: np.asarray(x)[: left.size], selected)  # noqa: B023
            levels = (largest[left] / LEVELS * _ABOVE)[:, None]
            rankings, sure = self._resolve(padded[left], selected, levels, k)
            done |= {int(left[i]): rankings[i] for i in np.flatnonzero(sure)}
            left = left[~sure]
            wanted *= 8
        return [done.get(i) or self._search_all(padded[i], k) for i in range(len(queries))]

    def _best_blocks(self, table: UInt8[Any, "65536 ..."], wanted: int) -> Selected:
        """The ``wanted`` best blocks of each column of the table."""
        if not self.mapped:
            on_gpus = self.mesh.devices.flat[0].platform == "gpu"
            blocks = kernel.sharded_block_bounds(
                self.parts[0], table, mesh=self.mesh, axis="rows", at_once=on_gpus
            )
            return kernel.sharded_select(blocks, wanted=wanted, mesh=self.mesh, axis="rows")
        table = jax.device_put(table, self.mesh.devices[0])
        size = min(-(-len(self.parts) // (2 * _threads())), _FILES)

        def best(start: int) -> tuple[np.ndarray, np.ndarray]:
            blocks = [kernel.block_bounds(x, table) for x in self.parts[start : start + size]]
            packed, at = best_blocks(blocks, wanted)
            return packed, at + start * (self.span // BLOCK)

        # XLA's own threads wait for each other after every step over a tile; files need not wait.
        best_parts = self.pool.map(best, range(0, len(self.parts), size))
        packed, at = (np.concatenate(x, axis=1) for x in zip(*best_parts, strict=True))
        return selected(packed, at, wanted)

    def _resolve(
        self,
        queries: Float[np.ndarray, "q v"],
        selected: Any,
        levels: Float[np.ndarray, "q 1"],
        k: int,
    ) -> tuple[list[Ranking], Bool[np.ndarray, " q"]]:
        """The best of the selected blocks, and the queries that can have no better passage.

        The last selected block only serves as the bound of all other blocks.
        """
        columns = self._columns(selected.blocks[:, :-1], selected.lanes[:, :-1])
        bounds, seconds = selected.bounds * levels, selected.seconds * levels
        real = selected.blocks[:, :-1] >= 0
        early = real & (np.arange(columns.shape[1]) < k)
        best = BestPassages(self.files, queries, span=self.span, k=k)
        every = np.arange(len(queries))[:, None]
        best.add(every, columns, where=early)
        kth = best.kth[:, None]
        best.add(every, columns, where=real & ~early & (bounds[:, :-1] >= kth))
        kth = best.kth[:, None]
        second = real & (selected.seconds[:, :-1] >= 0) & (seconds[:, :-1] >= kth)
        of, at = np.nonzero(second)
        block, lane = (x[of, at][:, None] for x in (selected.blocks, selected.lanes))
        beside = self._columns(block, np.arange(BLOCK))
        counts = np.array([file.count for file in self.files])
        file, column = np.divmod(beside, self.span)  # padding holds no passage
        best.add(of[:, None], beside, where=(np.arange(BLOCK) != lane) & (column < counts[file]))
        rest = np.where(selected.blocks[:, -1] < 0, -np.inf, bounds[:, -1])
        return best.rankings(), rest < best.kth

    def _columns(
        self, blocks: Int[np.ndarray, "q m"], lanes: Int[np.ndarray, "*q m"]
    ) -> Int[np.ndarray, "q m"]:
        """Columns, counted over all files, of lanes of blocks."""
        apart = self.files[0].tile // BLOCK
        tile, rest = np.divmod(blocks.astype(np.int64), apart)
        return (tile * BLOCK + lanes) * apart + rest

    def _search_all(self, query: Float[np.ndarray, " v"], k: int) -> Ranking:
        """Scores every passage: for a query with very many ties."""
        if not query.any():
            return Ranking(tuple(range(k)), (0.0,) * k)
        best = np.empty(0), np.empty(0, np.int64)
        for file in self.files:
            scored = every_score(file, query)
            score, row = (np.concatenate(pair) for pair in zip(best, scored, strict=True))
            order = np.lexsort((row, -score))[:k]
            best = score[order], row[order]
        return Ranking(tuple(best[1].tolist()), tuple(best[0].tolist()))


def check_weights(
    queries: Float[np.ndarray, "q v"], k: int, vocabulary: int
) -> Float[np.ndarray, "q v"]:
    """The queries as float32; InputError for invalid queries or ``k``."""
    queries = check_queries(queries, k, vocabulary)
    if (queries < 0).any():
        bad = int(np.flatnonzero((queries < 0).any(axis=1))[0])
        raise InputError(
            f"query {bad} has a negative weight; token weights must be at least 0, as SiDR's are"
        )
    return queries


def _table(
    queries: Float[np.ndarray, "q v"], largest: Float[np.ndarray, " q"]
) -> UInt8[Any, "65536 ..."]:
    """The queries' levels, padded to the next size, so that few programs are compiled."""
    size = next(size for size in _SIZES if size >= len(queries))
    inverse = np.zeros(size, np.float32)
    reached = np.flatnonzero(largest >= _TINY)
    inverse[reached] = LEVELS / largest[reached]
    table = kernel.level_table(np.pad(queries, ((0, size - len(queries)), (0, 0))), inverse)
    return table[:, 0] if size == 1 else table


def best_blocks(
    parts: Sequence[Blocks], wanted: int
) -> tuple[UInt32[np.ndarray, "q m"], Int[np.ndarray, "q m"]]:
    """The ``wanted`` best blocks of each query, or all, and their numbers over all parts; unsorted.

    They are in the ``wanted`` groups of neighbours with the largest maxima.
    """
    blocks, maxima = (np.asarray(x) for x in kernel.grouped(*parts))
    groups = _largest(maxima, wanted)
    at = (groups[:, :, None] * GROUP + np.arange(GROUP)).reshape(len(groups), -1)
    packed = blocks[at, np.arange(len(at))[:, None]]
    best = _largest(packed, wanted)
    return np.take_along_axis(packed, best, axis=1), np.take_along_axis(at, best, axis=1)


def _largest(values: np.ndarray, count: int) -> Int[np.ndarray, "q m"]:
    """Columns of the ``count`` largest values of each row, or all; unsorted."""
    columns = values.shape[1]
    if columns <= count:
        return np.broadcast_to(np.arange(columns), values.shape)
    return np.argpartition(values, columns - count, axis=1)[:, columns - count :]


def selected(
    packed: UInt32[np.ndarray, "q m"], at: Int[np.ndarray, "q m"], wanted: int
) -> Selected:
    """The ``wanted`` best of these blocks of each query, best first."""
    order = np.argsort(packed, axis=1)[:, ::-1][:, :wanted]
    packed, at = (np.take_along_axis(x, order, axis=1) for x in (packed, at))
    short = ((0, 0), (0, wanted - packed.shape[1]))
    packed, at = np.pad(packed, short), np.pad(at, short)
    return kernel.unpack(packed, np.where(packed > 0, at, -1))


def _threads() -> int:
    return os.cpu_count() or 1


def _part(file: TokenFile) -> Part:
    arrays: Any = file.slots, file.starts, file.widths, np.asarray(file.count, np.int32)
    return Part(*arrays)


def _shard(files: Sequence[TokenFile], mesh: Mesh) -> Part:
    """All files as one `Part` [p ...]; each device reads its shard."""
    devices = mesh.devices.size
    number = -(-len(files) // devices) * devices
    height, tiles, tile = max(len(f.slots) for f in files), files[0].tiles, files[0].tile
    sharding = NamedSharding(mesh, P("rows"))

    def sharded(shape: tuple[int, ...], dtype: Any, array_of: Any) -> Any:
        def read(index: Any) -> np.ndarray:
            numbers = range(*index[0].indices(number))
            array = np.zeros((len(numbers), *shape), dtype)
            for place, at in enumerate(numbers):
                if at < len(files):
                    value = array_of(files[at])
                    array[(place, *map(slice, value.shape))] = value
            return array

        return jax.make_array_from_callback((number, *shape), sharding, read)

    return Part(
        sharded((height, tile), np.uint16, lambda file: file.slots),
        sharded((tiles,), np.int32, lambda file: file.starts),
        sharded((tiles,), np.int32, lambda file: file.widths),
        sharded((), np.int32, lambda file: np.asarray(file.count)),
    )
