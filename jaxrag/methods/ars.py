"""ARS-RAG: rewrites of a question, a ranker that orders them, a bandit that says how many to keep.

METHODS section 5: ten rewrites from one generation, ordered; the K first are searched for; their
passages become one list, from which the question is answered. ``order`` and ``count`` make the
paper's strategies and ablations: see `configs/ars.py`.
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods import kinds, steps, tasks
from jaxrag.methods.rewrite_steps import (
    Chosen,
    Count,
    Judged,
    Order,
    Ranked,
    Search,
    record_searches,
)
from jaxrag.methods.rewrites import Rewriter, rewrite
from jaxrag.methods.tools import Tools
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

    rewriter: Rewriter = Rewriter()
    order: Order = Ranked()
    count: Count = Chosen()
    search: Search = Search()
    reader: steps.Reader = steps.Reader(prompts="ars")
    closed_tokens: int = 20
    by: kinds.By = "text"

    @property
    def needs_logprobs(self) -> bool:
        """Whether the model must tell log-probabilities: to judge by them."""
        return isinstance(self.order, Judged) and self.order.judge.by == "logprob"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Rewrites, orders, keeps K, searches, reads."""
    trace: steps.Trace = {}
    written = await rewrite(question, tools.llm, config.reader, config.rewriter, trace)
    ordered = await config.order(question, written.texts, tools, config.search, trace)
    k = await config.count(question, len(written.texts), tools)
    trace["kept"] = {"k": k, "numbers": list(ordered.numbers), "scores": list(ordered.scores)}
    kept = [written.texts[number] for number in ordered.numbers[:k]]
    rankings = await config.search.of_all(kept, tools)
    record_searches(kept, rankings, tools, trace)
    pool = config.search.merged(rankings)
    steps.record_selected(pool.rows, tools, trace, pool.scores)
    reply = await tasks.answer_from_passages(question, pool.rows, tools, config, trace)
    return Answer(question.id, reply.text, trace)
