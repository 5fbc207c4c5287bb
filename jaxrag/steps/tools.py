"""Methods and their tools: what a method needs of a run, and what it gets.

A method's Config holds the settings of the models that it uses beside the run's own (a judge, a
trained ranker), and its `needs` name the fields that hold them. The run loads these helpers.

Each call of a tool becomes a `Request`, which the scheduler batches with those of other questions
and answers from the store where it can.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from jaxrag.core.hashing import canonical
from jaxrag.engines.language_model import (
    GradualModel,
    LanguageModel,
    ModelSettings,
    StreamingModel,
    gives_scores,
)
from jaxrag.engines.prompts import PromptEncoder, encoder_of, prompt_size
from jaxrag.engines.scheduler import Operation, Request, gather
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.steps.inspection_tool import InspectionTool, decode_arrays, encode_arrays
from jaxrag.types import Generation, InputError, Passage, Prompt, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages
    from jaxrag.retrieval.rerank import Reranker


class LoadedRun(NamedTuple):
    """What the helpers of a run are loaded with.

    Attributes:
      method: the Config that uses the helpers.
      language_model: loads the run's language model, once. It takes what is free of the devices'
        memory, so call it after loading anything else onto them.
      retriever: the run's index; None for a method that does not search.
      load_model: loads another language model, once per settings.
      cache: directory of files kept between runs.
    """

    method: Any
    language_model: Callable[[], LanguageModel]
    retriever: Retriever | TextRetriever | None
    load_model: Callable[[ModelSettings], LanguageModel]
    cache: Path


class HelperTool(Protocol):
    """A loaded helper as the method uses it."""

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines its results."""
        ...


Tool = TypeVar("Tool", bound=HelperTool, covariant=True)


@runtime_checkable
class Helper(Protocol[Tool]):
    """Settings of a model that a method uses beside the run's own; a frozen dataclass."""

    @property
    def name(self) -> str:
        """Name in tables and plans."""
        ...

    @property
    def checkpoint(self) -> str | None:
        """Directory of the trained model, or another name of it; "" or None without one."""
        ...

    def check(self, field: str) -> None:
        """Checks that the checkpoint exists, without loading it; else InputError.

        The message names ``field``, as it is on the command line: "config.method.order.ranker".
        """
        ...

    def load(self, loaded: LoadedRun) -> Tool:
        """The tool that `Tools.helper` returns; InputError if it does not load or does not fit."""
        ...


@dataclasses.dataclass(frozen=True)
class Needs:
    """Requirements of a method, or of a part of one.

    Attributes:
      search: an index.
      vectors: vectors of passages and an encoder of queries, which some indexes lack.
      reranker: a reranker.
      logprobs: log-probabilities of the tokens that the language model writes.
      scores: log-probabilities of given texts.
      inspection: the language model's attentions and hidden states.
      prompt_length: the language model's tokenizer and length limit, to truncate passages.
      helpers: settings of other models, by the dotted field of the Config that holds them.
    """

    search: bool = False
    vectors: bool = False
    reranker: bool = False
    logprobs: bool = False
    scores: bool = False
    inspection: bool = False
    prompt_length: bool = False
    helpers: dict[str, Helper[Any]] = dataclasses.field(default_factory=dict)

    def __or__(self, other: Needs) -> Needs:
        return Needs(**{name: need | vars(other)[name] for name, need in vars(self).items()})


def needs_of(config: object) -> Needs:
    """Needs of a method's Config, or of a part of one: its own ``needs``, and those of its fields.

    Fields that hold settings of models are helpers under their dotted names, such as "gate.judge".
    A part that holds a language model needs log-probabilities of that model, not of the run's.
    InputError if a tuple holds a part with needs.
    """
    own: Needs = getattr(config, "needs", Needs())
    needs = Needs()
    for field in dataclasses.fields(config) if dataclasses.is_dataclass(config) else ():
        value = getattr(config, field.name)
        if isinstance(value, Helper):
            needs |= Needs(helpers={field.name: value})
        elif isinstance(value, ModelSettings):
            needs |= Needs(helpers={field.name: ModelHelper(value, own.scores)})
            own = dataclasses.replace(own, scores=False)
        elif isinstance(value, tuple):
            for part in value:
                if isinstance(part, (Helper, ModelSettings)) or needs_of(part) != Needs():
                    raise InputError(
                        f"{field.name} is a tuple with {type(part).__name__}, which has needs: "
                        "give each such part a field of its own."
                    )
        else:
            inner = needs_of(value)
            helpers = {f"{field.name}.{name}": helper for name, helper in inner.helpers.items()}
            needs |= dataclasses.replace(inner, helpers=helpers)
    return needs | own


