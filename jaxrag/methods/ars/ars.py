"""ARS-RAG: rewrites of a question, a ranker that orders them, a bandit that says how many to keep.

docs/methods.md, "ARS-RAG": ten rewrites from one generation, ordered; the K first are searched for;
their passages become one list, from which the question is answered. ``order`` and ``count`` make
the paper's strategies and ablations: see `configs/ars.py`.
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods.ars.rewrite_steps import Chosen, Count, Order, Ranked
from jaxrag.methods.ars.rewrites import Rewriter, rewrite
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.searches import Search, record_searches
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings.

    Attributes:
      rewriter: how rewrites are asked for.
      order: which come first.
      count: how many are kept.
      search: how they are searched for, and how many passages are read.
      reader: how the model is asked.
      closed_tokens: most new tokens of a closed question's answer.
      by: what answers a closed question, see `kinds.By`.
    """

    name = "ars"

    rewriter: Rewriter = Rewriter()
    order: Order = Ranked()
    count: Count = Chosen()
    search: Search = Search()
    reader: steps.Reader = steps.Reader(prompts="ars")
    closed_tokens: int = 20
    by: kinds.By = "text"

    @property
    def needs(self) -> Needs:
        """Those of the orders, the count, the search and answering."""
        found = needs_of(order=self.order, count=self.count)
        return Needs(search=True) | found | tasks.answering_needs(self)

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Rewrites, orders, keeps K, searches, reads."""
        trace: steps.Trace = {}
        written = await rewrite(question, tools.llm, self.reader, self.rewriter, trace)
        ordered = await self.order(question, written.texts, tools, self.search, trace)
        k = await self.count(question, len(written.texts), tools)
        trace["kept"] = {"k": k, "numbers": list(ordered.numbers), "scores": list(ordered.scores)}
        kept = [written.texts[number] for number in ordered.numbers[:k]]
        rankings = await self.search.of_all(kept, tools)
        record_searches(kept, rankings, tools, trace)
        pool = self.search.merged(rankings)
        steps.record_selected(pool.rows, tools, trace, pool.scores)
        reply = await tasks.answer_from_passages(question, pool.rows, tools, self, trace)
        return Answer(question.id, reply.text, trace)
