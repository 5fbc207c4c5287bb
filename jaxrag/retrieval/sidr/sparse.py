"""The index E(D) of SiDR: every passage as its few hundred largest weights over the vocabulary.

Rows of token ids (uint16) and values (float16), 4 bytes an entry: 3 KB a passage with SiDR's 768,
so 64 GB for 21 million. Searched with E(q) it is SiDR's parametric search, with T(q) its alpha
search. Devices find candidates in float32; their scores are computed in float64, and a query is
searched again for more candidates until no other passage can reach its k-th best.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, UInt16

from jaxrag.core.hashing import canonical
from jaxrag.functional import sparse
from jaxrag.retrieval.corpus.builds import WHOLE, BuildPart, ShardedRows, build_arrays, encoded_rows
from jaxrag.retrieval.corpus.manifest import Manifest, open_manifest, source_of
from jaxrag.retrieval.retriever import RankedRows
from jaxrag.retrieval.sidr.token_search import check_weights
from jaxrag.types import InputError, Passage, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

KIND = "sparse"
Encode = Callable[
    [Iterable[Passage]],
    Iterator[tuple[UInt16[np.ndarray, "n l"], Float[np.ndarray, "n l"]]],
]
"""Maps passages, read lazily, to token ids and weights, in any order, in blocks of passages.

