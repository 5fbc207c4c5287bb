"""DPR-AIS: dual-path retrieval and adaptive information selection for every question.

PAIRS without its gate, and DTR without uncertainty-guided triggering (``reader.prompts="dtr"``).
The ablations of PAIRS Table 3 and DTR Table 3 are settings:

========================  ==========================================  ===============
ablation                  candidates                                  select
========================  ==========================================  ===============
w/o DPR (q)               ``OnePath(n=10)``                           ``AIS(k=3)``
w/o DPR (p)               ``OnePath(n=10, by="pseudo")``              ``AIS(k=3)``
w/o AIS, 2q+1p            ``FixedMix(from_query=2, from_pseudo=1)``   ``Top(k=3)``
w/o AIS, 1q+2p            ``FixedMix(from_query=1, from_pseudo=2)``   ``Top(k=3)``
========================  ==========================================  ===============
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods import steps
from jaxrag.methods.candidates import DualPath
from jaxrag.methods.gates import Always
from jaxrag.methods.selectors import AIS
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; any gate, candidates and selector compose."""

    gate: steps.Gate = Always()
    candidates: steps.Candidates = DualPath(n=5)
    select: steps.Selector = AIS(k=3)
    reader: steps.Reader = steps.Reader(prompts="pairs")


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Decides, and retrieves where the decision says so."""
    return await steps.decide_then_retrieve(question, tools, config)