@dataclasses.dataclass(frozen=True)
class ModelHelper:
    """Another language model as a helper; with ``scores`` it scores given texts."""

    model: ModelSettings
    # not compared, so that two parts of a method share one model
    scores: bool = dataclasses.field(default=False, compare=False)

    @property
    def name(self) -> str:
        """Name in tables and plans."""
        return self.model.name

    @property
    def checkpoint(self) -> str | None:
        """The model's checkpoint."""
        return self.model.checkpoint

    def check(self, field: str) -> None:
        """InputError if no checkpoint is named."""
        if self.model.checkpoint == "":
            raise InputError(
                f"This method uses a trained model, but {field} has no checkpoint: give "
                f"--{field}.checkpoint=DIRECTORY."
            )

    def load(self, loaded: LoadedRun) -> LanguageModelTool:
        """Loads the model; InputError if that fails, or it scores no texts where it must."""
        model = loaded.load_model(self.model)
        if self.scores and not gives_scores(model):
            raise InputError(
                f"This method compares log-probabilities of {self.name}, which returns none: "
                "choose another model."
            )
        return LanguageModelTool(model, helper=True)


class LanguageModelTool:
    """A language model, called with one prompt at a time.

    Every generation costs an ``llm_calls`` with ``prompt_tokens`` and ``new_tokens``. Those of a
    helper are also counted as ``helper_prompt_tokens`` and ``helper_new_tokens``, since another
    model than the run's has another price.
    """

    def __init__(self, model: LanguageModel, *, helper: bool = False) -> None:
        self.model, self._helper = model, helper
        self._generation = functools.cache(self._make_generation)

    @property
    def identity(self) -> str:
        """The model's identity."""
        return self.model.identity

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int = 0,
        repetition_penalty: float = 1.0,
    ) -> Request:
        """Awaits to the prompt's `Generation`; see `DecodingOptions`."""
        options: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "stop": tuple(stop),
        }
        if repetition_penalty != 1:  # so that results stored without one keep their key
            options["repetition_penalty"] = repetition_penalty
        shared = seed if temperature == 0 else None  # samples of all seeds share one operation
        return Request(self._generation(shared, **options), (prompt, seed))

    def logprob(self, prompt: Prompt, continuation: str) -> Request:
        """Awaits to the log-probability of each token of ``continuation``, float32 [t]."""
        return Request(self._scoring, (prompt, continuation))

    def room(self, prompt: Prompt, *, max_new_tokens: int) -> int:
        """Free tokens beside a prompt and its answer; negative if they do not fit.

        InputError if the model's tokenizer or limit is unknown (some servers), or it does not
        accept the prompt.
        """
        if self._encoder is None:
            raise InputError("The tokenizer and the length limit of the model are unknown.")
        return self._encoder.left(prompt, room=max_new_tokens)

    @functools.cached_property
    def _encoder(self) -> PromptEncoder | None:
        return encoder_of(self.model)

    def _make_generation(self, seed: int | None, **options: Any) -> Operation:
        """Generation for payloads (prompt, seed); ``seed`` is None where payloads differ in it."""
        model = self.model
        settings = options if seed is None else {**options, "seed": seed}
        return Operation(
            name="generate",
            identity=canonical({"model": model.identity, **settings}),
            run=lambda pairs: model.generate(
                [p for p, _ in pairs], **options, seed=[s for _, s in pairs]
            ),
            each=(
                lambda pairs: model.generate_each(
                    [p for p, _ in pairs], **options, seed=[s for _, s in pairs]
                )
            )
            if isinstance(model, GradualModel)
            else None,
            key=lambda pair: canonical(pair if seed is None else pair[0]),
            encode=_encode_generation,
            decode=_decode_generation,
            cost=lambda pair, generation: self._cost(generation),
            size=lambda pair: prompt_size(pair[0]),
            submit=(lambda pair: model.submit(pair[0], **options, seed=pair[1]))
            if isinstance(model, StreamingModel)
            else None,
        )

    def _cost(self, generation: Generation) -> dict[str, int]:
        tokens = {
            "prompt_tokens": generation.prompt_tokens,
            "new_tokens": len(generation.tokens) + generation.reasoning_tokens,
        }
        own = {f"helper_{name}": count for name, count in tokens.items()} if self._helper else {}
        return {"llm_calls": 1, **tokens, **own}

    @functools.cached_property
    def _scoring(self) -> Operation:
        model = self.model
        return Operation(
            name="logprob",
            identity=canonical({"model": model.identity}),
            run=lambda pairs: model.logprob([p for p, _ in pairs], [c for _, c in pairs]),
            key=canonical,
            encode=_encode_array,
            decode=_decode_array,
            cost=lambda pair, array: {"llm_scores": 1, "scored_tokens": len(array)},
            size=lambda pair: prompt_size(*pair),
            submit=(lambda pair: model.submit_logprob(*pair))
            if isinstance(model, StreamingModel)
            else None,
        )


_STORED = ("text", "tokens", "logprobs", "finish_reason", "prompt_tokens")  # even where empty


def _encode_generation(generation: Generation) -> bytes:
    # dataclasses.asdict would copy tokens and log-probabilities one by one
    fields = {name: value for name, value in vars(generation).items() if value or name in _STORED}
    return canonical(fields).encode()


