"""Self-RAG's segments: each is written from one passage or from none, and judged.

A short answer is one segment; a long one is written sentence by sentence. ``parts`` are the
segments so far: sentences; for a checkpoint, with reflection tokens around them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from jaxrag.data import question_kinds
from jaxrag.functional.self_rag import Critique
from jaxrag.methods.self_rag import reflection
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, loops, prompts, tasks
from jaxrag.steps.tools import Tools
from jaxrag.types import FilledText, InputError, Question

Form = Literal["short", "long"]


class Writing(tasks.Answering, Protocol):
    """The settings of a method that writes segments."""

    @property
    def form(self) -> Form:
        """One segment, or one sentence of several."""
        ...

    @property
    def segment_tokens(self) -> int:
        """Most new tokens of a sentence."""
        ...


class JudgedSegment(NamedTuple):
    """A segment, its judgements (None if it is empty), and how later prompts show it."""

    reply: steps.Reply
    critique: Critique | None
    part: str


async def by_tokens(
    question: Question, parts: Sequence[str], row: int | None, tools: Tools, config: Writing
) -> JudgedSegment:
    """A segment of a Self-RAG checkpoint; later segments do not see its passage."""
    asked, template = instruction(question, parts, config)
    short, closed = config.form == "short", question_kinds.role_of(question) != "context"
    tokens = config.reader.answer_tokens
    if closed:
        tokens = kinds.answer_limit(question, config.closed_tokens)
    made = await reflection.write(
        asked,
        _shown(row, tools, config),
        tools.llm,
        sentence=not short,
        max_new_tokens=tokens if short else config.segment_tokens,
        temperature=config.reader.temperature,
        repetition_penalty=config.reader.repetition_penalty,
        stop=template.stop,
    )
    text = steps.parse_answer(made.generation.text, template.parse)
    text = kinds.read(text, question, template) if short else text
    u = steps.mean_nll(made.generation, config.reader)
    reply = steps.Reply(text, made.generation.text, u, made.generation)
    return JudgedSegment(reply, made.critique, made.text)


def instruction(
    question: Question, parts: Sequence[str], config: Writing
) -> tuple[str, prompts.Template]:
    """The text that a checkpoint continues, and its prompt template.

    Raises:
      InputError: the prompt is a chat.
    """
    layout = prompts.load(config.reader.prompts)
    name, fields = kinds.prompt_role(question, directly=True), kinds.fields(question)
    if config.form == "long":
        name, fields = "continue_direct", prompt_fields(question, ())
    template = layout.role(name)
    asked = template.prompt(**{**fields, "so_far": FilledText("".join(parts))})
    if not isinstance(asked, str):
        raise InputError(
            f"{layout.path} [{name}] is a chat; a Self-RAG checkpoint continues plain text: set "
            "reader.prompts=self_rag_checkpoint, or chat = false in prompts of your own."
        )
    return asked, template


async def by_prompts(
    question: Question, parts: Sequence[str], row: int | None, tools: Tools, config: Writing
) -> JudgedSegment:
    """A segment of any model, and its judgements by prompts."""
    reply = await _written(question, parts, row, tools, config)
    if config.form == "long" and not reply.text:
        return JudgedSegment(reply, None, "")
    long = config.form == "long"
    said = reflection.whole(reply.text, reply.generation) if long else reply.text
    critique = await reflection.judge(
        config.reader.prompts,
        tools.llm,
        question=loops.with_choices(question),
        answer=" ".join([*parts, said]),
        said=said,
        passage=_shown(row, tools, config),
    )
    return JudgedSegment(reply, critique, said)


async def _written(
    question: Question, parts: Sequence[str], row: int | None, tools: Tools, config: Writing
) -> steps.Reply:
    own: steps.Trace = {}  # the question's trace has the chosen segment alone
    if config.form == "short":
        if row is None:
            return await tasks.answer_directly(question, tools, config, own)
        return await tasks.answer_from_passages(question, (row,), tools, config, own)
    reader = dataclasses.replace(config.reader, answer_tokens=config.segment_tokens)
    fields = prompt_fields(question, parts)
    if row is None:
        return await steps.ask("continue_direct", question, tools.llm, reader, **fields)
    passages = tools.retriever.passages([row])
    return await steps.ask_from_passages(
        question, passages, tools.llm, reader, own, role="continue", **fields
    )


def prompt_fields(question: Question, parts: Sequence[str]) -> dict[str, str]:
    """Fields of a prompt: the question with its choices, and the segments so far."""
    return {
        "question": loops.with_choices(question),
        "so_far": "".join(f" {part}" for part in parts),
    }


def _shown(row: int | None, tools: Tools, config: Writing) -> str | None:
    """A passage as the prompt shows it."""
    if row is None:
        return None
    return prompts.load(config.reader.prompts).render(tools.retriever.passages([row]))
