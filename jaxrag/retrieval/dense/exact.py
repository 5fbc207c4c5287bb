"""Exact search: every passage is scored for every query, on one or several devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float

from jaxrag.core.hashing import canonical
from jaxrag.functional import topk
from jaxrag.models.checkpoint.files import short_name
from jaxrag.retrieval.corpus.builds import WHOLE, BuildPart
from jaxrag.retrieval.corpus.manifest import state_of
from jaxrag.retrieval.corpus.passages import Passages
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
from jaxrag.retrieval.retriever import Retriever, TextEncoder, check_queries
from jaxrag.retrieval.settings import Footprint, IndexStatus, index_directory
from jaxrag.types import Ranking

_BLOCKS = (1, 16, 128)  # how many queries are searched together
_SPARE = 4  # candidates beyond k, to detect rounding at the k-th place
_CANDIDATES = 1 << 14  # most candidates of a query; among more near-ties float32 decides


@dataclasses.dataclass(frozen=True)
class ExactIndex:
    """A corpus's vectors in float32 on the devices, searched in full.

    Scores are computed in float64 from the stored vectors and rounded to float32; see `search`.
    """

    identity: str
    matrix: Matrix
    encoder: TextEncoder
    passages: Passages
    metric: Metric
    mesh: Mesh
    device_matrix: Float[Array, "n d"]
    bias: Float[Array, " n"]
    longest: float
    """The largest norm of a passage's vector."""

    @classmethod
    def open(
        cls,
        directory: str | Path,
        encoder: TextEncoder,
        passages: Passages,
        *,
        metric: Metric = "inner_product",
        devices: Sequence[Any] | None = None,
        verify: bool | None = None,
    ) -> ExactIndex:
        """Loads the matrix that ``encoder`` made of ``passages`` onto the devices.

        Rows are sharded over the JAX ``devices``, by default all of this process.

        Raises:
          InputError: an unknown metric; see `open_matrix`.
        """
        check_metric(metric)
        matrix = open_matrix(directory, passages, encoder, verify=verify)
        mesh = Mesh(np.asarray(devices or jax.local_devices()), ("rows",))
        held, bias = topk.shard_rows(matrix, mesh, "rows")  # pyright: ignore[reportArgumentType]
        half_norms = topk.l2_bias(held)
        longest = float((-2 * half_norms.min()) ** 0.5)
        if metric == "l2":
            bias += half_norms
        identity = canonical({"exact": metric, "matrix": matrix.identity})
        return cls(identity, matrix, encoder, passages, metric, mesh, held, bias, longest)

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries, float32."""
        return self.encoder.embed(texts)

    def vectors(self, rows: Sequence[int]) -> Float[np.ndarray, "n d"]:
        """Stored vectors of passages, float32."""
        return self.matrix.stored(rows).astype(np.float32)

    def search(self, vectors: Float[np.ndarray, "q d"], k: int) -> list[Ranking]:
        """The ``k`` best passages of each query (all of them where ``k`` exceeds the corpus).

        The devices find a few more than ``k`` candidates in float32, whose final scores `rank`
        computes. If the last candidate is so close to the k-th best that float32 might have missed
        a better one, the query is searched again with more candidates.

        Raises:
          InputError: queries of the wrong shape or not finite, or ``k`` below 1.
        """
        queries = check_queries(vectors, k, self.matrix.dimension)
        k = min(k, len(self.matrix))
        return self._search(queries, k, min(k + _SPARE, len(self.matrix)))

    def _search(self, queries: Float[np.ndarray, "q d"], k: int, wanted: int) -> list[Ranking]:
        rankings, most = [], min(_CANDIDATES, len(self.matrix))
        for start in range(0, len(queries), _BLOCKS[-1]):
            block = queries[start : start + _BLOCKS[-1]]
            found = topk.sharded_search(
                self.device_matrix, _padded(block), self.bias, k=wanted, mesh=self.mesh, axis="rows"
            )
            candidates, last = np.asarray(found.rows), np.asarray(found.scores)[:, -1]
            ranked = rank(self.matrix, block, candidates[: len(block)], metric=self.metric)
            best = ranked.rankings(k)
            if wanted < most:
                sure = self._sure(block, ranked.scores[:, k - 1], last[: len(block)])
                unsure = np.flatnonzero(~sure)
                more = self._search(block[unsure], k, min(8 * wanted, most))
                for at, ranking in zip(unsure, more, strict=True):
                    best[at] = ranking
            rankings += best
        return rankings

    def _sure(
        self,
        queries: Float[np.ndarray, "q d"],
        kth: Float[np.ndarray, " q"],
        last: Float[np.ndarray, " q"],
    ) -> Bool[np.ndarray, " q"]:
        """Whether no row that the device left out can reach the k-th best score.

        ``last`` is the device's score of the last candidate. The error of a float32 sum is at most
        (d + 2) 2^-24 times the sum of its terms' sizes; twice that is allowed for.
        """
        norms = np.linalg.norm(queries.astype(np.float64), axis=1)
        kth, terms = kth.astype(np.float64), norms * self.longest
        if self.metric == "l2":  # the device computes <q, p> - |p|^2 / 2
            kth, terms = (kth + norms**2) / 2, (norms + self.longest) ** 2 / 2
        error = 2 * 2.0**-24 * (self.matrix.dimension + 2) * terms
        return (last + error < kth) | (norms == 0)


def _padded(queries: Float[np.ndarray, "q d"]) -> Float[np.ndarray, "p d"]:
    """The queries with zeros up to the next block size, so that few programs serve all calls."""
    size = next(size for size in _BLOCKS if size >= len(queries))
    return np.pad(queries, ((0, size - len(queries)), (0, 0)))


@dataclasses.dataclass(frozen=True)
class Exact:
    """Every passage is scored for every query; vectors stay on the devices."""

    encoder: BiEncoder = BiEncoder()
    metric: Metric = "inner_product"

    gives_vectors = True

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Checkpoints of the encoder."""
        return self.encoder.checkpoints

    @property
    def name(self) -> str:
        """Encoder and kind of index, for tables."""
        return f"{short_name(self.encoder.checkpoint)}, exact"

    def open(self, passages: Passages, cache: Path) -> Retriever:
        """Opens the index, encoding the corpus on first use."""
        directory, encoder = encoded_corpus(self.encoder, passages, cache)
        return ExactIndex.open(directory, encoder, passages, metric=self.metric)

    def build(self, passages: Passages, cache: Path, part: BuildPart) -> None:
        """Encodes the corpus, or one process's part of it."""
        encode_corpus(self.encoder, passages, cache, part)

    def footprint(self, passages: Passages) -> Footprint:
        """Vectors in float16 on disk and in float32 on the devices."""
        cells = len(passages) * self.encoder.describe().dimension
        return Footprint(disk=2 * cells, memory=4 * cells)

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the vectors are there."""
        encoder = self.encoder.describe()
        directory = index_directory(cache, encoder.identity, passages.identity)
        return IndexStatus(directory, state_of(directory, KIND, verify=False), encoder.dimension)


def encoded_corpus(
    settings: BiEncoder, passages: Passages, cache: Path
) -> tuple[Path, TextEncoder]:
    """The directory of a corpus's vectors, encoded on first use, and their encoder."""
    return encode_corpus(settings, passages, cache, WHOLE)


def encode_corpus(
    settings: BiEncoder, passages: Passages, cache: Path, part: BuildPart
) -> tuple[Path, TextEncoder]:
    """Encodes a corpus, or one process's part of it; the directory and the encoder."""
    encoder = settings.load()
    directory = index_directory(cache, encoder.identity, passages.identity)
    write_matrix(passages, encoder, directory, part=part)
    return directory, encoder
