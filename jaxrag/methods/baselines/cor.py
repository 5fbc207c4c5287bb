"""CoR (chain of rank; Lee et al. 2025) by prompting: the model ranks passages by reliability.

It is shown n numbered passages and writes their numbers in order, the most reliable first; the k
first are then read in a second prompt. Chain of rank tunes a small model for a domain, so that it
ranks its documents before it answers, where others reason at length; here an untuned model is
prompted, once for the ranking and once for the answer. ARS-RAG does not say how it ran CoR.

Whatever the model writes is read: its numbers in order, each once. Numbers of no passage and
repeated ones are left out, passages that it does not name follow in the order of the search, and
the trace counts all three.

Source: docs/methods.md, "CoR".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.passage_selectors import record_choice
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, InputError, Passage, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """How many passages are ranked and read.

    Attributes:
      candidates: the passages that the model ranks, all in one prompt.
      k: how many are read.
      ranking_tokens: most new tokens of the ranking.
      reader: how the model is asked; ``answer_tokens`` is for open questions.
      closed_tokens: most new tokens of the answer to a closed question.
      by: what answers a closed question, see `kinds.By`.
    """

    name = "cor"

    candidates: steps.Candidates = OnePath(n=10)
    k: int = 5
    ranking_tokens: int = 64
    reader: steps.Reader = steps.Reader(prompts="baselines")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)
        if min(self.k, self.ranking_tokens, self.closed_tokens) < 1:
            raise InputError(
                f"k is {self.k}, ranking_tokens {self.ranking_tokens} and closed_tokens "
                f"{self.closed_tokens}; each must be at least 1."
            )

    @property
    def needs(self) -> Needs:
        """Those of the search and of answering."""
        return tasks.answering_needs(self) | needs_of(candidates=self.candidates)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Has the passages ranked, then reads the first."""
        trace: steps.Trace = {}
        pool = await steps.find_candidates(question, tools, self, trace)
        passages = tools.retriever.passages(pool.rows)
        order = await _ranked(question, passages, tools, self, trace)
        rows = tuple(pool.rows[i] for i in order.positions[: self.k])
        record_choice(trace, tools, pool, {"score": pool.scores}, rows)
        reply = await tasks.answer_from_passages(question, rows, tools, self, trace)
        return Answer(question.id, reply.text, trace)


class Order(NamedTuple):
    """Positions of all passages, best first, and what was wrong with the numbers as written."""

    positions: tuple[int, ...]
    unknown: int
    duplicate: int
    missing: int


def read_order(text: str, count: int) -> Order:
    """The order of ``count`` passages that a text with their numbers (from 1) gives."""
    written = [int(digits) if len(digits) < 10 else 0 for digits in re.findall(r"[0-9]+", text)]
    known = [number - 1 for number in written if 1 <= number <= count]
    named = tuple(dict.fromkeys(known))
    rest = tuple(sorted(set(range(count)) - set(named)))
    return Order(named + rest, len(written) - len(known), len(known) - len(named), len(rest))


async def _ranked(
    question: Question,
    passages: Sequence[Passage],
    tools: Tools,
    config: Config,
    trace: steps.Trace,
) -> Order:
    """Asks for the ranking; the numbers stand before the titles."""
    numbered = [
        dataclasses.replace(passage, title=f"[{number}] {passage.title}")
        for number, passage in enumerate(passages, start=1)
    ]
    reader = dataclasses.replace(config.reader, answer_tokens=config.ranking_tokens)
    cut: steps.Trace = {}
    reply = await steps.ask_from_passages(
        question, numbered, tools.llm, reader, cut, role="rank_ids"
    )
    order = read_order(reply.text, len(passages))
    trace["ranking"] = {
        **reply.record(),
        **cut,
        "ids": [passages[i].id for i in order.positions],
        "unknown": order.unknown,
        "duplicate": order.duplicate,
        "missing": order.missing,
    }
    return order
