"""PAIRS: parametric-verified adaptive information retrieval and selection.

1. The model writes a pseudo-context p and answers twice: directly, and from p.
2. Where the two answers agree, that is the answer, without retrieval.
3. Otherwise: the n best passages by q and by p, scored by cos(theta1 + theta2), the k best read.

Three calls of the model for an accepted question, four for the others. ``AgreementGate`` has the
settings that the paper leaves open and its exclude-num variant; ``AIS(score="dynamic")`` and
``Rerank(with_pseudo=True)`` are its DPR-AIS-dynamic and DPR-AIS-rerank.
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods import steps
from jaxrag.methods.candidates import DualPath
from jaxrag.methods.gates import AgreementGate
from jaxrag.methods.selectors import AIS
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; any gate, candidates and selector compose."""

    gate: steps.Gate = AgreementGate()
    candidates: steps.Candidates = DualPath(n=5)
    select: steps.Selector = AIS(k=3)
    reader: steps.Reader = steps.Reader(prompts="pairs")


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Decides, and retrieves where the decision says so."""
    return await steps.decide_then_retrieve(question, tools, config)
