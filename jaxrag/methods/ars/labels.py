"""Labels for ARS-RAG's ranker: how many passages of each rewrite the model finds relevant.

docs/methods.md, "ARS-RAG: rewrites and labels", eq 6: y_i is the sum of s_j over the passages that
rewrite i finds. It answers
nothing: what it is asked for is the trace, from which `experiments.tabulate` makes labels.jsonl.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxrag.core.hashing import in_share
from jaxrag.methods.ars import relevance
from jaxrag.methods.ars.rewrite_steps import judge_all
from jaxrag.methods.ars.rewrites import Rewriter, rewrite
from jaxrag.steps import asking as steps
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.searches import Search, record_searches
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, InputError, Question, Ranking


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings.

    Attributes:
      rewriter: how rewrites are asked for.
      search: how they are searched for; only ``m`` counts.
      judge: how relevance is asked for; None asks nothing, so that there are labels by gold
        passages alone.
      compared: share of the questions, drawn by their ids, of which the other way of asking is
        asked as well, so that the two can be compared.
      reader: whose prompts rewrite.
    """

    name = "ars_labels"

    rewriter: Rewriter = Rewriter()
    search: Search = Search()
    judge: relevance.Judge | None = relevance.Judge()
    compared: float = 0.0
    reader: steps.Reader = steps.Reader(prompts="ars")

    @property
    def needs(self) -> Needs:
        """The search, and those of the judge."""
        found = Needs(search=True) | self.reader.needs
        if self.judge is None:
            return found
        judge = dataclasses.replace(self.judge, by="logprob") if self.compared else self.judge
        return found | needs_of(judge=judge)

    def __post_init__(self) -> None:
        if not 0 <= self.compared <= 1:
            raise InputError(f"compared is {self.compared}; it is a share from 0 to 1.")

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Rewrites, searches, judges every passage once."""
        trace: steps.Trace = {}
        written = await rewrite(question, tools.llm, self.reader, self.rewriter, trace)
        rankings = await self.search.of_all(written.texts, tools)
        record_searches(written.texts, rankings, tools, trace)
        trace["judged"] = {}
        if self.judge is None:
            return Answer(question.id, "", trace)
        trace["judged"][self.judge.by] = await _judged(question, rankings, tools, self.judge)
        if in_share(question.id, self.compared):
            other = self.judge.other_way()
            trace["judged"][other.by] = await _judged(question, rankings, tools, other)
        return Answer(question.id, "", trace)


async def _judged(
    question: Question, rankings: Sequence[Ranking], tools: Tools, judge: relevance.Judge
) -> dict[str, dict[str, float | None]]:
    """Of each passage, by id: whether it is relevant, the probability, whether it was junk."""
    verdicts = await judge_all(question, rankings, tools, judge)
    names = [passage.id for passage in tools.retriever.passages(list(verdicts))]
    return {
        name: {"relevant": int(v.relevant), "probability": v.probability, "junk": int(v.junk)}
        for name, v in zip(names, verdicts.values(), strict=True)
    }
