"""A retriever and a reranker as a method holds them: asked one query at a time.

Their requests are batched and stored as those of `jaxrag.steps.language_model_tool`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxrag.core.hashing import canonical
from jaxrag.engines.requests import Operation, Request, gather
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.steps.language_model_tool import decode_array, encode_array
from jaxrag.types import InputError, Passage, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages
    from jaxrag.retrieval.rerank import Reranker


class _Search(NamedTuple):
    text: str
    vector: np.ndarray


class RetrieverTool:
    """An index, asked one query at a time: with vectors and their encoder, or by text alone."""

    def __init__(self, retriever: Retriever | TextRetriever) -> None:
        self._retriever = retriever
        self._operation = functools.cache(self._make_operation)

    @property
    def corpus(self) -> Passages:
        """All passages that can be found."""
        return self._retriever.passages

    def embed(self, text: str) -> Request:
        """Awaits to the query embedding of ``text``, float32 [d].

        Raises:
          InputError: the index has no vectors.
        """
        return Request(self._embedding, text)

    async def search(self, text: str, k: int) -> Ranking:
        """The ``k`` best passages for ``text``."""
        if isinstance(self._retriever, TextRetriever):
            return await Request(self._operation(k), text)
        vector = await self.embed(text)
        return await Request(self._operation(k), _Search(text, vector))

    def vectors(self, rows: Sequence[int]) -> np.ndarray:
        """Stored embeddings of passages, float32 [n d].

        Raises:
          InputError: the index has no vectors.
        """
        return self._with_vectors().vectors(rows)

    def passages(self, rows: Sequence[int]) -> list[Passage]:
        """The passages at ``rows``."""
        return self._retriever.passages.get(rows)

    def _with_vectors(self) -> Retriever:
        if isinstance(self._retriever, TextRetriever):
            raise InputError(
                "This method works with vectors of passages (as select=AIS does), and the run's "
                "index has none, it ranks texts: choose one with an encoder, such as Exact or "
                "Scann, or a selector that does without, such as Top or Rerank."
            )
        return self._retriever

    @functools.cached_property
    def _embedding(self) -> Operation:
        retriever = self._with_vectors()
        return Operation(
            name="embed",
            identity=canonical({"encoder": retriever.encoder.identity}),
            run=lambda texts: list(retriever.embed(texts)),
            key=canonical,
            encode=encode_array,
            decode=decode_array,
            size=len,
        )

    def _make_operation(self, k: int) -> Operation:
        retriever = self._retriever
        if isinstance(retriever, TextRetriever):
            return self._search(k, lambda texts: retriever.search_texts(texts, k), canonical)
        return self._search(
            k,
            lambda asked: retriever.search(np.stack([one.vector for one in asked]), k),
            lambda one: canonical(one.text),
        )

    def _search(
        self, k: int, run: Callable[[list[Any]], list[Ranking]], key: Callable[[Any], str]
    ) -> Operation:
        return Operation(
            name="search",
            identity=canonical({"index": self._retriever.identity, "k": k}),
            run=run,
            key=key,
            encode=lambda ranking: canonical([ranking.ids, ranking.scores]).encode(),
            decode=lambda data: Ranking(*map(tuple, json.loads(data))),
            cost=lambda search, ranking: {"searches": 1},
            batch=1024,
        )


class RerankerTool:
    """A reranker, asked to score passages against one query."""

    def __init__(self, reranker: Reranker) -> None:
        self.identity = reranker.identity
        self._operation = Operation(
            name="rerank",
            identity=canonical({"reranker": reranker.identity}),
            run=lambda pairs: list(
                map(float, reranker.score([q for q, _ in pairs], [p for _, p in pairs]))
            ),
            key=canonical,
            encode=lambda score: canonical(score).encode(),
            decode=lambda data: float(json.loads(data)),
            cost=lambda pair, score: {"rerank_pairs": 1},
            size=lambda pair: len(pair[0]) + len(pair[1]),
            batch=256,
        )

    async def scores(self, query: str, passages: Sequence[Passage]) -> list[float]:
        """The reranker's score of each passage (title and text) for ``query``."""
        return await self.text_scores(
            query, [f"{p.title}. {p.text}" if p.title else p.text for p in passages]
        )

    async def text_scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """The reranker's score of each text for ``query``."""
        return await gather(*(Request(self._operation, (query, text)) for text in texts))
