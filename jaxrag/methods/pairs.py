"""PAIRS: parametric-verified adaptive information retrieval and selection.

1. The model writes a pseudo-context p and answers twice: directly, and from p.
2. If the two answers agree, that is the answer, without retrieval.
3. Otherwise the n best passages by q and by p are scored by cos(theta1 + theta2); the k best are
   read.

The model is called three times for an accepted question, four times for the others.
``AIS(score="dynamic")`` and ``Rerank(with_pseudo=True)`` are the variants DPR-AIS-dynamic and
DPR-AIS-rerank.

Source: docs/methods.md, "PAIRS".
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from jaxrag.engines.scheduler import gather
from jaxrag.steps import asking as steps
from jaxrag.steps.candidates import DualPath
from jaxrag.steps.passage_selectors import AIS
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.text import answers
from jaxrag.types import Answer, InputError, Question


@dataclasses.dataclass(frozen=True)
class AgreementGate:
    """PAIRS' parametric verification: retrieve if two answers of the model disagree.

    One answer is direct, the other is read from a pseudo-context that the model wrote itself.
    The paper leaves the test open ("the same or semantically consistent").

    Attributes:
      test: "exact" compares the normalised strings; "f1" requires a token F1 of at least ``f1``.
      f1: the smallest F1 that counts as agreement, in (0, 1].
      exclude_num: also retrieve if the agreed answer contains a digit (PAIRS' exclude-num).
    """

    needs = Needs()

    test: Literal["exact", "f1"] = "exact"
    f1: float = 0.8
    exclude_num: bool = False

    def __post_init__(self) -> None:
        if self.test not in ("exact", "f1"):
            raise InputError(f"gate.test is {self.test!r}; allowed: 'exact', 'f1'.")
        if not 0 < self.f1 <= 1:
            raise InputError(f"gate.f1 is {self.f1}; allowed: above 0, at most 1.")

    async def __call__(
        self, question: Question, tools: Tools, reader: steps.Reader, trace: steps.Trace
    ) -> steps.Decision:
        """Generates both answers and compares them."""
        pseudo, direct = await gather(
            steps.write_pseudo_context(question, tools, reader, trace),
            steps.answer_directly(question, tools, reader, trace),
        )
        truncation: steps.Trace = {}
        second = await steps.ask_from_passages(question, pseudo, tools.llm, reader, truncation)
        agree = self._agree(direct.text, second.text)
        excluded = agree and self.exclude_num and bool(re.search(r"\d", direct.text))
        retrieve = not agree or excluded
        trace["gate"] = {
            "name": "agreement",
            "retrieve": retrieve,
            "agree": agree,
            "excluded": excluded,
            "second": {**second.record(), **truncation},
        }
        return steps.Decision(retrieve, direct, pseudo)

    def _agree(self, first: str, second: str) -> bool:
        """Whether two answers agree; empty ones never do."""
        if not answers.normalize(first) or not answers.normalize(second):
            return False
        if self.test == "exact":
            return bool(answers.exact_match(first, [second]))
        return answers.token_f1(first, second) >= self.f1


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; gate, candidates and passage selector can be replaced."""

    name = "pairs"

    gate: steps.Gate = AgreementGate()
    candidates: steps.Candidates = DualPath(n=5)
    select: steps.PassageSelector = AIS(k=3)
    reader: steps.Reader = steps.Reader(prompts="pairs")

    @property
    def needs(self) -> Needs:
        """Needs of gate, candidates, passage selector and reader."""
        return needs_of(
            gate=self.gate, candidates=self.candidates, select=self.select, reader=self.reader
        )

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers from the model's knowledge if two of its answers agree, else from passages."""
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
