"""What a method holds: a language model, a retriever and a reranker, one request at a time.

Each tool turns a call for one question into a `Request`, which the scheduler batches with those
of the other questions and answers from the store where it can.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int

from jaxrag.engines.language_model import LanguageModel, StreamingModel
from jaxrag.engines.prompts import PromptEncoder, encoder_of
from jaxrag.engines.requests import Operation, Request, gather
from jaxrag.engines.store import canonical
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.types import Generation, InputError, Passage, Prompt, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.rerank import Reranker


class LanguageModelTool:
    """A language model, asked one prompt at a time."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._operation = functools.cache(self._make_operation)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int = 0,
    ) -> Request:
        """Awaits to the prompt's `Generation`."""
        return Request(self._operation(max_new_tokens, temperature, tuple(stop), seed), prompt)

    def logprob(self, prompt: Prompt, continuation: str) -> Request:
        """Awaits to the log-probability of each token of ``continuation``, float32 [t]."""
        return Request(self._scoring, (prompt, continuation))

    def room(self, prompt: Prompt, *, max_new_tokens: int) -> int:
        """Tokens left in the model beside a prompt and its answer; below 0, how many are too many.

        It is at hand at once: nothing is awaited, computed or stored.

        Raises:
          InputError: the model does not tell its tokenizer and its most tokens (some servers), or
            the prompt is none for it.
        """
        if self._encoder is None:
            raise InputError("The model does not tell its tokenizer and its most tokens.")
        return self._encoder.left(prompt, room=max_new_tokens)

    @functools.cached_property
    def _encoder(self) -> PromptEncoder | None:
        return encoder_of(self._model)

    def _make_operation(
        self, max_new_tokens: int, temperature: float, stop: tuple[str, ...], seed: int
    ) -> Operation:
        settings: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "stop": stop,
            "seed": seed,
        }
        return Operation(
            name="generate",
            identity=canonical({"model": self._model.identity, **settings}),
            run=lambda prompts: self._model.generate(prompts, **settings),
            key=canonical,
            encode=_encode_generation,
            decode=_decode_generation,
            cost=lambda prompt, generation: {
                "llm_calls": 1,
                "prompt_tokens": generation.prompt_tokens,
                "new_tokens": len(generation.tokens),
            },
            size=_prompt_size,
            submit=functools.partial(self._model.submit, **settings)
            if isinstance(self._model, StreamingModel)
            else None,
        )

    @functools.cached_property
    def _scoring(self) -> Operation:
        return Operation(
            name="logprob",
            identity=canonical({"model": self._model.identity}),
            run=lambda pairs: self._model.logprob([p for p, _ in pairs], [c for _, c in pairs]),
            key=canonical,
            encode=_encode_array,
            decode=_decode_array,
            cost=lambda pair, array: {"llm_scores": 1, "scored_tokens": len(array)},
            size=lambda pair: _prompt_size(pair[0]) + len(pair[1]),
            submit=(lambda pair: model.submit_logprob(*pair))
            if isinstance(model := self._model, StreamingModel)
            else None,
        )


class _Search(NamedTuple):
    text: str
    vector: np.ndarray


class RetrieverTool:
    """An index, asked one query at a time: with vectors and their encoder, or by text alone."""

    def __init__(self, retriever: Retriever | TextRetriever) -> None:
        self._retriever = retriever
        self._operation = functools.cache(self._make_operation)

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
            encode=_encode_array,
            decode=_decode_array,
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


class CountSelector(Protocol):
    """Chooses how many rewrites a question gets; see `jaxrag.training.selector`."""

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines the choices."""
        ...

    @property
    def arms(self) -> int:
        """The most that it chooses."""
        ...

    def choose(self, contexts: Float[np.ndarray, "q d"]) -> Int[np.ndarray, " q"]:
        """K of each question, from 1, by its embedding."""
        ...


@dataclasses.dataclass(frozen=True)
class SelectorTool:
    """A trained selector of how many rewrites, asked about one question."""

    selector: CountSelector

    async def count(self, text: str, n: int, index: RetrieverTool) -> int:
        """K of a question.

        Raises:
          InputError: the selector was trained for another number of rewrites.
        """
        if self.selector.arms != n:
            raise InputError(
                f"The selector was trained for {self.selector.arms} rewrites, and the question has "
                f"{n}: set method.rewriter.n={self.selector.arms}, or train another selector."
            )
        context = await index.embed(text)
        return int(self.selector.choose(np.asarray(context)[None])[0])


@dataclasses.dataclass(frozen=True)
class Tools:
    """All that a method may use; what a run did not set up is None."""

    llm: LanguageModelTool
    retriever: RetrieverTool | None = None
    reranker: RerankerTool | None = None
    judge: LanguageModelTool | None = None
    rewrite_ranker: RerankerTool | None = None
    count_selector: SelectorTool | None = None

    @property
    def index(self) -> RetrieverTool:
        """The retriever, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.retriever is None:
            raise InputError("This method searches, but the run has no index: set config.index.")
        return self.retriever

    @property
    def ranker(self) -> RerankerTool:
        """The reranker, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.reranker is None:
            raise InputError(
                "This method reranks, but the run has no reranker: set config.reranker."
            )
        return self.reranker

    @property
    def rewrites(self) -> RerankerTool:
        """The ranker of rewrites, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.rewrite_ranker is None:
            raise InputError(
                "This method ranks rewrites, but the run has no trained ranker: set "
                "config.rewrite_ranker.checkpoint, or method.order to another order."
            )
        return self.rewrite_ranker

    @property
    def selector(self) -> SelectorTool:
        """The selector of how many rewrites, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.count_selector is None:
            raise InputError(
                "This method chooses how many rewrites to keep, but the run has no trained "
                "selector: set config.count_selector.checkpoint, or method.count to a fixed one."
            )
        return self.count_selector


def _prompt_size(prompt: Prompt) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(m.content) for m in prompt)


def _encode_generation(generation: Generation) -> bytes:
    return canonical(dataclasses.asdict(generation)).encode()


def _decode_generation(data: bytes) -> Generation:
    fields = json.loads(data)
    fields["tokens"], fields["logprobs"] = tuple(fields["tokens"]), tuple(fields["logprobs"])
    return Generation(**fields)


def _encode_array(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array, np.float32), allow_pickle=False)
    return buffer.getvalue()


def _decode_array(data: bytes) -> np.ndarray:
    return np.load(io.BytesIO(data), allow_pickle=False)
