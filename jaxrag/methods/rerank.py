"""Rerank (PAIRS 1.5): query-only candidates, kept by a reranker's score K(d, q)."""

from __future__ import annotations

import dataclasses

from jaxrag.methods import steps
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.selectors import Rerank
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """Which passages, and how they are read."""

    candidates: steps.Candidates = OnePath(n=10)
    select: steps.Selector = Rerank(k=3)
    reader: steps.Reader = steps.Reader(prompts="pairs")


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Retrieves, then reads."""
    return await steps.retrieve_and_read(question, tools, config, {})
