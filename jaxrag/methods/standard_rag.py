"""Standard RAG: the k best passages for the question, for every question."""

from __future__ import annotations

import dataclasses

from jaxrag.methods import steps
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.selectors import Top
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """Which passages, and how they are read."""

    candidates: steps.Candidates = OnePath(n=3)
    select: steps.Selector = Top(k=3)
    reader: steps.Reader = steps.Reader(prompts="dtr")


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Retrieves, then reads."""
    return await steps.retrieve_and_read(question, tools, config, {})
