"""CoT query expansion (Jagerman et al. 2023): copies of the query joined with a rationale.

Not chain-of-thought answering: the rationale serves the search only.
"""

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

    candidates: steps.Candidates = OnePath(n=3, by="expanded")
    select: steps.Selector = Top(k=3)
    reader: steps.Reader = steps.Reader(prompts="dtr")


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Retrieves, then reads."""
    return await steps.retrieve_and_read(question, tools, config, {}, pseudo_role="rationale")
