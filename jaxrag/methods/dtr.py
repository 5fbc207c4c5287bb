"""DTR: decide then retrieve.

1. The model answers directly; u is the mean negative log-likelihood of the answer's tokens.
2. If u is at most the threshold, that is the answer (uncertainty-guided triggering).
3. Otherwise the model writes a pseudo-context; question and pseudo-context are searched for
   (dual-path retrieval), the passages closest to both are kept (adaptive information selection),
   and the question is answered from them.

Source: docs/methods.md, "DTR".
"""

from __future__ import annotations

import dataclasses

from jaxrag.functional import uncertainty
from jaxrag.steps import asking as steps
from jaxrag.steps.candidates import DualPath
from jaxrag.steps.passage_selectors import AIS
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.types import Answer, InputError, Question


@dataclasses.dataclass(frozen=True)
class UncertaintyGate:
    """DTR's uncertainty-guided triggering: retrieve if the direct answer's u > threshold.

    u is in nats (DTR eq 3); an empty answer is infinitely uncertain. Threshold 0 always retrieves.
    """

    needs = Needs(logprobs=True)

    threshold: float = 0.001

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise InputError(
                f"gate.threshold is {self.threshold}; u is a mean of -log p: give >= 0."
            )

    async def __call__(
        self, question: Question, tools: Tools, reader: steps.Reader, trace: steps.Trace
    ) -> steps.Decision:
        """Answers directly, then compares u with the threshold."""
        direct = await steps.answer_directly(question, tools, reader, trace)
        u = steps.mean_nll(direct.generation, reader)
        retrieve = bool(uncertainty.trigger(u, self.threshold, rule=reader.fidelity))
        trace["gate"] = {
            "name": "nll",
            "retrieve": retrieve,
            "value": trace["direct"]["u"],
            "threshold": self.threshold,
        }
        return steps.Decision(retrieve, direct)


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; gate, candidates and passage selector can be replaced."""

    name = "dtr"

    gate: steps.Gate = UncertaintyGate()
    candidates: steps.Candidates = DualPath(n=5)
    select: steps.PassageSelector = AIS(k=3)
    reader: steps.Reader = steps.Reader(prompts="dtr")

    @property
    def needs(self) -> Needs:
        """Needs of gate, candidates, passage selector and reader."""
        return needs_of(
            gate=self.gate, candidates=self.candidates, select=self.select, reader=self.reader
        )

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers directly and, if that answer is uncertain, from passages."""
        trace: steps.Trace = {}
        decision = await self.gate(question, tools, self.reader, trace)
        if not decision.retrieve:
            return await steps.accept(decision, question, tools, self.reader, trace)
        pseudo = decision.pseudo_context or await steps.pseudo_context_for(
            (self.candidates, self.select), question, tools, self.reader, trace
        )
        # DualPath: the union of the n best by the question and the n best by the pseudo-context
        pool = await self.candidates(question.text, pseudo, tools, trace)
        # AIS: the k best by cos(theta1 + theta2), angles to the question and the pseudo-context
        rows = await self.select(question.text, pseudo, pool, tools, trace)
        reply = await steps.answer_from_passages(question, rows, tools, self.reader, trace)
        return Answer(question.id, reply.text, trace)
