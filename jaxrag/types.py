"""Data types shared by all modules, and the letters that name array axes in signatures.

Axes: ``b`` batch, ``q`` query, ``n`` candidate or passage, ``k`` kept, ``t`` token,
``d`` feature, ``v`` vocabulary, ``a`` arm, ``p`` parameter.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple


class InputError(ValueError):
    """Invalid input from the user; the message names it and says how to correct it."""


class EngineDown(RuntimeError):
    """No request to a model or search engine can succeed; stops the run, keeps finished work."""


class Message(NamedTuple):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


Prompt = str | tuple[Message, ...]
"""Input of a language model: messages go through the chat template, a string is used as it is."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A question and its gold answers.

    ``answers`` are aliases: a prediction is correct if it matches any of them; there are none where
    only relevant passages are known. ``choices`` are the options of a multiple-choice question, or
    the labels of a task "labels"; ``task`` is one of `jaxrag.data.question_kinds.TASKS`.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    choices: tuple[str, ...] = ()
    task: str = "open"


@dataclasses.dataclass(frozen=True)
class Passage:
    """A unit of text that is indexed and retrieved."""

    id: str
    title: str
    text: str


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Search results of one query, best first.

    ``ids`` are row numbers in the corpus; ``scores`` are the index's scores.
    """

    ids: tuple[int, ...]
    scores: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Generation:
    """Output of a language model for one prompt.

    ``tokens`` are the generated tokens and ``logprobs`` their natural-log probabilities under the
    model at temperature 1. ``finish_reason`` is "end" after an end token (the last of ``tokens``;
    not in ``text``), "stop" after a stop string (``text`` ends before it), and "length" after
    ``max_new_tokens`` tokens.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["end", "stop", "length"]
    prompt_tokens: int


@dataclasses.dataclass(frozen=True)
class Answer:
    """A method's answer to one question; ``trace`` records in plain JSON how it was found."""

    question_id: str
    text: str
    trace: dict[str, Any]
