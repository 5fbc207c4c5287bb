"""Data types shared by all modules, and the letters that name array axes in signatures.

Axes: ``b`` batch, ``q`` query, ``n`` candidate or passage, ``k`` kept, ``t`` token,
``d`` feature, ``v`` vocabulary, ``a`` arm, ``p`` parameter.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

_LONGEST = 4000  # characters of a message, which may quote what a file holds


class InputError(ValueError):
    """Invalid input from the user; the message names it and says how to correct it."""

    def __str__(self) -> str:
        text = super().__str__()
        cut = f"{text[: _LONGEST - 500]} [...] {text[-400:]}"
        return text if len(text) <= _LONGEST else cut


class EngineDown(RuntimeError):
    """No request to a model or search engine can succeed; stops the run, keeps finished work."""


class FilledText(str):
    """A text that knows which of its parts are data, such as a question.

    Attributes:
      data: (start, end) of these parts; see `jaxrag.engines.prompts.PromptEncoder`.
      messages: the same prompt as a chat, for a server that takes no plain text.
    """

    data: tuple[tuple[int, int], ...]
    messages: tuple[Message, ...]

    def __new__(
        cls,
        text: str,
        data: tuple[tuple[int, int], ...] = (),
        messages: tuple[Message, ...] = (),
    ) -> FilledText:
        """A text with these attributes."""
        filled = super().__new__(cls, text)
        filled.data, filled.messages = data, messages
        return filled

    @classmethod
    def fill(cls, pattern: str, fields: Mapping[str, object]) -> FilledText:
        """The pattern with its fields, as `str.format_map`; they are data, or have some inside."""
        filled = cls("")
        for literal, name, _, _ in string.Formatter().parse(pattern):
            filled += literal
            if name is not None:
                value = fields[name]
                text = value if isinstance(value, cls) else str(value)
                filled += text if isinstance(text, cls) else cls(text, ((0, len(text)),))
        return filled

    def __add__(self, other: str) -> FilledText:
        """With a text after it, whose data stay data."""
        more = ((a + len(self), b + len(self)) for a, b in getattr(other, "data", ()))
        return FilledText(str.__add__(self, other), (*self.data, *more))


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
    the labels of a task "labels"; ``task`` is one of `jaxrag.data.question_kinds.TASKS`. Passages
    whose ids are in ``hidden`` are no results of its searches, such as those that state its answer.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    choices: tuple[str, ...] = ()
    task: str = "open"
    hidden: tuple[str, ...] = ()


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

    ``logprobs`` are natural-log probabilities of the generated ``tokens`` under the model at
    temperature 1. ``finish_reason`` is "end" after an end token (the last of ``tokens``; not in
    ``text``), "stop" after a stop string (``text`` ends before it), "length" at the limit.

    Reasoning before the answer (`jaxrag.text.reasoning`), with the blanks after it, is in
    ``reasoning`` and in none of these fields; ``reasoning_tokens`` counts its tokens, and
    ``reasoning_logprobs`` has their log-probabilities where they are known.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["end", "stop", "length"]
    prompt_tokens: int
    reasoning: str = ""
    reasoning_tokens: int = 0
    reasoning_logprobs: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Answer:
    """A method's answer to one question; ``trace`` records in plain JSON how it was found."""

    question_id: str
    text: str
    trace: dict[str, Any]
