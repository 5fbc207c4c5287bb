"""What a question earns under every number of rewrites: the rows of a reward table.

docs/methods.md, "ARS-RAG: rewards". The bandit then learns from the table, without a language
model: the reward of arm k is that of the answer from the k first rewrites.
"""

from __future__ import annotations

import dataclasses

from jaxrag.data import question_kinds
from jaxrag.engines.scheduler import gather
from jaxrag.methods.ars.rewrite_steps import Order, Ranked
from jaxrag.methods.ars.rewrites import Rewriter, rewrite
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.searches import Search, record_searches
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, Question, Ranking


@dataclasses.dataclass(frozen=True)
class Config:
    """As `jaxrag.methods.ars.ars.Config`, without a count: every K is tried."""

    name = "ars_rewards"

    rewriter: Rewriter = Rewriter()
    order: Order = Ranked()
    search: Search = Search()
    reader: steps.Reader = steps.Reader(prompts="ars")
    closed_tokens: int = 20
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)

    @property
    def needs(self) -> Needs:
        """Those of the order, the search and answering."""
        return Needs(search=True) | needs_of(order=self.order) | tasks.answering_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers from the passages of the first rewrite, of the first two, ..., of all.

        The answer's own text is that of all rewrites; the trace has each under "answers", with the
        ids of its passages under "read".
        """
        trace: steps.Trace = {}
        written = await rewrite(question, tools.llm, self.reader, self.rewriter, trace)
        ordered = await self.order(question, written.texts, tools, self.search, trace)
        trace["kept"] = {"numbers": list(ordered.numbers), "scores": list(ordered.scores)}
        texts = [written.texts[number] for number in ordered.numbers]
        rankings = await self.search.of_all(texts, tools)
        record_searches(texts, rankings, tools, trace)
        found = await gather(
            *(_read(question, rankings[:k], tools, self) for k in range(1, len(texts) + 1))
        )
        role = question_kinds.role_of(question)
        trace["task"] = "open" if role == "context" else role
        trace["answers"] = [text for text, _ in found]
        trace["read"] = [ids for _, ids in found]
        trace["selected"] = {"ids": trace["read"][-1]}
        return Answer(question.id, trace["answers"][-1], trace)


async def _read(
    question: Question, rankings: list[Ranking], tools: Tools, config: Config
) -> tuple[str, list[str]]:
    """The answer from some rewrites, and the passages that it was read from."""
    pool = config.search.merged(rankings)
    reply = await tasks.answer_from_passages(question, pool.rows, tools, config, {})
    return reply.text, [passage.id for passage in tools.retriever.passages(pool.rows)]
