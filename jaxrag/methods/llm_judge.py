"""LLM Judge (DTR's baseline): the model is asked whether to retrieve; if so, Standard RAG."""

from __future__ import annotations

import dataclasses

from jaxrag.methods import steps
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.gates import JudgeGate
from jaxrag.methods.selectors import Top
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; any gate, candidates and selector compose."""

    gate: steps.Gate = JudgeGate()
    candidates: steps.Candidates = OnePath(n=3)
    select: steps.Selector = Top(k=3)
    reader: steps.Reader = steps.Reader(prompts="dtr")


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Decides, and retrieves where the decision says so."""
    return await steps.decide_then_retrieve(question, tools, config)
