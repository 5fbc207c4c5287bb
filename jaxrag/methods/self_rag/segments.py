"""Self-RAG's segments: each is written from one passage or from none, and judged.

``parts`` are the segments so far: sentences; for a checkpoint, with reflection tokens around them.
``tokens`` is the limit of new tokens of a sentence, None for a short answer, which is one segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from jaxrag.data import question_kinds
from jaxrag.functional.self_rag import Critique
from jaxrag.methods.self_rag import reflection
from jaxrag.steps import kinds, loops, prompts
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.reader import Reply, mean_nll
from jaxrag.text.model_output import parse_answer
from jaxrag.types import FilledText, InputError

Form = Literal["short", "long"]


class JudgedSegment(NamedTuple):
    """A segment, its judgements (None if it is empty), and how later prompts show it."""

    reply: Reply
    critique: Critique | None
    part: str


async def by_tokens(
    episode: Episode, parts: Sequence[str], passage: Pool | None, tokens: int | None
) -> JudgedSegment:
    """A segment of a Self-RAG checkpoint; later segments do not see its passage."""
    question, reader, short = episode.question, episode.reader, tokens is None
    asked, template = instruction(episode, parts, short=short)
    if tokens is None:
        tokens = reader.answer_tokens
        if question_kinds.options(question):
            tokens = kinds.answer_limit(question, reader.closed_tokens)
    judged = await reflection.write(
        asked,
        None if passage is None else episode.shown(passage),
        episode,
        sentence=not short,
        max_new_tokens=tokens,
        temperature=reader.temperature,
        repetition_penalty=reader.repetition_penalty,
        stop=template.stop,
    )
    text = parse_answer(judged.generation.text, template.parse)
    text = kinds.read(text, question, template) if short else text
    u = mean_nll(judged.generation, reader)
    reply = Reply(text, judged.generation.text, u, judged.generation)
    return JudgedSegment(reply, judged.critique, judged.text)


def instruction(
    episode: Episode, parts: Sequence[str], *, short: bool
) -> tuple[str, prompts.Template]:
    """The text that a checkpoint continues, and its prompt's template; InputError for a chat."""
    question, layout = episode.question, prompts.load(episode.reader.prompts)
    name, fields = kinds.prompt_role(question, directly=True), kinds.fields(question)
    if not short:
        name, fields = "continue_direct", prompt_fields(episode, ())
    template = layout.role(name)
    asked = template.prompt(**{**fields, "so_far": FilledText("".join(parts))})
    if not isinstance(asked, str):
        raise InputError(
            f"{layout.path} [{name}] is a chat; a Self-RAG checkpoint continues plain text: set "
            "reader.prompts=self_rag_checkpoint, or chat = false in prompts of your own."
        )
    return asked, template


async def by_prompts(
    episode: Episode, parts: Sequence[str], passage: Pool | None, tokens: int | None
) -> JudgedSegment:
    """A segment of any model, and its judgements by prompts."""
    if tokens is None:
        reply = await episode.read(passage)
        said = reply.text
    else:
        role = "continue_direct" if passage is None else "continue"
        fields = prompt_fields(episode, parts)
        reply = await episode.ask(role, passages=passage, limit=tokens, **fields)
        if not reply.text:
            return JudgedSegment(reply, None, "")
        said = reflection.whole(reply.text, reply.generation)
    critique = await reflection.judge(
        episode,
        question=loops.with_choices(episode.question),
        answer=" ".join([*parts, said]),
        said=said,
        passage=None if passage is None else episode.shown(passage),
    )
    return JudgedSegment(reply, critique, said)


def prompt_fields(episode: Episode, parts: Sequence[str]) -> dict[str, Any]:
    """Fields of a prompt: the question with its choices, and the segments so far."""
    return {
        "question": loops.with_choices(episode.question),
        "so_far": "".join(f" {part}" for part in parts),
    }
