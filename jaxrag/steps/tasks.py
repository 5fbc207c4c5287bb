"""Answers to questions of every kind: by generated text, or by the options' probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from jaxrag.data import question_kinds
from jaxrag.engines.scheduler import gather
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, prompts
from jaxrag.steps.tools import LanguageModelTool, Needs, Tools
from jaxrag.types import Generation, InputError, Passage, Prompt, Question


def prompt(
    question: Question,
    passages: Sequence[Passage] | None,
    llm: LanguageModelTool,
    reader: steps.Reader,
    trace: steps.Trace,
) -> Prompt:
    """The prompt for a question with passages (best first), or without any (None)."""
    role, fields = kinds.prompt_role(question, directly=passages is None), kinds.fields(question)
    if passages is not None:
        shown = steps.show_passages(question, passages, llm, reader, trace, role=role, **fields)
        fields = {**fields, "passages": shown}
    return prompts.load(reader.prompts).role(role).prompt(**fields)


def continuation(asked: Prompt, text: str) -> str:
    """A text as it follows a prompt: with a leading blank if it continues a line of plain text."""
    within = isinstance(asked, str) and not asked[-1:].isspace()
    return f" {text}" if within else text


async def choice_logprobs(
    question: Question,
    passages: Sequence[Passage] | None,
    tools: Tools,
    reader: steps.Reader,
    trace: steps.Trace | None = None,
) -> tuple[float, ...]:
    """Log-probability of each of the `options`, natural, by its first token alone; labels, by all.

    docs/methods.md, "R3: labels and draws": a passage helps if the gold option's next-token
    probability is above every other's. First tokens differ, as the options' first letters do,
    unless the tokenizer makes the blank before them a token. Labels of a data set may begin alike
    ("not enough info", "not true"), so theirs are the sums over all their tokens.

    Args:
      question: a closed one.
      passages: best first; None for a prompt without any.
      tools: the model.
      reader: prompts.
      trace: records truncation.

    Raises:
      InputError: the question is open, or all options have the same first token.
    """
    if not question_kinds.options(question):
        raise InputError(f"Question {question.id} is open: it has no options to compare.")
    asked = prompt(question, passages, tools.llm, reader, {} if trace is None else trace)
    return await _option_logprobs(question, asked, passages is None, tools, reader)


async def _option_logprobs(
    question: Question, asked: Prompt, directly: bool, tools: Tools, reader: steps.Reader
) -> tuple[float, ...]:
    role = kinds.prompt_role(question, directly=directly)
    said = kinds.words(question, prompts.load(reader.prompts).role(role))
    parts = (tools.llm.logprob(asked, continuation(asked, option)) for option in said)
    each = await gather(*parts)
    if question_kinds.role_of(question) == "labels":
        return tuple(float(np.sum(part, dtype=np.float64)) for part in each)
    found = tuple(float(part[0]) for part in each)
    if len(set(found)) == 1:
        raise InputError(
            f"Question {question.id}: all options have the same log-probability, {found[0]:.4g}, "
            "so they must share their first token, such as a blank: use prompts that end with a "
            "line break, as r3's do."
        )
    return found


class Answering(Protocol):
    """A Config that answers questions of any kind."""

    @property
    def reader(self) -> steps.Reader:
        """Prompts and decoding."""
        ...

    @property
    def closed_tokens(self) -> int:
        """Limit of new tokens for a closed question (see `kinds.answer_limit`)."""
        ...

    @property
    def by(self) -> kinds.By:
        """How a closed question is answered."""
        ...


def answering_needs(config: Answering) -> Needs:
    """Needs of `answer_from_passages` and `answer_directly`."""
    return config.reader.needs | Needs(scores=config.by != "text")


async def answer_from_passages(
    question: Question, rows: Sequence[int], tools: Tools, config: Answering, trace: steps.Trace
) -> steps.Reply:
    """Answers a question of any kind from the passages at ``rows``, shown in that order.

    For multiple choice, ``text`` of the reply is that of the `chosen` choices; for labels, the
    label. The trace records the kind of question and the answer.
    """
    return await _answer(question, tools.retriever.passages(rows), tools, config, trace)


async def answer_directly(
    question: Question, tools: Tools, config: Answering, trace: steps.Trace
) -> steps.Reply:
    """Answers a question of any kind from the model's own knowledge; see `answer_from_passages`."""
    return await _answer(question, None, tools, config, trace)


async def _answer(
    question: Question,
    passages: Sequence[Passage] | None,
    tools: Tools,
    config: Answering,
    trace: steps.Trace,
) -> steps.Reply:
    role, reader = question_kinds.role_of(question), config.reader
    trace["task"] = kinds.task_of(question)
    if role != "context" and config.by != "text":
        return await _most_probable(question, passages, tools, config, trace)
    if role != "context":
        limit = kinds.answer_limit(question, config.closed_tokens)
        reader = dataclasses.replace(reader, answer_tokens=limit)
    role, fields = kinds.prompt_role(question, directly=passages is None), kinds.fields(question)
    if passages is None:
        reply = await steps.ask(role, question, tools.llm, reader, **fields)
    else:
        reply = await steps.ask_from_passages(
            question, passages, tools.llm, reader, trace, role=role, **fields
        )
    template = prompts.load(reader.prompts).role(role)
    reply = reply._replace(text=kinds.read(reply.text, question, template))
    trace["answer"] = reply.record()
    kinds.note_option(reply.text, question, trace)
    return reply


async def _most_probable(
    question: Question,
    passages: Sequence[Passage] | None,
    tools: Tools,
    config: Answering,
    trace: steps.Trace,
) -> steps.Reply:
    """The option with the highest log-probability, as a reply; ties go to the first."""
    found = await choice_logprobs(question, passages, tools, config.reader, trace)
    if config.by == "calibrated":
        content_free = await _content_free_logprobs(
            question, passages is None, tools, config.reader
        )
        found = tuple(one - other for one, other in zip(found, content_free, strict=True))
    best = max(range(len(found)), key=found.__getitem__)
    text = question_kinds.option_texts(question)[best]
    said = Generation(text, (), (found[best],), "stop", 0)
    reply = steps.Reply(text, text, -found[best], said)
    trace["answer"] = {**reply.record(), "option_logprobs": list(found)}
    kinds.note_option(text, question, trace)
    return reply


async def _content_free_logprobs(
    question: Question, directly: bool, tools: Tools, reader: steps.Reader
) -> tuple[float, ...]:
    """`choice_logprobs` after a prompt with "N/A" in all of its fields but the list of labels."""
    template = prompts.load(reader.prompts).role(kinds.prompt_role(question, directly=directly))
    fields = dict.fromkeys(("question", "passages", "choices"), "N/A")
    if question_kinds.role_of(question) == "labels":  # the same for all questions, so no content
        fields["choices"] = kinds.fields(question)["choices"]
    asked = template.prompt(**fields)
    return await _option_logprobs(question, asked, directly, tools, reader)
