"""DTR: decide then retrieve.

1. The model answers directly; u is the mean negative log-likelihood of the answer's tokens.
2. Where u is at most the threshold, that is the answer (uncertainty-guided triggering).
3. Otherwise: dual-path retrieval and adaptive information selection, as in PAIRS, then reading.
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods import steps
from jaxrag.methods.candidates import DualPath
from jaxrag.methods.gates import UncertaintyGate
from jaxrag.methods.selectors import AIS
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; any gate, candidates and selector compose."""

    gate: steps.Gate = UncertaintyGate(threshold=0.001)
    candidates: steps.Candidates = DualPath(n=5)
    select: steps.Selector = AIS(k=3)
    reader: steps.Reader = steps.Reader(prompts="dtr")


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Decides, and retrieves where the decision says so."""
    return await steps.decide_then_retrieve(question, tools, config)
