"""What every index of jaxrag can do, and what every encoder must.

An index either has vectors, of queries and of passages (`Retriever`), or it ranks by the query's
text alone (`TextRetriever`). Methods reach both through `RetrieverTool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from jaxrag.types import Passage, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages


class TextEncoder(Protocol):
    """Turns queries and passages into vectors; a text's vector depends on nothing but the text."""

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

    def embed_passages(self, passages: Sequence[Passage]) -> Float[np.ndarray, "n d"]:
        """Vectors of passages, float32."""
        ...


class Retriever(Protocol):
    """An index over the vectors of a corpus.

    A query's ranking depends only on its own vector and ``k``, never on the other queries of the
    call; scores are comparable between queries, higher is better, ties are in the order of rows.
    """

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines results: encoder, vectors, metric, settings."""
        ...

    @property
    def encoder(self) -> TextEncoder:
        """What makes the vectors of queries."""
        ...

    @property
    def passages(self) -> Passages:
        """The corpus; a ranking's ids are its rows."""
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
class TextRetriever(Protocol):
    """An index over a corpus that is asked with texts and has no vectors, such as BM25.

    A query's ranking depends only on its own text and ``k``, never on the other queries of the
    call; higher scores are better, ties are in the order of rows. Scores of different queries
    need not be comparable.
    """

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines results: corpus, settings, ..."""
        ...

    @property
    def passages(self) -> Passages:
        """The corpus; a ranking's ids are its rows."""
        ...

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        """The ``k`` best passages for each query (all of them where ``k`` exceeds the corpus)."""
        ...
