"""DTR: decide then retrieve.

1. The model answers directly; u is the mean negative log-likelihood of the answer's tokens.
2. Where u is at most the threshold, that is the answer (uncertainty-guided triggering).
3. Otherwise the model writes a pseudo-context; question and pseudo-context are searched for
   (dual-path retrieval), the passages that fit both are kept (adaptive information selection), and
   the question is answered from them.

Source: docs/methods.md, "DTR".
"""

from __future__ import annotations

import dataclasses

from jaxrag.steps import asking as steps
from jaxrag.steps.candidates import DualPath
from jaxrag.steps.gates import UncertaintyGate
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.passage_selectors import AIS
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; any gate, candidates and selector of passages compose."""

    name = "dtr"

    gate: steps.Gate = UncertaintyGate(threshold=0.001)
    candidates: steps.Candidates = DualPath(n=5)
    select: steps.Selector = AIS(k=3)
    reader: steps.Reader = steps.Reader(prompts="dtr")

    @property
    def needs(self) -> Needs:
        """Those of its parts."""
        return needs_of(
            gate=self.gate, candidates=self.candidates, select=self.select, reader=self.reader
        )

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers directly and, where that answer is uncertain, from passages."""
        trace: steps.Trace = {}
        # UncertaintyGate: answers directly, compares u with the threshold
        decision = await self.gate(question, tools, self.reader, trace)
        if not decision.retrieve:
            return await steps.accept(decision, question, tools, self.reader, trace)
        pseudo = decision.pseudo_context or await steps.pseudo_context_for(
            (self.candidates, self.select), question, tools, self.reader, trace
        )
        # DualPath: the n best by the question and the n best by the pseudo-context
        pool = await self.candidates(question.text, pseudo, tools, trace)
        # AIS: the k best by their angles to the question and to the pseudo-context
        rows = await self.select(question.text, pseudo, pool, tools, trace)
        reply = await steps.answer_from_passages(question, rows, tools, self.reader, trace)
        return Answer(question.id, reply.text, trace)
