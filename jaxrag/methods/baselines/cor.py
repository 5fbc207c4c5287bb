"""CoR (chain of rank; Lee et al. 2025) by prompting: the model ranks passages by reliability.

1. The prompt shows n numbered passages; the model writes their numbers, the most reliable first.
2. A second prompt answers the question from the first k of them.

Chain of rank fine-tunes a small model for a domain to rank its documents before it answers; here an
untuned model is prompted for both. ARS-RAG does not say how it ran CoR.

Any output is a ranking: its numbers in order, each once. Unknown and repeated numbers are left out,
and passages that it does not name follow in the order of the search; the trace counts all three.

Source: docs/methods.md, "CoR".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

from jaxrag.core.checks import check_limits
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import record_choice
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.types import Answer, Passage, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """CoR's settings.

    Attributes:
      candidates: passages that the model ranks, all in one prompt.
      k: how many of them are read.
      ranking_tokens: most new tokens of the ranking.
      reader: prompts and decoding; ``answer_tokens`` is for open questions.
      closed_tokens: most new tokens of the answer to a closed question.
      by: how a closed question is answered, see `kinds.By`.
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
        check_limits(k=self.k, ranking_tokens=self.ranking_tokens)

    @property
    def needs(self) -> Needs:
        """Needs of the candidates and of answering."""
        return tasks.answering_needs(self) | needs_of(candidates=self.candidates)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Ranks the passages, then reads the first."""
        trace: steps.Trace = {}
        pool = await steps.find_candidates(question, tools, self, trace)
        passages = tools.retriever.passages(pool.rows)
        order = await _ranked(question, passages, tools, self, trace)
        rows = tuple(pool.rows[i] for i in order.positions[: self.k])
        record_choice(trace, tools, pool, {"score": pool.scores}, rows)
        reply = await tasks.answer_from_passages(question, rows, tools, self, trace)
        return Answer(question.id, reply.text, trace)


class RankedIds(NamedTuple):
    """Positions of all passages, best first, and the number of faults in the written ranking."""

    positions: tuple[int, ...]
    unknown: int
    duplicate: int
    missing: int


def read_order(text: str, count: int) -> RankedIds:
    """The ranking of ``count`` passages in a text with their numbers, from 1."""
    written = [int(digits) if len(digits) < 10 else 0 for digits in re.findall(r"[0-9]+", text)]
    known = [number - 1 for number in written if 1 <= number <= count]
    named = tuple(dict.fromkeys(known))
    rest = tuple(sorted(set(range(count)) - set(named)))
    return RankedIds(named + rest, len(written) - len(known), len(known) - len(named), len(rest))


async def _ranked(
    question: Question,
    passages: Sequence[Passage],
    tools: Tools,
    config: Config,
    trace: steps.Trace,
) -> RankedIds:
    """Asks for the ranking of passages whose titles begin with their numbers."""
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
