"""Self-RAG's segments: each is written from one passage or from none, and judged.

A short answer is one segment; a long one is written sentence by sentence. ``parts`` are the
segments so far: sentences; for a checkpoint, with reflection tokens around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

from jaxrag.data import question_kinds
from jaxrag.functional.self_rag import Critique
from jaxrag.methods.self_rag import reflection
from jaxrag.steps import kinds, loops, prompts
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.reader import Reply, mean_nll
from jaxrag.text.model_output import parse_answer
from jaxrag.types import FilledText, InputError

Form = Literal["short", "long"]


class Writing(Protocol):
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

    reply: Reply
    critique: Critique | None
    part: str


async def by_tokens(
    episode: Episode, parts: Sequence[str], passage: Pool | None, config: Writing
) -> JudgedSegment:
    """A segment of a Self-RAG checkpoint; later segments do not see its passage."""
    question, reader, short = episode.question, episode.reader, config.form == "short"
    asked, template = instruction(episode, parts, config)
    tokens = reader.answer_tokens
    if question_kinds.role_of(question) != "context":
        tokens = kinds.answer_limit(question, reader.closed_tokens)
    made = await reflection.write(
        asked,
        None if passage is None else episode.shown(passage),
        episode,
        sentence=not short,
        max_new_tokens=tokens if short else config.segment_tokens,
        temperature=reader.temperature,
        repetition_penalty=reader.repetition_penalty,
        stop=template.stop,
    )
    text = parse_answer(made.generation.text, template.parse)
    text = kinds.read(text, question, template) if short else text
    u = mean_nll(made.generation, reader)
    reply = Reply(text, made.generation.text, u, made.generation)
    return JudgedSegment(reply, made.critique, made.text)


def instruction(
    episode: Episode, parts: Sequence[str], config: Writing
) -> tuple[str, prompts.Template]:
    """The text that a checkpoint continues, and its prompt template.

    Raises:
      InputError: the prompt is a chat.
    """
    question, layout = episode.question, prompts.load(episode.reader.prompts)
    name, fields = kinds.prompt_role(question, directly=True), kinds.fields(question)
    if config.form == "long":
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
    episode: Episode, parts: Sequence[str], passage: Pool | None, config: Writing
) -> JudgedSegment:
    """A segment of any model, and its judgements by prompts."""
    long = config.form == "long"
    reply = await _written(episode, parts, passage, config)
    if long and not reply.text:
        return JudgedSegment(reply, None, "")
    said = reflection.whole(reply.text, reply.generation) if long else reply.text
    critique = await reflection.judge(
        episode,
        question=loops.with_choices(episode.question),
        answer=" ".join([*parts, said]),
        said=said,
        passage=None if passage is None else episode.shown(passage),
    )
    return JudgedSegment(reply, critique, said)


async def _written(
    episode: Episode, parts: Sequence[str], passage: Pool | None, config: Writing
) -> Reply:
    if config.form == "short":
        return await episode.read(passage)
    role = "continue_direct" if passage is None else "continue"
    fields = prompt_fields(episode, parts)
    return await episode.ask(role, passages=passage, limit=config.segment_tokens, **fields)


def prompt_fields(episode: Episode, parts: Sequence[str]) -> dict[str, Any]:
    """Fields of a prompt: the question with its choices, and the segments so far."""
    return {
        "question": loops.with_choices(episode.question),
        "so_far": "".join(f" {part}" for part in parts),
    }
