"""The few data types that everything shares, and the axis letters of every signature.

Axis letters: ``b`` batch, ``q`` query, ``n`` candidate or passage, ``k`` kept, ``t`` token,
``d`` feature, ``v`` vocabulary, ``a`` arm, ``p`` parameter.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple


class InputError(ValueError):
    """Something that the user gave is wrong; the message names it and the way out."""


class Message(NamedTuple):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


Prompt = str | tuple[Message, ...]
"""What a language model is asked: messages go through the chat template, a string as it is."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A question with its gold answers (aliases; any one counts)."""

    id: str
    text: str
    answers: tuple[str, ...]
    choices: tuple[str, ...] = ()
    task: str = "open"


@dataclasses.dataclass(frozen=True)
class Passage:
    """A piece of text that can be retrieved."""

    id: str
    title: str
    text: str


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Passages found for one query, best first.

    ``ids`` are row numbers in the corpus, ``scores`` the index's scores for them.
    """

    ids: tuple[int, ...]
    scores: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Generation:
    """What a language model produced for one prompt.

    ``tokens`` and ``logprobs`` run in parallel: the natural-log probability that the model,
    unscaled by temperature, gave to each produced token. With ``finish_reason`` "end" the last
    of them is the end token (``text`` never holds it); "stop" means that a stop string was met
    (``text`` is cut before it), "length" that ``max_new_tokens`` were produced.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["end", "stop", "length"]
    prompt_tokens: int


@dataclasses.dataclass(frozen=True)
class Answer:
    """A method's answer to one question, with the plain-JSON record of how it came about."""

    question_id: str
    text: str
    trace: dict[str, Any]
