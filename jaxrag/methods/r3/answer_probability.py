"""Reads the passages from which the gold answer is most probable (R3, Table 6).

The ``n`` best passages are put into the order of P(y|q,d), each read alone, and the first ``k`` are
read together. It knows the gold answer, so it is a bound on what a retriever could gain, not a
method to compare with.

Source: docs/methods.md, "R3: ablations".
"""

from __future__ import annotations

import dataclasses

from jaxrag.core.checks import check_limits
from jaxrag.engines.scheduler import gather
from jaxrag.methods.r3.environment import Environment, gold_logprob
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import record_choice
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.types import Answer, InputError, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's pool of 100 passages.

    Attributes:
      candidates: the pool.
      k: passages that are read.
      reader: prompts and decoding.
      closed_tokens: most new tokens of the answer to a closed question.
      by: how a closed question is answered, see `kinds.By`.
    """

    name = "answer_probability"

    candidates: steps.Candidates = OnePath(n=100)
    k: int = 1
    reader: steps.Reader = steps.Reader(prompts="r3", answer_tokens=100)
    closed_tokens: int = 20
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)
        check_limits(k=self.k)

    @property
    def needs(self) -> Needs:
        """Log-probabilities, and the needs of candidates and answering."""
        found = needs_of(candidates=self.candidates) | tasks.answering_needs(self)
        return found | Needs(scores=True)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Searches, scores each passage by the gold answer's probability, then reads.

        Raises:
          InputError: the question has no gold answer.
        """
        if not question.answers:
            raise InputError(f"Question {question.id} has no gold answer to score passages by.")
        trace: steps.Trace = {}
        pool = await steps.find_candidates(question, tools, self, trace)
        environment = Environment(tools, self.reader, self.closed_tokens)
        passages = tools.retriever.passages(pool.rows)
        each = await gather(*(environment.logprobs(question, passage) for passage in passages))
        scores = [gold_logprob(question, logprobs) for logprobs in each]
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        rows = tuple(pool.rows[place] for place in order[: self.k])
        record_choice(trace, tools, pool, {"s1": pool.scores, "score": scores}, rows)
        reply = await tasks.answer_from_passages(question, rows, tools, self, trace)
        return Answer(question.id, reply.text, trace)
