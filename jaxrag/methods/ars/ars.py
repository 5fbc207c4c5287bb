"""ARS-RAG: adaptive rewrite selection.

1. One generation gives N = 10 rewrites of the question.
2. The ranker orders them by how many relevant passages each is expected to find.
3. The bandit chooses K = pi(x) from the embedding x of the question (eqs 4-5).
4. The first K rewrites are searched for, m = 5 passages each; the results become one list.
5. The language model answers the question from these passages.

Other values of ``order`` and ``count`` give the paper's strategies and ablations, see
`configs/ars.py`.

Source: docs/methods.md, "ARS-RAG: algorithm".
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods.ars.rewrites import Rewriter, rewrite
from jaxrag.methods.ars.strategies import Chosen, Ranked, RewriteCount, RewriteOrder
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.candidates import Search, record_searches
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings.

    Attributes:
      rewriter: generates the rewrites.
      order: which rewrites are used first.
      count: K, how many are used.
      search: passages of each rewrite, how results are merged, most passages read.
      reader: prompts and decoding of the answer.
      closed_tokens: most new tokens of the answer to a closed question.
      by: how a closed question is answered, see `kinds.By`.
    """

    name = "ars"

    rewriter: Rewriter = Rewriter()
    order: RewriteOrder = Ranked()
    count: RewriteCount = Chosen()
    search: Search = Search()
    reader: steps.Reader = steps.Reader(prompts="ars")
    closed_tokens: int = 20
    by: kinds.By = "text"

    @property
    def needs(self) -> Needs:
        """An index, and the needs of rewriter, order, count and answering."""
        found = needs_of(rewriter=self.rewriter, order=self.order, count=self.count)
        return Needs(search=True) | found | tasks.answering_needs(self)

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers from the passages of the K best rewrites."""
        trace: steps.Trace = {}
        rewrites = (await rewrite(question, tools, self.reader, self.rewriter, trace)).texts
        # Ranked: scores S(q_i, Q) of all rewrites, best first
        ordered = await self.order(question, rewrites, tools, self.search, trace)
        # Chosen: the bandit's K = argmax_k f_k(x)
        k = await self.count(question, len(rewrites), tools)
        trace["kept"] = {"k": k, "numbers": list(ordered.numbers), "scores": list(ordered.scores)}
        kept = [rewrites[number] for number in ordered.numbers[:k]]
        rankings = await self.search.search_all(kept, tools)
        record_searches(kept, rankings, tools, trace)
        pool = self.search.merged(rankings)
        steps.record_selected(pool.rows, tools, trace, pool.scores)
        reply = await tasks.answer_from_passages(question, pool.rows, tools, self, trace)
        return Answer(question.id, reply.text, trace)
