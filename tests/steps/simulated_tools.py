"""Counts the calls of a method to its models and index, by running it on simulated ones.

The method's coroutine runs in the scheduler as in any run, but the model, the index and the
reranker are simulated with pseudo-random behaviour: confident or not, the same output for every
prompt or different ones, "yes", "no", nothing. The minimum and maximum of the costs are the bounds.
A method that branches on an output that no simulated model writes may exceed them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from jaxrag.core.hashing import canonical
from jaxrag.core.store import Store
from jaxrag.engines.language_model import DecodingKeywords, DecodingOptions
from jaxrag.engines.local.inspection import Inspection
from jaxrag.engines.scheduler import Scheduler
from jaxrag.models.decoder.inspection import StatePart
from jaxrag.steps.episode import Method, answer_question
from jaxrag.steps.inspection_tool import InspectionTool
from jaxrag.steps.tools import (
    NO_INDEX,
    NO_RERANKER,
    LanguageModelTool,
    Needs,
    RerankerTool,
    RetrieverTool,
    Tools,
    needs_of,
)
from jaxrag.types import Generation, InputError, Passage, Prompt, Question, Ranking

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from jaxrag.retrieval.corpus.passages import Passages

_TEXTS = (
    "yes", "no", "", "42", "So the answer is no.",
    "{number}",  # another one for every prompt
)  # fmt: skip
_LONGER = (
    "It is {number}. It is 42.",
    "Search[{number}]",
    "one; two; three; four; five; six **",
)
_SURENESS = (0.0, -20.0)  # natural-log probability of every token
_MIXED = 8  # models that draw text and sureness anew for every prompt
_QUESTIONS = 4  # of the data set, spread over it
_TOKENS = 4
_DIMENSION = 8


class Calls(NamedTuple):
    """Minimum and maximum number of calls of one kind for one question."""

    kind: str
    least: int
    most: int


class _World(NamedTuple):
    """Behaviour of the simulated models and index of one trial."""

    texts: Sequence[str]
    sureness: Sequence[float]
    alike: bool
    number: int

    def draw(self, *parts: object) -> int:
        """A number that the parts determine."""
        return zlib.crc32(canonical([self.number, *map(str, parts)]).encode())

    def language_model(self) -> LanguageModelTool:
        """A simulated language model."""
        return LanguageModelTool(_Model(self))

    def reranker(self) -> RerankerTool:
        """A simulated reranker."""
        return RerankerTool(_Reranker(self))

    def tools(self, needs: Needs, passages: Passages | None, *, vectors: bool) -> Tools:
        """Simulated tools for a method with these needs."""
        index = None if passages is None else _Index(self, passages)
        return Tools(
            llm=self.language_model(),
            retriever=RetrieverTool(index if vectors else _TextIndex(index)) if index else NO_INDEX,
            reranker=self.reranker() if needs.reranker else NO_RERANKER,
            inspection=InspectionTool(_Model(self)),
            helpers=dict.fromkeys(needs.helpers.values(), self.language_model()),
        )


def bounds(
    method: Method,
    questions: Sequence[Question],
    passages: Passages | None,
    *,
    vectors: bool = True,
) -> list[Calls]:
    """Minimum and maximum calls of each kind for one question, sorted by name.

    A request that the store will answer counts, too, as it does in a run's costs.

    Args:
      method: its settings.
      questions: some are tried.
      passages: the corpus; None for a run without an index.
      vectors: whether the index has vectors of passages.

    Raises:
      InputError: the method refuses the run's settings, or fails whatever the models say.
    """
    step = -(-len(questions) // _QUESTIONS)
    found: list[dict[str, int]] = []
    failure: Exception | None = None
    for world in _worlds():
        tools = world.tools(needs_of(method), passages, vectors=vectors)
        starts = (
            (q, functools.partial(answer_question, method, q, tools)) for q in questions[::step]
        )
        with contextlib.closing(Store(None)) as store:
            outcomes = list(Scheduler(store).run(starts))
        for outcome in outcomes:
            if isinstance(outcome.error, InputError):
                raise outcome.error
            if outcome.error is None:
                found.append(outcome.cost)
            failure = failure or outcome.error
    if not found:
        raise InputError(f"the method fails on every question: {failure!r}") from failure
    kinds = sorted({kind for cost in found for kind in cost if not kind.endswith("tokens")})
    counts = {kind: [cost.get(kind, 0) for cost in found] for kind in kinds}
    return [Calls(kind, min(counts[kind]), max(counts[kind])) for kind in kinds]


def _worlds() -> Iterator[_World]:
    number = itertools.count()
    for alike in (True, False):
        for text, sureness in itertools.product(_TEXTS, _SURENESS):
            yield _World((text,), (sureness,), alike, next(number))
        for _ in range(_MIXED):
            yield _World(_TEXTS, _SURENESS, alike, next(number))
    for text, sureness, alike in itertools.product(_LONGER, _SURENESS, (True, False)):
        yield _World((text,), (sureness,), alike, next(number))


@functools.cache
def _words() -> PreTrainedTokenizerFast:
    """A tokenizer of words, which are all the same token, after a begin token."""
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({"word": 0, "begin": 1}, unk_token="word"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    backend.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="begin $A", special_tokens=[("begin", 1)]
    )
    template = "begin {% for m in messages %}{{ m['content'] + '\\n' }}{% endfor %}"
    return PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=template)


class _Model:
    """A simulated language model."""

    identity = canonical({"model": "made up"})
    max_length, gives_logprobs = 1 << 30, True

    def __init__(self, world: _World) -> None:
        self._world, self.tokenizer = world, _words()

    def generate(
        self, prompts: Sequence[Prompt], **options: Unpack[DecodingKeywords]
    ) -> list[Generation]:
        decoding = DecodingOptions(**options)
        pairs = zip(prompts, decoding.seeds(len(prompts)), strict=True)
        return [self._reply(*pair, decoding.max_new_tokens) for pair in pairs]

    def _reply(self, prompt: Prompt, seed: int, max_new_tokens: int) -> Generation:
        number = self._world.draw((prompt, seed))
        count = min(_TOKENS, max_new_tokens)
        text = self._world.texts[number % len(self._world.texts)]
        sureness = self._world.sureness[number // 64 % len(self._world.sureness)]
        logprobs = (sureness,) * count
        return Generation(text.format(number=number), (0,) * count, logprobs, "stop", 1)

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        pairs = zip(prompts, continuations, strict=True)
        numbers = [self._world.draw(pair) % 2**20 for pair in pairs]  # no two options alike
        return [np.full(_TOKENS, -number / 2**16, np.float32) for number in numbers]

    def inspect(
        self,
        prompts: Sequence[Prompt],
        continuations: Sequence[str],
        *,
        layer: int | None = None,
        part: StatePart = "residual",
        ended: bool = False,
    ) -> list[Inspection]:
        pairs = zip(prompts, continuations, strict=True)
        return [self._seen(prompt, text, layer) for prompt, text in pairs]

    def _seen(self, prompt: Prompt, text: str, layer: int | None) -> Inspection:
        """Of a token a character, all of them unsure and attended to, or none; a drawn state."""
        number = self._world.draw(prompt, text, layer)
        sureness = self._world.sureness[number // 64 % len(self._world.sureness)]
        shown = prompt if isinstance(prompt, str) else "\n".join(m.content for m in prompt)
        n, t = len(shown) + len(text), len(text)
        entropies = np.full(t, -1e6 * sureness, np.float32)
        spans = np.arange(n, dtype=np.int32)[:, None] + np.array([0, 1], np.int32)
        attention = np.full((t, n), 1 / n, np.float32)
        spread = -sureness * np.random.default_rng(number).standard_normal(_DIMENSION)
        logprobs = np.full(t, sureness, np.float32)
        state = np.asarray(spread, np.float32)
        return Inspection(shown + text, spans, entropies, logprobs, attention, state)


class _Index:
    """An index whose every search finds the same passages, or passages that a draw picks."""

    identity = canonical({"index": "made up"})
    dimension = _DIMENSION

    def __init__(self, world: _World, passages: Passages) -> None:
        self._world, self.passages = world, passages

    @property
    def encoder(self) -> _Index:
        return self

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self._vector(text) for text in texts])

    def embed_passages(self, passages: Sequence[Passage]) -> np.ndarray:
        return self.embed([passage.text for passage in passages])

    def search(self, vectors: np.ndarray, k: int) -> list[Ranking]:
        count = len(self.passages)
        first = [0 if self._world.alike else self._world.draw(v.tolist()) for v in vectors]
        rows = [[(row + i) % count for i in range(min(k, count))] for row in first]
        return [Ranking(tuple(r), tuple(1.0 / (i + 1) for i in range(len(r)))) for r in rows]

    def vectors(self, rows: Sequence[int]) -> np.ndarray:
        return self.embed([str(row) for row in rows])

    def _vector(self, text: str) -> np.ndarray:
        vector = np.random.default_rng(self._world.draw(text)).standard_normal(_DIMENSION)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


class _TextIndex:
    """The same without vectors."""

    def __init__(self, index: _Index) -> None:
        self._index, self.identity, self.passages = index, index.identity, index.passages

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        return self._index.search(self._index.embed(texts), k)


class _Reranker:
    """A simulated reranker."""

    identity = canonical({"reranker": "made up"})

    def __init__(self, world: _World) -> None:
        self._world = world

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        pairs = zip(queries, passages, strict=True)
        return np.array([self._world.draw(*pair) % 64 for pair in pairs], np.float32)
