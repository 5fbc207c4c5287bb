"""Labels for ARS-RAG's ranker: how many passages of each rewrite the model finds relevant.

METHODS section 5.2, eq 6: y_i is the sum of s_j over the passages that rewrite i finds. It answers
nothing: what it is asked for is the trace, from which `experiments.tabulate` makes labels.jsonl.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence

from jaxrag.methods import relevance, steps
from jaxrag.methods.rewrite_steps import Search, judge_all, record_searches
from jaxrag.methods.rewrites import Rewriter, rewrite
from jaxrag.methods.tools import Tools
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

    rewriter: Rewriter = Rewriter()
    search: Search = Search()
    judge: relevance.Judge | None = relevance.Judge()
    compared: float = 0.0
    reader: steps.Reader = steps.Reader(prompts="ars")

    @property
    def needs_logprobs(self) -> bool:
        """Whether the model must tell log-probabilities: to judge by them."""
        return self.judge is not None and (self.judge.by == "logprob" or self.compared > 0)

    def __post_init__(self) -> None:
        if not 0 <= self.compared <= 1:
            raise InputError(f"compared is {self.compared}; it is a share from 0 to 1.")


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Rewrites, searches, judges every passage once."""
    trace: steps.Trace = {}
    written = await rewrite(question, tools.llm, config.reader, config.rewriter, trace)
    rankings = await config.search.of_all(written.texts, tools)
    record_searches(written.texts, rankings, tools, trace)
    trace["judged"] = {}
    if config.judge is None:
        return Answer(question.id, "", trace)
    trace["judged"][config.judge.by] = await _judged(question, rankings, tools, config.judge)
    if _draw(question.id) < config.compared:
        other = "word" if config.judge.by == "logprob" else "logprob"
        judge = dataclasses.replace(config.judge, by=other)
        trace["judged"][other] = await _judged(question, rankings, tools, judge)
    return Answer(question.id, "", trace)


def _draw(name: str) -> float:
    """A number from 0 to below 1 that a question's id decides."""
    return zlib.crc32(name.encode()) / 2**32


async def _judged(
    question: Question, rankings: Sequence[Ranking], tools: Tools, judge: relevance.Judge
) -> dict[str, dict[str, float | None]]:
    """Of each passage, by id: whether it is relevant, the probability, whether it was junk."""
    verdicts = await judge_all(question, rankings, tools, judge)
    names = [passage.id for passage in tools.index.passages(list(verdicts))]
    return {
        name: {"relevant": int(v.relevant), "probability": v.probability, "junk": int(v.junk)}
        for name, v in zip(names, verdicts.values(), strict=True)
    }
