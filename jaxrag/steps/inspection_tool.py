"""Tool for a model's attentions and hidden states, and words and stopwords to interpret its tokens.

Requests are batched and stored like those of `jaxrag.steps.tools`.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxrag.core.hashing import canonical
from jaxrag.engines.local.inspection import InspectableModel, Inspection
from jaxrag.engines.prompts import prompt_size
from jaxrag.engines.scheduler import Operation, Request
from jaxrag.models.decoder.inspection import StatePart
from jaxrag.text.sentences import bare, sentences, word_key
from jaxrag.types import Prompt

STOPWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    a about above after again against all also am an and any are as at be because been
    before being below between both but by can could did do does doing down during each few
    for from further had has have having he her here hers herself him himself his how
    however i if in into is it its itself just may me might more most must my myself no nor
    not now of off on once only or other ought our ours ourselves out over own same shall
    she should so some such than that the their theirs them themselves then there therefore
    these they this those through thus to too under until up upon us very was we were what
    when where whether which while who whom whose why will with would yes yet you your yours
    yourself yourselves ain aren couldn didn doesn don hadn hasn haven isn mustn needn shouldn
    wasn weren won wouldn
    """,
    )
)
"""English words that carry little meaning: our own list, shorter than spaCy's."""


class EndState(NamedTuple):
    """The hidden state at the end token after a continuation.

    Attributes:
      tokens: number of tokens of the continuation, the end token included.
      state: float32 [d].
    """

    tokens: int
    state: Float[np.ndarray, " d"]


class InspectionTool:
    """A model with attentions and hidden states, called with one continuation at a time."""

    def __init__(self, model: InspectableModel) -> None:
        self._model = model
        self._state = functools.cache(self._state_operation)

    def look(self, prompt: Prompt, continuation: str) -> Request:
        """Awaits to the `Inspection` of a continuation; its state is the middle layer's."""
        return Request(self._inspection, (prompt, continuation))

    def state(
        self,
        prompt: Prompt,
        continuation: str,
        *,
        layer: int | None,
        part: StatePart = "residual",
    ) -> Request:
        """Awaits to a continuation's `EndState` at ``layer``, from 0; None: the middle one."""
        return Request(self._state(layer, part), (prompt, continuation))

    @functools.cached_property
    def _inspection(self) -> Operation:
        model = self._model
        return Operation(
            name="inspect",
            identity=canonical({"model": model.identity}),
            run=lambda pairs: model.inspect([p for p, _ in pairs], [c for _, c in pairs]),
            key=canonical,
            encode=encode_inspection,
            decode=decode_inspection,
            cost=lambda pair, seen: {"llm_scores": 1, "scored_tokens": len(seen.logprobs)},
            size=lambda pair: prompt_size(*pair),
        )

    def _state_operation(self, layer: int | None, part: StatePart) -> Operation:
        model = self._model
        named = {} if part == "residual" else {"part": part}  # stored ones keep their key
        return Operation(
            name="hidden_state",
            identity=canonical({"model": model.identity, "layer": layer, **named}),
            run=lambda pairs: [
                EndState(len(seen.logprobs), seen.state)
                for seen in model.inspect(
                    [p for p, _ in pairs],
                    [c for _, c in pairs],
                    layer=layer,
                    part=part,
                    ended=True,
                )
            ],
            key=canonical,
            encode=lambda ended: _saved(np.int64(ended.tokens), ended.state),
            decode=_decode_end_state,
            cost=lambda pair, ended: {"llm_scores": 1, "scored_tokens": ended.tokens},
            size=lambda pair: prompt_size(*pair),
        )


def encode_inspection(seen: Inspection) -> bytes:
    """An inspection in the store's format."""
    text = np.frombuffer(seen.text.encode(), np.uint8)
    return _saved(text, *seen[1:])


def decode_inspection(data: bytes) -> Inspection:
    """The inverse of `encode_inspection`."""
    text, *arrays = _loaded(data, len(Inspection._fields))
    return Inspection(text.tobytes().decode(), *arrays)


def _decode_end_state(data: bytes) -> EndState:
    tokens, state = _loaded(data, 2)
    return EndState(int(tokens), state)


def _saved(*arrays: Any) -> bytes:
    buffer = io.BytesIO()
    for array in arrays:
        np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _loaded(data: bytes, count: int) -> list[np.ndarray]:
    buffer = io.BytesIO(data)
    return [np.load(buffer, allow_pickle=False) for _ in range(count)]


class Word(NamedTuple):
    """A word of a text with its start and end in characters and the number of its sentence."""

    text: str
    start: int
    end: int
    sentence: int = 0

    @property
    def bare(self) -> str:
        """The word without punctuation around it."""
        return bare(self.text)

    @property
    def content(self) -> bool:
        """Whether it has letters or digits and is no stopword."""
        key = self.text.casefold().replace("’", "'")
        word = bare(key)
        return bool(word) and word not in STOPWORDS and word.partition("'")[0] not in STOPWORDS


def words_of(text: str, start: int = 0, end: int | None = None) -> list[Word]:
    """The blank-separated words between two characters of a text; sentences count from 0."""
    part = text[start:end]
    lengths = [sentence.count(" ") + 1 for sentence in sentences(part)]
    numbers = np.repeat(np.arange(len(lengths)), lengths).tolist()
    return [
        Word(found.group(), start + found.start(), start + found.end(), number)
        for found, number in zip(re.finditer(r"\S+", part), numbers, strict=True)
    ]


def words_of_tokens(seen: Inspection, words: Sequence[Word]) -> Int[np.ndarray, " n"]:
    """For each token, the index of its word, by its first character that is not blank.

    -1 for tokens outside these words, which are in order of the text.
    """
    found = np.full(len(seen.spans), -1)
    ends = [word.end for word in words]
    for number, (start, end) in enumerate(seen.spans.tolist()):
        piece = seen.text[start:end]
        at = start + len(piece) - len(piece.lstrip())
        place = int(np.searchsorted(ends, at, side="right"))
        if at < end and place < len(words) and words[place].start <= at:
            found[number] = place
    return found


def distinct(words: Sequence[Word]) -> Int[np.ndarray, " w"]:
    """For each word, the index of the first word equal to it up to case and punctuation."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(word_key(w.text), i) for i, w in enumerate(words)], np.int64)
