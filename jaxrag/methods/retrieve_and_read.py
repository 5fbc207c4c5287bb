"""Baselines of PAIRS and DTR: retrieve passages, select, read; each baseline is a preset.

Source: docs/methods.md, "Baselines" and "PAIRS: variants and ablations".

==================  ================================================================================
``NO_RETRIEVAL``    the model answers from its own knowledge
``STANDARD_RAG``    the k best passages for the question
``RERANK``          the k of n passages that a reranker scores highest (PAIRS)
``HYDE``            the passage that the model writes is the query (Gao et al. 2023)
``Q2D``             copies of the query joined with such a passage (Query2doc, Wang et al. 2023)
``COT``             copies of the query joined with a rationale (Jagerman et al. 2023); this is
                    expansion of queries, not chain-of-thought answering
``LLM_JUDGE``       the model judges whether to retrieve; if so, Standard RAG (DTR's baseline)
``DPR_AIS``         dual-path retrieval and adaptive information selection: PAIRS without its gate,
                    and DTR without its own (``reader.prompts="dtr"``)
==================  ================================================================================

The ablations of PAIRS Table 3 and DTR Table 3 are `DPR_AIS` with other settings:

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
from typing import Literal

from jaxrag.core.checks import check_choices
from jaxrag.steps import asking as steps
from jaxrag.steps.candidates import DualPath, OnePath
from jaxrag.steps.gates import Always, JudgeGate
from jaxrag.steps.passage_selectors import AIS, Rerank, Top
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.types import Answer, Question

PseudoRole = Literal["pseudo_context", "rationale"]


@dataclasses.dataclass(frozen=True)
class Config:
    """Any gate, candidates and passage selector.

    Attributes:
      name: of the method, as in the papers' tables of numbers.
      gate: when to retrieve; None always retrieves and records no decision.
      candidates: which passages are candidates; None never retrieves.
      select: which of them are read.
      reader: prompts and decoding.
      pseudo: the pseudo-context that the model writes to search or score by: a passage, or a
        rationale.
    """

    name: str = "standard_rag"
    gate: steps.Gate | None = None
    candidates: steps.Candidates | None = OnePath(n=3)
    select: steps.PassageSelector = Top(k=3)
    reader: steps.Reader = steps.Reader(prompts="dtr")
    pseudo: PseudoRole = "pseudo_context"

    def __post_init__(self) -> None:
        check_choices(self, pseudo=PseudoRole)

    @property
    def needs(self) -> Needs:
        """Needs of gate, candidates, passage selector and reader."""
        found = self.reader.needs
        if self.gate is not None:
            found |= needs_of(gate=self.gate)
        if self.candidates is not None:
            found |= needs_of(candidates=self.candidates, select=self.select)
        return found

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers directly, or retrieves, selects and reads."""
        trace: steps.Trace = {}
        decision = steps.Decision(self.candidates is not None)
        if self.gate is not None:
            decision = await self.gate(question, tools, self.reader, trace)
        if self.candidates is None or not decision.retrieve:
            return await steps.accept(decision, question, tools, self.reader, trace)
        pseudo = decision.pseudo_context or await steps.pseudo_context_for(
            (self.candidates, self.select), question, tools, self.reader, trace, role=self.pseudo
        )
        pool = await self.candidates(question.text, pseudo, tools, trace)
        rows = await self.select(question.text, pseudo, pool, tools, trace)
        reply = await steps.answer_from_passages(question, rows, tools, self.reader, trace)
        return Answer(question.id, reply.text, trace)


_PAIRS = steps.Reader(prompts="pairs")

NO_RETRIEVAL = Config("no_retrieval", candidates=None)
STANDARD_RAG = Config("standard_rag")
RERANK = Config("rerank", candidates=OnePath(n=10), select=Rerank(k=3), reader=_PAIRS)
HYDE = Config("hyde", candidates=OnePath(n=3, by="pseudo"))
Q2D = Config("q2d", candidates=OnePath(n=3, by="expanded"))
COT = Config("cot", candidates=OnePath(n=3, by="expanded"), pseudo="rationale")
LLM_JUDGE = Config("llm_judge", JudgeGate())
DPR_AIS = Config("dpr_ais", Always(), DualPath(n=5), AIS(k=3), _PAIRS)
