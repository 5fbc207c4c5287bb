"""Steps of ERRR and RRR: writing search queries, searching, and reading the passages found.

A writer of queries is the reader itself with its prompts (`Prompted`, the frozen variants) or a
model trained for it (`Trained`, the trainable variants).

Source: docs/methods.md, "ERRR".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Sequence
from typing import Protocol

from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.methods.errr.parsed_queries import ParsedQueries, parse_queries, unique_queries
from jaxrag.steps import asking as steps
from jaxrag.steps import prompts, tasks
from jaxrag.steps.asking import CandidatePool, Reader, Trace
from jaxrag.steps.candidates import Search, record_searches
from jaxrag.steps.tools import MethodPart, ModelHelper, Needs, Tools
from jaxrag.types import Generation, InputError, Question

ERRR = "Rewrite better search queries to acquire or validate the knowledge needed for the question:"
"""The instruction of ERRR's T5, verbatim (docs/methods.md, "ERRR: prompts")."""

RRR = "rewrite a better search query:"
"""The instruction of RRR's T5 in its released code."""


class Writer(MethodPart, Protocol):
    """Writes queries for a question."""

    @property
    def context(self) -> bool:
        """Whether the writer is shown C, the extracted knowledge."""
        ...

    @property
    def most(self) -> int:
        """Limit of the queries that are used."""
        ...

    def __call__(
        self, question: Question, context: str, tools: Tools, reader: Reader, trace: Trace
    ) -> Awaitable[tuple[str, ...]]:
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

    needs = Needs()

    context: bool = True
    tokens: int = 128
    most: int = 5

    def __post_init__(self) -> None:
        _check(self.tokens, self.most)

    async def __call__(
        self, question: Question, context: str, tools: Tools, reader: Reader, trace: Trace
    ) -> tuple[str, ...]:
        """Asks the reader."""
        role, fields = "queries", {"question": steps.question_text(question)}
        if self.context:
            role, fields = "queries_from_context", {**fields, "context": context}
        template = prompts.load(reader.prompts).role(role)
        generation = await tools.llm.generate(
            template.prompt(**fields),
            max_new_tokens=self.tokens,
            temperature=reader.temperature,
            repetition_penalty=reader.repetition_penalty,
            stop=template.stop,
        )
        return _parse(question, generation, self.most, trace)


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
        shown = f" Context: {' '.join(context.split())}" if self.context else ""
        return f"{self.instruction} {question}{shown}{self.ending}"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained query optimizer writes the queries: the trainable variants.

    Attributes:
      reads: its input.
      model: its checkpoint and engine: a T5 or a decoder.
      tokens: most new tokens of all queries together.
      most: as in `Prompted`.
    """

    reads: StudentInput = StudentInput()
    model: ModelSettings = Seq2Seq()
    tokens: int = 128
    most: int = 5

    def __post_init__(self) -> None:
        _check(self.tokens, self.most)

    @property
    def context(self) -> bool:
        """Whether the writer is shown C, the extracted knowledge."""
        return self.reads.context

    @property
    def needs(self) -> Needs:
        """The trained model, as a helper."""
        return Needs(helpers={"model": ModelHelper(self.model)})

    async def __call__(
        self, question: Question, context: str, tools: Tools, reader: Reader, trace: Trace
    ) -> tuple[str, ...]:
        """Asks the optimizer, greedily."""
        optimizer = tools.helper(ModelHelper(self.model))
        text = self.reads.text(question.text, context)
        generation = await optimizer.generate(text, max_new_tokens=self.tokens)
        return _parse(question, generation, self.most, trace)


def _check(tokens: int, most: int) -> None:
    if tokens < 1 or most < 1:
        raise InputError(f"tokens is {tokens} and most {most}: at least 1 token and 1 query.")


def _parse(question: Question, generation: Generation, most: int, trace: Trace) -> tuple[str, ...]:
    """The queries in a generation, or the question if there are none (``parsed`` is false)."""
    found = parse_generation(question, generation, most)
    trace["queries"] = {
        "texts": list(found.texts),
        "parsed": found.parsed,
        "dropped": found.dropped,
        "raw": generation.text,
    }
    return found.texts


def parse_generation(question: Question, generation: Generation, most: int) -> ParsedQueries:
    """The queries in a generation; if it was cut at its length limit, the last is incomplete."""
    cut = generation.finish_reason == "length"
    return parse_queries(generation.text, question.text, limit=most, truncated=cut)


async def extract(question: Question, tools: Tools, reader: Reader, trace: Trace) -> str:
    """Parametric knowledge extraction, C = E(q | theta): the reader writes a pseudo-document.

    An empty one is replaced by the question; the trace shows it as empty.
    """
    return await steps.write_pseudo_context(question, tools, reader, trace)


async def search_for(
    question: Question,
    texts: Sequence[str],
    tools: Tools,
    search: Search,
    trace: Trace,
    *,
    search_question: bool,
) -> CandidatePool:
    """Searches for several queries and merges their results.

    Args:
      question: searched for first if ``search_question``, unless it is among the queries.
      texts: the queries, the most important one first.
      tools: the index.
      search: passages of each query, how they are merged, and how many are read.
      trace: gets the searches and the selected passages.
      search_question: whether the question is searched for, too.
    """
    searched = unique_queries((question.text, *texts)) if search_question else tuple(texts)
    rankings = await search.search_all(searched, tools)
    record_searches(searched, rankings, tools, trace)
    pool = search.merged(rankings)
    steps.record_selected(pool.rows, tools, trace, pool.scores)
    return pool


async def read(
    question: Question, pool: CandidatePool, tools: Tools, config: tasks.Answering, trace: Trace
) -> steps.Reply:
    """Answers the question from passages, or directly if none were found (as on the web).

    Equation 4 of ERRR: the reader gets R(f'(C, q)) and q, never C.
    """
    if pool.rows:
        return await tasks.answer_from_passages(question, pool.rows, tools, config, trace)
    return await tasks.answer_directly(question, tools, config, trace)
