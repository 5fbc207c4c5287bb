"""What ERRR and RRR share: queries written for a search engine, read, searched for, answered from.

docs/methods.md, "ERRR" (ERRR's equation 4: the reader gets R(f'(C, q)) and q, never C). A writer
asks the reader by its prompts (the frozen variants) or a model that was trained for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Sequence
from typing import Protocol

from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.steps import asking as steps
from jaxrag.steps import prompts, tasks
from jaxrag.steps.asking import CandidatePool, Reader, Trace
from jaxrag.steps.candidates import Search, record_searches
from jaxrag.steps.needs import MethodPart, ModelHelper, Needs
from jaxrag.steps.tools import Tools
from jaxrag.text.query_lists import ParsedQueries, parse_queries, unique_queries
from jaxrag.types import Answer, Generation, InputError, Question

ERRR = "Rewrite better search queries to acquire or validate the knowledge needed for the question:"
"""What ERRR's T5 is told, to the letter (docs/methods.md, "ERRR: prompts")."""

RRR = "rewrite a better search query:"
"""What RRR's T5 is told, as its released code has it."""


class Writer(MethodPart, Protocol):
    """Writes queries for a question."""

    @property
    def context(self) -> bool:
        """Whether it is shown what the reader knows, C."""
        ...

    @property
    def most(self) -> int:
        """Most queries that are searched for."""
        ...

    def __call__(
        self, question: Question, context: str, tools: Tools, reader: Reader, trace: Trace
    ) -> Awaitable[tuple[str, ...]]:
        """The queries, at least one; ``context`` is "" where it is shown none."""
        ...


@dataclasses.dataclass(frozen=True)
class Prompted:
    """The reader writes them, by its prompts: the frozen variants.

    Attributes:
      context: whether it is shown C (role "queries_from_context", ERRR) or not ("queries", RRR).
      tokens: most new tokens of all queries together.
      most: most queries that are searched for, the first ones (the papers set no bound).
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
        role, told = "queries", {"question": steps.question_text(question)}
        if self.context:
            role, told = "queries_from_context", {**told, "context": context}
        template = prompts.load(reader.prompts).role(role)
        generation = await tools.llm.generate(
            template.prompt(**told),
            max_new_tokens=self.tokens,
            temperature=reader.temperature,
            stop=template.stop,
        )
        return _read(question, generation, self.most, trace)


@dataclasses.dataclass(frozen=True)
class StudentInput:
    """What a trained query optimizer reads.

    Attributes:
      instruction: how it begins.
      context: whether C is part of it (ERRR does not say; its count of calls suggests it).
      ending: how it ends. T5 needs nothing; a decoder, which goes on where its input ends, must see
        that the question is over.
    """

    instruction: str = ERRR
    context: bool = True
    ending: str = ""

    def text(self, question: str, context: str = "") -> str:
        """The plain text: instruction, question, and C where it is shown.

        The question stands right after the instruction, as its last words want it, and C after it.
        """
        shown = f" Context: {' '.join(context.split())}" if self.context else ""
        return f"{self.instruction} {question}{shown}{self.ending}"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained query optimizer writes them: the trainable variants.

    Attributes:
      reads: what it is given.
      model: its checkpoint and engine: a T5, or a decoder.
      tokens: most new tokens of all queries together.
      most: as in `Prompted`.
    """

    reads: StudentInput = StudentInput()
    model: ModelSettings = Seq2Seq()
    tokens: int = 64
    most: int = 5

    def __post_init__(self) -> None:
        _check(self.tokens, self.most)

    @property
    def context(self) -> bool:
        """Whether it is shown C."""
        return self.reads.context

    @property
    def needs(self) -> Needs:
        """The trained model."""
        return Needs(helpers={"model": ModelHelper(self.model)})

    async def __call__(
        self, question: Question, context: str, tools: Tools, reader: Reader, trace: Trace
    ) -> tuple[str, ...]:
        """Asks the optimizer, greedily."""
        optimizer = tools.helper(ModelHelper(self.model))
        text = self.reads.text(question.text, context)
        generation = await optimizer.generate(text, max_new_tokens=self.tokens)
        return _read(question, generation, self.most, trace)


def _check(tokens: int, most: int) -> None:
    if tokens < 1 or most < 1:
        raise InputError(f"tokens is {tokens} and most {most}: at least 1 token and 1 query.")


def _read(question: Question, generation: Generation, most: int, trace: Trace) -> tuple[str, ...]:
    cut = generation.finish_reason == "length"
    found = parse_queries(generation.text, question.text, limit=most, truncated=cut)
    trace["queries"] = record(found, generation.text)
    return found.texts


def record(found: ParsedQueries, raw: str) -> Trace:
    """Queries as plain JSON: where none could be read, ``parsed`` is False."""
    return {"texts": list(found.texts), "parsed": found.parsed, "dropped": found.dropped,
            "raw": raw}  # fmt: skip


async def extract(question: Question, tools: Tools, reader: Reader, trace: Trace) -> str:
    """C = E(q | theta): the reader writes the document that would answer.

    Source: docs/methods.md, "ERRR: algorithm".

    An empty one is the question itself; the trace shows it as empty.
    """
    return await steps.write_pseudo_context(question, tools, reader, trace)


async def search_for(
    question: Question,
    texts: Sequence[str],
    tools: Tools,
    search: Search,
    trace: Trace,
    *,
    itself: bool,
) -> CandidatePool:
    """Searches for several queries side by side and merges what is found.

    Args:
      question: searched for first where ``itself``, unless it is among the queries.
      texts: the queries, the most important one first.
      tools: the index.
      search: passages of each query, how they are merged, and how many are read.
      trace: gets the searches and the selected passages.
      itself: whether the question is searched for as well.
    """
    asked = unique_queries((question.text, *texts)) if itself else tuple(texts)
    rankings = await search.of_all(asked, tools)
    record_searches(asked, rankings, tools, trace)
    pool = search.merged(rankings)
    steps.record_selected(pool.rows, tools, trace, pool.scores)
    return pool


class Reading(tasks.Answering, Protocol):
    """The part of a method's config that says how queries are searched for and answered from."""

    @property
    def search(self) -> Search:
        """How queries are searched for."""
        ...

    @property
    def search_question(self) -> bool:
        """Whether the question is searched for, too."""
        ...


async def search_and_read(
    question: Question, texts: Sequence[str], tools: Tools, config: Reading, trace: Trace
) -> Answer:
    """Searches, then answers the question itself from the passages.

    Where no passage is found, as on the web, the question is answered directly.
    """
    pool = await search_for(
        question, texts, tools, config.search, trace, itself=config.search_question
    )
    if pool.rows:
        reply = await tasks.answer_from_passages(question, pool.rows, tools, config, trace)
    else:
        reply = await tasks.answer_directly(question, tools, config, trace)
    return Answer(question.id, reply.text, trace)
