"""Protocols of indexes and encoders.

An index either searches with vectors (`Retriever`) or with the query's text (`TextRetriever`).
Methods use both through `jaxrag.steps.tools.RetrieverTool`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from jaxrag.core.checks import check_limits
from jaxrag.types import InputError, Passage, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages


class QueryEncoder(Protocol):
    """Embeds queries; a text's vector depends on nothing but the text."""

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines the vectors: weights, pooling, prefixes, ..."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries, float32."""
        ...


class TextEncoder(QueryEncoder, Protocol):
    """Embeds queries and passages."""

    def stream_passages(self, passages: Iterable[Passage]) -> Iterator[Float[np.ndarray, "n d"]]:
        """Vectors of passages, float32, as blocks of rows in their order.

        Passages are read ahead, and vectors given while further ones are computed.
        """
        ...


class PassageIndex(Protocol):
    """An index of a corpus."""

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines results: corpus, encoder, settings, ..."""
        ...

    @property
    def passages(self) -> Passages:
        """The corpus; a ranking's ids are its rows."""
        ...


class Retriever(PassageIndex, Protocol):
    """An index over the vectors of a corpus.

    A query's ranking depends only on its own vector and ``k``, never on the other queries of the
    call; scores are comparable between queries, higher is better, ties are in the order of rows.
    """

    @property
    def encoder(self) -> QueryEncoder:
        """Encoder of queries."""
        ...

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries, float32."""
        ...

    def search(self, vectors: Float[np.ndarray, "q d"], k: int) -> list[Ranking]:
        """The ``k`` best passages for each query (all of them where ``k`` exceeds the corpus)."""
        ...

    def vectors(self, rows: Sequence[int]) -> Float[np.ndarray, "n d"]:
        """Stored vectors of passages, float32."""
        ...


@runtime_checkable
class TextRetriever(PassageIndex, Protocol):
    """An index that is searched with texts and has no vectors, such as BM25.

    A query's ranking depends only on its own text and ``k``, never on the other queries of the
    call; higher scores are better, ties are in the order of rows. Scores of different queries
    need not be comparable.
    """

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        """The ``k`` best passages for each query (all of them where ``k`` exceeds the corpus)."""
        ...


class RankedRows(NamedTuple):
    """Rows and scores of each query, best first; -1 and -inf fill up where fewer were found."""

    rows: Int[np.ndarray, "q m"]
    scores: Float[np.ndarray, "q m"]

    def rankings(self, k: int) -> list[Ranking]:
        """The ``k`` best of each query."""
        counts = (self.rows[:, :k] >= 0).sum(axis=1).tolist()
        pairs = zip(self.rows[:, :k].tolist(), self.scores[:, :k].tolist(), counts, strict=True)
        return [Ranking(tuple(rows[:n]), tuple(scores[:n])) for rows, scores, n in pairs]


def check_queries(vectors: Float[np.ndarray, "q d"], k: int, dimension: int) -> np.ndarray:
    """The queries as float32 [q d]; InputError if misshapen or not finite, or ``k`` is below 1."""
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise InputError(
            f"queries must have shape [q, {dimension}], as the index has; got {vectors.shape}"
        )
    if not np.isfinite(vectors).all():
        bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise InputError(f"query {bad} has a number that is not finite; check its encoder")
    check_limits(k=k)
    return vectors
