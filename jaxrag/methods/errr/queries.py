"""Steps of ERRR and RRR: writing search queries, searching, and reading the passages found.

A writer of queries is the reader itself with its prompts (`Prompted`, the frozen variants) or a
model trained for it (`Trained`, the trainable variants).

Source: docs/methods, "ERRR".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Sequence
from typing import Protocol

from jaxrag.core.checks import check_limits
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.methods.errr.parsed_queries import ParsedQueries, parse_queries, unique_queries
from jaxrag.steps.candidates import Search
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.reader import Reply
from jaxrag.types import Generation, Question

ERRR = "Rewrite better search queries to acquire or validate the knowledge needed for the question:"
"""The instruction of ERRR's T5, verbatim (docs/methods, "ERRR: prompts")."""

RRR = "rewrite a better search query:"
"""The instruction of RRR's T5 in its released code."""


class Writer(Protocol):
    """Writes queries for a question."""

    @property
    def context(self) -> bool:
        """Whether the writer is shown C, the extracted knowledge."""
        ...

    @property
    def most(self) -> int:
        """Limit of the queries that are used."""
        ...

    def __call__(self, episode: Episode, context: str) -> Awaitable[tuple[str, ...]]:
        """The queries, at least one; ``context`` is C, or "" for a writer that is not shown it."""
        ...


@dataclasses.dataclass(frozen=True)
class Prompted:
    """The reader writes the queries: the frozen variants.

    Attributes:
      context: whether it is shown C (role "queries_from_context", ERRR) or not ("queries", RRR).
      tokens: most new tokens of all queries together.
      most: most queries that are used, the first ones (the papers set no bound).
    """

    context: bool = True
    tokens: int = 128
    most: int = 5

    def __post_init__(self) -> None:
        check_limits(tokens=self.tokens, most=self.most)

    async def __call__(self, episode: Episode, context: str) -> tuple[str, ...]:
        """Asks the reader."""
        if self.context:
            role = "queries_from_context"
            reply = await episode.ask(role, limit=self.tokens, context=context)
        else:
            reply = await episode.ask("queries", limit=self.tokens)
        return _parse(episode, reply.generation, self.most)


@dataclasses.dataclass(frozen=True)
class StudentInput:
    """Input of a trained query optimizer.

    Attributes:
      instruction: its first words.
      context: whether C is part of it (ERRR does not say; its number of calls suggests it).
      ending: its last words, for a decoder, which would otherwise continue the question.
    """

    instruction: str = ERRR
    context: bool = True
    ending: str = ""

    def text(self, question: str, context: str = "") -> str:
        """Instruction, question and, where ``context``, C, which follows the question."""
        part = f" Context: {' '.join(context.split())}" if self.context else ""
        return f"{self.instruction} {question}{part}{self.ending}"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained query optimizer writes the queries: the trainable variants.

    Attributes:
      model: its checkpoint and engine: a T5 or a decoder.
      tokens: most new tokens of all queries together.
    """

    reads: StudentInput = StudentInput()
    model: ModelSettings = Seq2Seq()
    tokens: int = 128
    most: int = 5

    def __post_init__(self) -> None:
        check_limits(tokens=self.tokens, most=self.most)

    @property
    def context(self) -> bool:
        """Whether the writer is shown C, the extracted knowledge."""
        return self.reads.context

    async def __call__(self, episode: Episode, context: str) -> tuple[str, ...]:
        """Asks the optimizer, greedily."""
        text = self.reads.text(episode.question.text, context)
        optimizer = episode.model(self.model)
        return _parse(
            episode, await optimizer.generate(text, max_new_tokens=self.tokens), self.most
        )


def _parse(episode: Episode, generation: Generation, most: int) -> tuple[str, ...]:
    """The queries in a generation, or the question if there are none (``parsed`` is false)."""
    queries = parse_generation(episode.question, generation, most)
    episode.note(
        queries={
            "texts": list(queries.texts),
            "parsed": queries.parsed,
            "dropped": queries.dropped,
            "raw": generation.text,
        }
    )
    return queries.texts


def parse_generation(question: Question, generation: Generation, most: int) -> ParsedQueries:
    """The queries in a generation; if it was cut at its length limit, the last is incomplete."""
    cut = generation.finish_reason == "length"
    return parse_queries(generation.text, question.text, limit=most, truncated=cut)


async def search_for(
    episode: Episode, texts: Sequence[str], search: Search, *, search_question: bool
) -> Pool:
    """The merged results of several queries, the most important one first.

    The question is searched for before them if ``search_question``, unless it is among them.
    """
    question = episode.question.text
    return await search(
        episode, unique_queries((question, *texts)) if search_question else tuple(texts)
    )


async def read(episode: Episode, pool: Pool) -> Reply:
    """Answers the question from passages, or directly if none were found (as on the web).

    Equation 4 of ERRR: the reader gets R(f'(C, q)) and q, never C.
    """
    if not pool:
        return episode.conclude(await episode.direct(), read=pool)
    return await episode.answer(pool)
