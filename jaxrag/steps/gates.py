"""Gates: should this question be answered with retrieval?

DTR's `jaxrag.methods.dtr.UncertaintyGate` and PAIRS' `jaxrag.methods.pairs.AgreementGate` stand
with their methods.
"""

from __future__ import annotations

import dataclasses

from jaxrag.engines.language_model import ModelSettings
from jaxrag.steps import asking as steps
from jaxrag.steps.asking import Decision, Reader, Trace
from jaxrag.steps.tools import Needs, Tools, model_needs, model_tool
from jaxrag.text.sentences import first_word
from jaxrag.types import Question


def _record(trace: Trace, name: str, retrieve: bool, **details: object) -> None:
    trace["gate"] = {"name": name, "retrieve": retrieve, **details}


@dataclasses.dataclass(frozen=True)
class Always:
    """Retrieves for every question."""

    needs = Needs()

    async def __call__(
        self, question: Question, tools: Tools, reader: Reader, trace: Trace
    ) -> Decision:
        """Decides to retrieve."""
        _record(trace, "always", True)
        return Decision(True)


@dataclasses.dataclass(frozen=True)
class Never:
    """Answers every question directly."""

    needs = Needs()

    async def __call__(
        self, question: Question, tools: Tools, reader: Reader, trace: Trace
    ) -> Decision:
        """Decides not to retrieve."""
        _record(trace, "never", False)
        return Decision(False)


@dataclasses.dataclass(frozen=True)
class JudgeGate:
    """DTR's LLM Judge baseline: a language model decides whether retrieval is needed.

    The first word of its answer decides; anything but "no" retrieves.

    Attributes:
      judge: the language model; None uses the run's.
    """

    judge: ModelSettings | None = None

    @property
    def needs(self) -> Needs:
        """The judge, if it is another model."""
        return model_needs("judge", self.judge)

    async def __call__(
        self, question: Question, tools: Tools, reader: Reader, trace: Trace
    ) -> Decision:
        """Prompts the judge with the reader's prompts."""
        reply = await steps.ask("judge", question, model_tool(self.judge, tools), reader)
        verdict = first_word(reply.text.lower())
        retrieve = verdict != "no"
        _record(trace, "judge", retrieve, verdict=reply.text, junk=verdict not in ("yes", "no"))
        return Decision(retrieve)