Entries with weight 0 are padding.
"""

_BLOCK = 32  # queries searched together
_SPARE = 4  # candidates beyond k, to detect rounding at the k-th place
_MOST = 1 << 13  # candidates of a query; with more near-ties every passage is scored
_CELLS = 1 << 20  # entries scored at once in float64


@dataclasses.dataclass(frozen=True)
class SparseIndex:
    """The sparse vectors of a corpus, on disk (``rows``) and sharded over a mesh (``entries``)."""

    identity: str
    manifest: Manifest
    rows: ShardedRows
    mesh: Mesh
    entries: UInt16[Array, "n 2*l"]

    @classmethod
    def open(
        cls,
        directory: str | Path,
        passages: Passages,
        encoder: str,
        *,
        devices: Sequence[Any] | None = None,
        verify: bool | None = None,
    ) -> SparseIndex:
        """Opens the index of `write_sparse` for a corpus and an ``encoder`` (its identity).

        The JAX ``devices`` search, by default all of this process. ``verify`` compares the hashes
        of all files; None does so up to 1 GiB. InputError if it is missing, incomplete, damaged, or
        made from something else.
        """
        directory = Path(directory).absolute()
        source = source_of(passages, encoder=encoder)
        manifest = open_manifest(directory, KIND, source, verify=verify)
        rows = ShardedRows.open(directory, manifest)
        mesh = Mesh(np.asarray(devices or jax.local_devices()), ("rows",))
        identity = {
            "sparse": source["encoder"],
            "passages": passages.identity,
            "content": manifest.content,
        }
        return cls(canonical(identity), manifest, rows, mesh, _shard(rows, mesh))

    def __len__(self) -> int:
        return self.manifest.settings["passages"]["count"]

    @property
    def vocabulary(self) -> int:
        """Dimension of a query's vector."""
        return self.manifest.settings["vocabulary"]

    @property
    def length(self) -> int:
        """Stored entries per passage."""
        return self.manifest.settings["length"]

    def vectors(
        self, rows: Sequence[int] | np.ndarray
    ) -> tuple[UInt16[np.ndarray, "n l"], Float[np.ndarray, "n l"]]:
        """Token ids and values (float16) of the given rows; entries with value 0 are padding."""
        ids, bits = np.split(self.rows.take(rows), 2, axis=1)
        return ids, bits.view(np.float16)

    def search(self, queries: Float[np.ndarray, "q v"], k: int) -> list[Ranking]:
        """The ``k`` best passages of each query (all of them where ``k`` exceeds the corpus).

        A score is the inner product with the stored values, summed in float64 in the order of a
        passage's entries; passages are ordered by it, equal ones by row. InputError for queries of
        the wrong shape, not finite or negative, or ``k`` below 1.
        """
        queries, k = check_weights(queries, k, self.vocabulary), min(k, len(self))
        padded = np.pad(queries, ((0, 0), (0, 1)))
        rankings = []
        for start in range(0, len(queries), _BLOCK):
            rankings += self._search(padded[start : start + _BLOCK], k, k + _SPARE)
        return rankings

    def _search(self, queries: Float[np.ndarray, "q w"], k: int, wanted: int) -> list[Ranking]:
        if wanted > max(_MOST, 2 * k):
            return [self._search_all(query[None], k) for query in queries]
        candidates, last = self._candidates(queries, min(wanted, len(self)))
        ranked = self._rank(queries, candidates)
        best = ranked.rankings(k)
        if wanted < len(self):
            unsure = np.flatnonzero(self._upper_bound(last) >= ranked.scores[:, k - 1])
            again = self._search(queries[unsure], k, 8 * wanted) if unsure.size else []
            for at, ranking in zip(unsure, again, strict=True):
                best[at] = ranking
        return best

    def _upper_bound(self, score: Float[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
        """Upper bound of a passage's float64 score, given its float32 score.

        Terms are not negative, so the relative error of a sum of l products is below (l + 2) 2^-24,
        of which twice is allowed for; and each product may have underflowed below 1e-37.
        """
        error = 2 * (self.length + 2) * 2.0**-24
        return score.astype(np.float64) * (1 + error) + self.length * 1e-37

    def _candidates(
        self, queries: Float[np.ndarray, "q w"], wanted: int
    ) -> tuple[Int[np.ndarray, "q m"], Float[np.ndarray, " q"]]:
        """The devices' best rows, and the score of the last."""
        size = 1 if len(queries) == 1 else _BLOCK
        table = sparse.weight_table(np.pad(queries[:, :-1], ((0, size - len(queries)), (0, 0))))
        arguments = {"k": wanted, "count": len(self), "mesh": self.mesh, "axis": "rows"}
        results = sparse.sharded_search(self.entries, table, **arguments)
        scores, rows = (np.asarray(x)[: len(queries)] for x in results)
        return rows, scores[:, -1]

    def _rank(
        self, queries: Float[np.ndarray, "q w"], candidates: Int[np.ndarray, "q m"]
    ) -> RankedRows:
        """Scores candidates in float64, entry by entry, and sorts them."""
        scores = np.empty(candidates.shape)
        step = max(1, _CELLS // self.length)
        for query, rows, into in zip(queries, candidates, scores, strict=True):
            for start in range(0, len(rows), step):
                ids, values = self.vectors(rows[start : start + step])
                products = query[np.minimum(ids, len(query) - 1)].astype(np.float64) * values
                # column by column: NumPy's own sum adds in an order that depends on the shape
                into[start : start + step] = sum(products.T, np.zeros(len(ids)))
        order = np.lexsort((candidates, -scores), axis=1)
        return RankedRows(*(np.take_along_axis(x, order, axis=1) for x in (candidates, scores)))

    def _search_all(self, query: Float[np.ndarray, "1 w"], k: int) -> Ranking:
        """Scores every passage: for a query with very many ties."""
        if not query.any():
            return Ranking(tuple(range(k)), (0.0,) * k)
        best = np.empty((1, 0), np.int64)
        for start in range(0, len(self), _MOST):
            rows = np.arange(start, min(start + _MOST, len(self)))[None]
            best = self._rank(query, np.concatenate([best, rows], axis=1)).rows[:, :k]
        return self._rank(query, best).rankings(k)[0]


def _shard(rows: ShardedRows, mesh: Mesh) -> Any:
    """All rows over the devices, each of which reads its own; rows of zeros at the end."""
    count, devices = len(rows), mesh.devices.size
    shape = (-(-count // devices) * devices, rows.files[0].shape[1])

    def read(index: Any) -> np.ndarray:
        start, stop, _ = index[0].indices(shape[0])
        part = np.zeros((stop - start, shape[1]), np.uint16)
        for first in range(start, min(stop, count), _MOST):
            some = rows.take(range(first, min(first + _MOST, stop, count)))
            part[first - start : first - start + len(some)] = some
        return part

    return jax.make_array_from_callback(shape, NamedSharding(mesh, P("rows")), read)


def write_sparse(
    passages: Passages,
    encode: Encode,
    identity: str,
    directory: str | Path,
    *,
    vocabulary: int,
    length: int = 768,
    shard_rows: int = 1 << 16,
    part: BuildPart = WHOLE,
) -> None:
    """Encodes a corpus into a sparse index on disk, or finishes an interrupted build.

    ``identity`` is canonical JSON of all that determines the results of ``encode``, whose ids are
    below ``vocabulary``, at most 65,535. A passage has ``length`` entries, a file ``shard_rows``
    rows; ``part`` is what this process builds. InputError for an empty corpus, invalid entries, a
    directory that holds another index, or a full disk.
    """
    if not 1 <= vocabulary < 1 << 16:
        raise InputError(f"vocabulary is {vocabulary:,}; ids of 16 bits allow 1 to 65,535")
    layout = {"vocabulary": vocabulary, "length": length, "shard_rows": shard_rows}
    finish = functools.partial(_entries, passages, vocabulary=vocabulary, length=length)
    build_arrays(
        Path(directory).absolute(),
        source_of(passages, encoder=identity) | layout,
        encoded_rows(passages, encode, finish),
        width=2 * length,
        dtype="uint16",
        kind=KIND,
        stem="entries",
        label="encoding passages",
        part=part,
    )


def _entries(
    passages: Passages,
    encoded: tuple[np.ndarray, np.ndarray],
    rows: Sequence[int] | np.ndarray,
    *,
    vocabulary: int,
    length: int,
) -> UInt16[np.ndarray, "n 2*l"]:
    """Stored rows of ids and weights; ``rows`` are their numbers."""
    ids, weights = map(np.asarray, encoded)
    shape = (len(rows), length)
    if ids.shape != shape or weights.shape != shape:
        raise InputError(
            f"the encoder gave ids of shape {ids.shape} and weights of shape {weights.shape} "
            f"instead of {shape}"
        )
    with np.errstate(over="ignore"):
        stored = weights.astype(np.float16)
    good = np.isfinite(stored) & (stored >= 0) & ((stored == 0) | (ids < vocabulary))
    good &= (ids >= 0) & (ids < 1 << 16)
    if not good.all():
        row = int(rows[int(np.flatnonzero(~good.all(axis=1))[0])])
        raise InputError(
            f"passage {passages[row].id!r} (row {row}) has a weight that is negative or not finite "
            f"in float16, or a token id beyond the vocabulary of {vocabulary:,}; check the encoder"
        )
    return np.concatenate([ids.astype(np.uint16), stored.view(np.uint16)], axis=1)
