"""Exact search: every passage is scored for every query, on one or several devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float

from jaxrag.core.hashing import canonical
from jaxrag.functional import topk
from jaxrag.models.checkpoint.files import short_name
from jaxrag.models.device_memory import Devices
from jaxrag.retrieval.corpus.builds import WHOLE, BuildPart
from jaxrag.retrieval.corpus.manifest import state_of
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.device_rows import (
    AXIS,
    DeviceRows,
    Slab,
    device_budget,
    fast_type,
    on_cpus,
    slab_bytes,
)
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.matrix import (
    KIND,
    Matrix,
    Metric,
    check_metric,
    open_matrix,
    rank,
    write_matrix,
)
from jaxrag.retrieval.retriever import QueryEncoder, Retriever, TextEncoder, check_queries
from jaxrag.retrieval.settings import Footprint, IndexStatus, index_directory
from jaxrag.types import InputError, Ranking

_BLOCKS = (1, 16, 128, 512)  # how many queries are searched together
_SPARE = 4  # candidates beyond k, to detect rounding at the k-th place
_SPARE_BFLOAT16 = 30
_FEW = 16  # fewer queries: reading the rows takes longest
_CHUNK = 1 << 24  # scores held at once by an accelerator
_CANDIDATES = 1 << 14  # most candidates of a query; among more near-ties float32 decides


class Errors(NamedTuple):
    """For each query: its norm, and the largest errors of scores in both passes."""

    norms: Float[np.ndarray, " q"]
    second: Float[np.ndarray, " q"]
    first: Float[np.ndarray, " q"]


class _Attempt(NamedTuple):
    """How candidates are searched: how many, and see `topk.candidates`."""

    wanted: int
    first_pass: Any
    whole: bool


class MatrixIndex:
    """What indexes of a matrix share."""

    matrix: Matrix
    encoder: QueryEncoder

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries, float32."""
        return self.encoder.embed(texts)

    def vectors(self, rows: Sequence[int]) -> Float[np.ndarray, "n d"]:
        """Stored vectors of passages, float32."""
        return self.matrix.stored(rows).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class ExactIndex(MatrixIndex):
    """A corpus's vectors on the devices, or read slab by slab from disk, searched in full.

    Scores are computed in float64 from the stored vectors and rounded to float32; see `search`.

    Attributes:
      first_pass: float type in which all rows are scored, before candidates are scored exactly.
      few_first_pass: the same for calls with few queries, in which reading the rows takes longest.
    """

    identity: str
    matrix: Matrix
    encoder: QueryEncoder
    passages: Passages
    metric: Metric
    rows: DeviceRows
    first_pass: Any
    few_first_pass: Any

    @classmethod
    def open(
        cls,
        directory: str | Path,
        encoder: QueryEncoder,
        passages: Passages,
        *,
        metric: Metric = "inner_product",
        devices: Sequence[Any] | None = None,
        memory: int | None = None,
        first_pass: Any = None,
        made_by: str | None = None,
        verify: bool | None = None,
    ) -> ExactIndex:
        """Loads the matrix of ``passages`` onto the devices if it fits; errors of `open_matrix`.

        Args:
          directory: see `open_matrix`, also of ``passages``, ``made_by`` and ``verify``.
          encoder: of queries.
          metric: how passages are scored; InputError for an unknown one.
          devices: over which rows are sharded; None: all of this process.
          memory: most bytes of all devices' memory for vectors; a larger matrix is read from disk
            at each search. None: see `device_budget`.
          first_pass: float type of the first pass, on which results do not depend; None: see
            `fast_type`.
        """
        check_metric(metric)
        matrix = open_matrix(directory, passages, encoder, made_by=made_by, verify=verify)
        mesh = Mesh(np.asarray(devices or jax.local_devices()), (AXIS,))
        rows = DeviceRows.place(matrix, mesh, distances=metric == "l2", budget=memory)
        identity = canonical({"exact": metric, "matrix": matrix.identity})
        few, many = (np.dtype(first_pass or fast_type(mesh, few=few)) for few in (True, False))
        return cls(identity, matrix, encoder, passages, metric, rows, many, few)

    def search(self, vectors: Float[np.ndarray, "q d"], k: int) -> list[Ranking]:
        """The ``k`` best passages of each query (all of them where ``k`` exceeds the corpus).

        The devices find a few more than ``k`` candidates, whose final scores `rank` computes. If a
        passage that is not among them might be better than the k-th best, as far as rounding goes,
        the query is searched again with more candidates. All queries are searched in one pass over
        the rows, so that a matrix on disk is read once. InputError for queries of the wrong shape
        or not finite, or ``k`` below 1.
        """
        queries = check_queries(vectors, k, self.matrix.dimension)
        k = min(k, len(self.matrix))
        first_pass = self.few_first_pass if len(queries) < _FEW else self.first_pass
        spare = _SPARE if first_pass == np.float32 else _SPARE_BFLOAT16
        attempt = _Attempt(min(k + spare, len(self.matrix)), first_pass, whole=False)
        return self._search(queries, k, attempt)

    def _search(
        self, queries: Float[np.ndarray, "q d"], k: int, attempt: _Attempt
    ) -> list[Ranking]:
        most = min(_CANDIDATES, len(self.matrix))
        rankings, sure = [], []
        for block, results in self._candidates(queries, attempt):
            errors = self._errors(block, attempt.first_pass)
            rough, last = results.best.scores, results.best.scores[:, -1]
            near = rough >= (rough[:, k - 1] - 2 * errors.second)[:, None]
            rows = results.best.rows[:, : max(near.sum(axis=1).max(), k)]  # others cannot be better
            ranked = rank(self.matrix, block, rows, metric=self.metric)
            rankings += ranked.rankings(k)
            sure.append(self._sure(errors, ranked.scores[:, k - 1], last, results.bound))
        unsure = np.flatnonzero(~np.concatenate([np.zeros(0, bool), *sure]))
        if unsure.size and not (attempt.whole and attempt.wanted >= most):
            wanted = min(8 * attempt.wanted, most) if attempt.whole else attempt.wanted
            again = attempt._replace(wanted=wanted, whole=True)
            for at, ranking in zip(unsure, self._search(queries[unsure], k, again), strict=True):
                rankings[at] = ranking
        return rankings

    def _candidates(
        self, queries: Float[np.ndarray, "q d"], attempt: _Attempt
    ) -> Iterator[tuple[Float[np.ndarray, "b d"], Any]]:
        """Blocks of queries with their candidates on the host, found in one pass over the rows."""
        starts = range(0, len(queries), _BLOCKS[-1])
        blocks = [queries[start : start + _BLOCKS[-1]] for start in starts]
        padded = [jnp.asarray(_padded(block)) for block in blocks]
        merged: list[topk.BoundedTopK] = []
        for slab in self.rows:
            new = [self._search_slab(slab, block, attempt) for block in padded]
            pairs = zip(merged, new, strict=True)
            k = attempt.wanted
            merged = [topk.merge_candidates(a, b, k=k) for a, b in pairs] if merged else new
            if not self.rows.resident:
                jax.block_until_ready(merged)  # the slab's memory is for the next but one
        for block, results in zip(blocks, merged, strict=True):
            count = len(block)
            yield block, jax.tree.map(lambda x: np.asarray(x)[:count], results)  # noqa: B023

    def _search_slab(
        self, slab: Slab, queries: Float[Array, "q d"], attempt: _Attempt
    ) -> topk.BoundedTopK:
        chunk = None if on_cpus(self.rows.mesh) else max(_CHUNK // len(queries), 1)
        return topk.sharded_search(
            slab.vectors,
            queries,
            slab.bias,
            k=attempt.wanted,
            mesh=self.rows.mesh,
            axis=AXIS,
            offset=slab.first,
            chunk=chunk,
            first_pass=attempt.first_pass,
            whole=attempt.whole,
        )

    def _sure(
        self,
        errors: Errors,
        kth: Float[np.ndarray, " q"],
        last: Float[np.ndarray, " q"],
        bound: Float[np.ndarray, " q"],
    ) -> Bool[np.ndarray, " q"]:
        """Whether no row that the devices left out can reach the k-th best score.

        ``last`` and ``bound``: the last candidate's score, and the most that another row has in the
        first pass.
        """
        kth = kth.astype(np.float64)
        if self.metric == "l2":  # the device computes <q, p> - |p|^2 / 2
            kth = (kth + errors.norms**2) / 2
        zero = (errors.norms == 0) & (self.metric != "l2")
        return ((last + errors.second < kth) & (bound + errors.first < kth)) | zero

    def _errors(self, queries: Float[np.ndarray, "q d"], first_pass: Any) -> Errors:
        """How far the devices' scores can be from the exact ones.

        The error of a float32 sum is at most (d + 2) 2^-24 times the sum of its terms' sizes; twice
        that is allowed for, and products too small for a float32 that is not subnormal. Rounding
        both factors to bfloat16 adds 2 * 2^-9 + 2^-18.
        """
        norms = np.linalg.norm(queries.astype(np.float64), axis=1)
        terms = norms * self.rows.longest
        if self.metric == "l2":
            terms = (norms + self.rows.longest) ** 2 / 2
        second = 2 * (self.matrix.dimension + 2) * (2.0**-24 * terms + 2.0**-126)
        rough = 0.0 if first_pass == np.float32 else (2.0**-8 + 2.0**-18) * terms
        return Errors(norms, second, second + rough)


def _padded(queries: Float[np.ndarray, "q d"]) -> Float[np.ndarray, "p d"]:
    """The queries with zeros up to the next block size, so that few programs serve all calls."""
    size = next(size for size in _BLOCKS if size >= len(queries))
    return np.pad(queries, ((0, size - len(queries)), (0, 0)))


class SearchedInFull:
    """An index that scores every passage for every query; its settings say with which encoder."""

    metric: Metric = "inner_product"
    memory_gb: float = 0.0

    gives_vectors = True

    @property
    def bi_encoder(self) -> BiEncoder:
        """The encoder of queries and passages."""
        raise NotImplementedError

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, encoding the corpus on first use."""
        directory, encoder = encode_corpus(self.bi_encoder, passages, cache)
        memory = memory_of(self.memory_gb)
        return ExactIndex.open(directory, encoder, passages, metric=self.metric, memory=memory)

    def build(self, passages: Passages, cache: Path, part: BuildPart) -> None:
        """Encodes the corpus, or one process's part of it."""
        encode_corpus(self.bi_encoder, passages, cache, part)

    def footprint(self, passages: Passages) -> Footprint:
        """Vectors in float16 on disk; on the devices within the memory for them."""
        return exact_footprint(len(passages) * self.bi_encoder.dimension, self.memory_gb)

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the vectors are there."""
        encoder = self.bi_encoder.describe()
        directory = index_directory(cache, encoder.identity, passages.identity)
        return IndexStatus(directory, state_of(directory, KIND, verify=False), encoder.dimension)


@dataclasses.dataclass(frozen=True)
class Exact(SearchedInFull):
    """Every passage is scored for every query.

    Attributes:
      encoder: of queries and passages.
      metric: how a passage is scored.
      memory_gb: most memory of all devices that vectors may take; more vectors are read from disk
        at each search, with the same results. 0: half of this machine's memory, or half of what is
        free on accelerators.
    """

    encoder: BiEncoder = BiEncoder()
    metric: Metric = "inner_product"
    memory_gb: float = 0.0

    @property
    def bi_encoder(self) -> BiEncoder:
        """The encoder."""
        return self.encoder

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Checkpoints of the encoder."""
        return self.encoder.checkpoints

    @property
    def name(self) -> str:
        """Encoder and kind of index, for tables."""
        return f"{short_name(self.encoder.checkpoint)}, exact"


def memory_of(gigabytes: float) -> int | None:
    """Bytes of a setting of memory, None for 0; InputError for a negative number."""
    if not 0 <= gigabytes < float("inf"):
        raise InputError(f"memory_gb is {gigabytes}; it must be a number of gigabytes from 0 up")
    return int(gigabytes * 1e9) or None


def exact_footprint(cells: int, memory_gb: float, devices: Devices | None = None) -> Footprint:
    """Bytes of an exact index of ``cells`` (rows x dimension) numbers, in float16 on disk.

    Beyond the budget, memory holds slabs only. ``devices``: by default those of this process.
    """
    devices = devices or Devices.of(jax.local_devices())
    budget = memory_of(memory_gb) or device_budget(devices)
    sizes = [size * cells for size in ((4, 2) if devices.cpu else (2,))]
    held = next((size for size in sizes if size <= budget), None)
    note = "" if held else "the vectors exceed the memory for them: each search reads them all"
    slabs = min(budget, slab_bytes(devices.count))
    return Footprint(disk=2 * cells, memory=held or slabs, note=note)


def encode_corpus(
    settings: BiEncoder, passages: Passages, cache: Path, part: BuildPart = WHOLE
) -> tuple[Path, TextEncoder]:
    """Encodes a corpus, or one process's part of it; the directory and the encoder."""
    encoder = settings.load()
    directory = index_directory(cache, encoder.identity, passages.identity)
    write_matrix(passages, encoder, directory, part=part)
    return directory, encoder
