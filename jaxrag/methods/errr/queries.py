"""What ERRR and RRR share: queries written for a search engine, read, searched for, answered from.

METHODS section 4 (ERRR's equation 4: the reader gets R(f'(C, q)) and q, never C). A writer asks the
reader by its prompts (the frozen variants) or a model that was trained for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Sequence
from typing import Protocol

from jaxrag.functional.query_lists import Queries, different, parse_queries
from jaxrag.methods import prompts, steps, tasks
from jaxrag.methods.rewrite_steps import Search, record_searches
from jaxrag.methods.steps import Pool, Reader, Trace
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, Generation, InputError, Question

ERRR = "Rewrite better search queries to acquire or validate the knowledge needed for the question:"
"""What ERRR's T5 is told, to the letter (METHODS section 4.3)."""

RRR = "rewrite a better search query:"
"""What RRR's T5 is told, as its released code has it."""


class Writer(Protocol):
    """Writes queries for a question."""

    @property
    def context(self) -> bool:
        """Whether it is shown what the reader knows, C."""
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
class Trained:
    """The run's query optimizer writes them: the trainable variants.

    Attributes:
      instruction: what its input begins with.
      context: whether C is part of its input (ERRR does not say; its count of calls suggests it).
      ending: what its input ends with. T5 needs nothing; a decoder, which goes on where its input
        ends, must see that the question is over.
      tokens: most new tokens of all queries together.
      most: as in `Prompted`.
    """

    instruction: str = ERRR
    context: bool = True
    ending: str = ""
    tokens: int = 64
    most: int = 5

    def __post_init__(self) -> None:
        _check(self.tokens, self.most)

    def input(self, question: str, context: str = "") -> str:
        """The plain text that the optimizer reads: instruction, question, and C where it is shown.

        The question stands right after the instruction, as its last words want it, and C after it.
        """
        shown = f" Context: {' '.join(context.split())}" if self.context else ""
        return f"{self.instruction} {question}{shown}{self.ending}"

    async def __call__(
        self, question: Question, context: str, tools: Tools, reader: Reader, trace: Trace
    ) -> tuple[str, ...]:
        """Asks the optimizer, greedily.

        Raises:
          InputError: the run has none.
        """
        generation = await tools.optimizer.generate(
            self.input(question.text, context), max_new_tokens=self.tokens
        )
        return _read(question, generation, self.most, trace)


def _check(tokens: int, most: int) -> None:
    if tokens < 1 or most < 1:
        raise InputError(f"tokens is {tokens} and most {most}: at least 1 token and 1 query.")


def _read(question: Question, generation: Generation, most: int, trace: Trace) -> tuple[str, ...]:
    cut = generation.finish_reason == "length"
    found = parse_queries(generation.text, question.text, most=most, cut=cut)
    trace["queries"] = record(found, generation.text)
    return found.texts


def record(found: Queries, raw: str) -> Trace:
    """Queries as plain JSON: where none could be read, ``parsed`` is False."""
    return {"texts": list(found.texts), "parsed": found.parsed, "dropped": found.dropped,
            "raw": raw}  # fmt: skip


async def extract(question: Question, tools: Tools, reader: Reader, trace: Trace) -> str:
    """C = E(q | theta): the reader writes the document that would answer (METHODS section 4.2).

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
) -> Pool:
    """Searches for several queries side by side and merges what is found.

    Args:
      question: searched for first where ``itself``, unless it is among the queries.
      texts: the queries, the most important one first.
      tools: the index.
      search: passages of each query, how they are merged, and how many are read.
      trace: gets the searches and the selected passages.
      itself: whether the question is searched for as well.
    """
    asked = different((question.text, *texts)) if itself else tuple(texts)
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