def _decode_generation(data: bytes) -> Generation:
    fields: dict[str, Any] = json.loads(data)
    for name in ("tokens", "logprobs", "reasoning_logprobs"):
        fields[name] = tuple(fields.get(name, ()))
    return Generation(**fields)


def _encode_array(array: np.ndarray) -> bytes:
    return encode_arrays(np.asarray(array, np.float32))


def _decode_array(data: bytes) -> np.ndarray:
    return decode_arrays(data)[0]


def embedding(identity: str, embed: Callable[[Sequence[str]], np.ndarray]) -> Operation:
    """The operation that embeds a text as a query, float32 [d]; ``identity`` is the encoder's."""
    return Operation(
        name="embed",
        identity=canonical({"encoder": identity}),
        run=lambda texts: list(embed(texts)),
        key=canonical,
        encode=_encode_array,
        decode=_decode_array,
        size=len,
    )


class RetrieverTool:
    """An index of vectors with their encoder, or of texts, called with one query at a time."""

    def __init__(self, retriever: Retriever | TextRetriever) -> None:
        self._retriever = retriever
        self._searching = functools.cache(self._make_search)

    @property
    def corpus(self) -> Passages:
        """All passages of the index."""
        return self._retriever.passages

    def embed(self, text: str) -> Request:
        """Awaits to the query embedding of ``text``, float32 [d]; InputError without vectors."""
        return Request(self._embedding, text)

    async def search(self, text: str, k: int) -> Ranking:
        """The ``k`` best passages for ``text``."""
        by_text = isinstance(self._retriever, TextRetriever)
        vector = None if by_text else await self.embed(text)
        return await Request(self._searching(k), (text, vector))

    def vectors(self, rows: Sequence[int]) -> np.ndarray:
        """Stored embeddings of passages, float32 [n d]; InputError if the index has none."""
        return self._with_vectors().vectors(rows)

    def _with_vectors(self) -> Retriever:
        if isinstance(self._retriever, TextRetriever):
            raise InputError(
                "This method works with vectors of passages (as select=AIS does), but the run's "
                "index ranks texts without vectors: choose an index with an encoder, such as Exact "
                "or Scann, or a selector without vectors, such as Top or Rerank."
            )
        return self._retriever

    @functools.cached_property
    def _embedding(self) -> Operation:
        retriever = self._with_vectors()
        return embedding(retriever.encoder.identity, retriever.embed)

    def _make_search(self, k: int) -> Operation:
        """The search of payloads (text, vector); an index of texts has no vector."""
        retriever = self._retriever

        def run(pairs: Sequence[tuple[str, np.ndarray]]) -> list[Ranking]:
            if isinstance(retriever, TextRetriever):
                return retriever.search_texts([text for text, _ in pairs], k)
            return retriever.search(np.stack([vector for _, vector in pairs]), k)

        return Operation(
            name="search",
            identity=canonical({"index": retriever.identity, "k": k}),
            run=run,
            key=lambda pair: canonical(pair[0]),
            encode=lambda ranking: canonical([ranking.ids, ranking.scores]).encode(),
            decode=lambda data: Ranking(*map(tuple, json.loads(data))),
            cost=lambda pair, ranking: {"searches": 1},
            batch=1024,
        )


class RerankerTool:
    """A reranker, called with one query at a time."""

    def __init__(self, reranker: Reranker) -> None:
        self.identity = reranker.identity
        self._operation = Operation(
            name="rerank",
            identity=canonical({"reranker": reranker.identity}),
            run=lambda pairs: reranker.score([q for q, _ in pairs], [p for _, p in pairs]).tolist(),
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


class MissingTool:
    """Placeholder for a tool that the run lacks: any use raises an error that names the setting."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own look-ups, such as by copy and pickle
            raise AttributeError(name)
        raise InputError(self._message)


NO_INDEX: Any = MissingTool(
    "This method searches, but no index is opened for it: set config.index, and give a method of "
    "your own needs = Needs(search=True)."
)
NO_RERANKER: Any = MissingTool(
    "This method reranks, but the run has no reranker: set config.reranker."
)
NO_INSPECTION: Any = MissingTool(
    "This method needs attentions and hidden states: use the local engine (config.model as Local), "
    "the only engine that returns them."
)


@dataclasses.dataclass(frozen=True)
class Tools:
    """The tools of a method; every call goes through the scheduler and the store.

    Attributes:
      llm: the run's language model.
      retriever: the index.
      reranker: scores passages for a query.
      inspection: attentions and hidden states of ``llm``.
      helpers: tools of the method's helpers, by their settings.
    """

    llm: LanguageModelTool
    retriever: RetrieverTool = NO_INDEX
    reranker: RerankerTool = NO_RERANKER
    inspection: InspectionTool = NO_INSPECTION
    helpers: Mapping[Helper[Any], Any] = dataclasses.field(default_factory=dict)
