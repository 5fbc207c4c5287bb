"""PAIRS: parametric-verified adaptive information retrieval and selection.

1. The model writes a pseudo-context p and answers twice: directly, and from p.
2. Where the two answers agree, that is the answer, without retrieval.
3. Otherwise: the n best passages by q and by p, scored by cos(theta1 + theta2), the k best read.

Three calls of the model for an accepted question, four for the others. ``AgreementGate`` has the
settings that the paper leaves open and its exclude-num variant; ``AIS(score="dynamic")`` and
``Rerank(with_pseudo=True)`` are its DPR-AIS-dynamic and DPR-AIS-rerank.

Source: docs/methods.md, "PAIRS".
"""

from __future__ import annotations

import dataclasses

from jaxrag.steps import asking as steps
from jaxrag.steps.candidates import DualPath
from jaxrag.steps.gates import AgreementGate
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.passage_selectors import AIS
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; any gate, candidates and selector of passages compose."""

    name = "pairs"

    gate: steps.Gate = AgreementGate()
    candidates: steps.Candidates = DualPath(n=5)
    select: steps.Selector = AIS(k=3)
    reader: steps.Reader = steps.Reader(prompts="pairs")

    @property
    def needs(self) -> Needs:
        """Those of its parts."""
        return needs_of(
            gate=self.gate, candidates=self.candidates, select=self.select, reader=self.reader
        )

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers from the model's knowledge where two of its answers agree, else from passages."""
        trace: steps.Trace = {}
        # AgreementGate: writes the pseudo-context, answers directly and from it, compares
        decision = await self.gate(question, tools, self.reader, trace)
        if not decision.retrieve:
            return await steps.accept(decision, question, tools, self.reader, trace)
        pseudo = decision.pseudo_context or await steps.pseudo_context_for(
            (self.candidates, self.select), question, tools, self.reader, trace
        )
        # DualPath: the n best by the question and the n best by the pseudo-context
        pool = await self.candidates(question.text, pseudo, tools, trace)
        # AIS: the k best by cos(theta1 + theta2), angles to the question and the pseudo-context
        rows = await self.select(question.text, pseudo, pool, tools, trace)
        reply = await steps.answer_from_passages(question, rows, tools, self.reader, trace)
        return Answer(question.id, reply.text, trace)
