"""Gates: should this question be answered with retrieval?"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.scheduler import gather
from jaxrag.functional import uncertainty
from jaxrag.steps import asking as steps
from jaxrag.steps.asking import Decision, Reader, Trace
from jaxrag.steps.model_helper import model_needs, model_tool
from jaxrag.steps.needs import Needs
from jaxrag.steps.tools import Tools
from jaxrag.text import answers
from jaxrag.types import InputError, Question


def _record(trace: Trace, name: str, retrieve: bool, **details: object) -> None:
    trace["gate"] = {"name": name, "retrieve": retrieve, **details}


@dataclasses.dataclass(frozen=True)
class Always:
    """Retrieves for every question."""

    needs = Needs()

    async def __call__(
        self, question: Question, tools: Tools, reader: Reader, trace: Trace
    ) -> Decision:
        """Says yes."""
        _record(trace, "always", True)
        return Decision(True)


@dataclasses.dataclass(frozen=True)
class Never:
    """Answers every question directly."""

    needs = Needs()

    async def __call__(
        self, question: Question, tools: Tools, reader: Reader, trace: Trace
    ) -> Decision:
        """Says no."""
        _record(trace, "never", False)
        return Decision(False)


@dataclasses.dataclass(frozen=True)
class UncertaintyGate:
    """DTR's uncertainty-guided triggering: retrieve where the direct answer's u > threshold.

    u is the mean negative log-likelihood of the answer's tokens in nats (DTR eq 3); an empty
    answer is infinitely uncertain. Threshold 0 retrieves always.
    """

    needs = Needs(logprobs=True)

    threshold: float = 0.001

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise InputError(
                f"gate.threshold is {self.threshold}; u is a mean of -log p: give >= 0."
            )

    async def __call__(
        self, question: Question, tools: Tools, reader: Reader, trace: Trace
    ) -> Decision:
        """Answers directly, then compares u with the threshold."""
        reply = await steps.answer_directly(question, tools, reader, trace)
        retrieve = bool(uncertainty.trigger(reply.u, self.threshold, rule=reader.fidelity))
        value = trace["direct"]["u"]
        _record(trace, "nll", retrieve, value=value, threshold=self.threshold)
        return Decision(retrieve, reply)


@dataclasses.dataclass(frozen=True)
class AgreementGate:
    """PAIRS' parametric verification: retrieve where two answers of the model disagree.

    One answer is direct, the other is read from a pseudo-context that the model wrote itself.
    The paper leaves the test open ("the same or semantically consistent").

    Attributes:
      test: "exact" compares the normalised strings, "f1" wants their token F1 to reach ``f1``.
      f1: the smallest F1 that counts as agreement, in (0, 1].
      exclude_num: also retrieve where the agreed answer holds a digit (PAIRS' exclude-num).
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
        self, question: Question, tools: Tools, reader: Reader, trace: Trace
    ) -> Decision:
        """Generates both answers and compares them; empty answers never agree."""
        pseudo, first = await gather(
            steps.write_pseudo_context(question, tools, reader, trace),
            steps.answer_directly(question, tools, reader, trace),
        )
        cut: Trace = {}
        second = await steps.ask_from_passages(question, pseudo, tools.llm, reader, cut)
        agree = self._agree(first.text, second.text)
        excluded = agree and self.exclude_num and bool(re.search(r"\d", first.text))
        _record(
            trace,
            "agreement",
            not agree or excluded,
            agree=agree,
            excluded=excluded,
            second={**second.record(), **cut},
        )
        return Decision(not agree or excluded, first, pseudo)

    def _agree(self, first: str, second: str) -> bool:
        if not answers.normalize(first) or not answers.normalize(second):
            return False
        if self.test == "exact":
            return bool(answers.exact_match(first, [second]))
        return answers.token_f1(first, second) >= self.f1


@dataclasses.dataclass(frozen=True)
class JudgeGate:
    """DTR's LLM Judge baseline: the model is asked whether it needs to look things up.

    The first word decides; anything but yes or no retrieves.

    Attributes:
      judge: the language model that is asked; None is the one that reads.
    """

    judge: ModelSettings | None = None

    @property
    def needs(self) -> Needs:
        """The judge, where it is another model."""
        return model_needs("judge", self.judge)

    async def __call__(
        self, question: Question, tools: Tools, reader: Reader, trace: Trace
    ) -> Decision:
        """Asks the judge with the reader's prompts."""
        reply = await steps.ask("judge", question, model_tool(self.judge, tools), reader)
        word = re.match(r"\W*(\w*)", reply.text.lower())
        verdict = word.group(1) if word else ""
        retrieve = verdict != "no"
        _record(trace, "judge", retrieve, verdict=reply.text, junk=verdict not in ("yes", "no"))
        return Decision(retrieve)
