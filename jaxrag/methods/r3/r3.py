"""R3: a frozen language model reads the passages of a retriever that was trained for it.

R3 trains the retriever alone (`jaxrag.methods.r3.training`), so answering is plain: search, then
answer from one passage or ten. Prompts depend on the kind of question: open, statement to check, or
multiple choice; answers are scored by containment.

Source: docs/methods.md, "R3: answering".
"""

from __future__ import annotations

import dataclasses

from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings with one passage; ten are ``candidates.n=10`` and ``select.k=10``.

    Attributes:
      candidates, select: which passages.
      reader: prompts and decoding; ``answer_tokens`` is for open questions.
      closed_tokens: most new tokens for a statement to check, or a multiple choice.
      by: how a closed question is answered, see `kinds.By`.
    """

    name = "r3"

    candidates: steps.Candidates = OnePath(n=1)
    select: steps.PassageSelector = Top(k=1)
    reader: steps.Reader = steps.Reader(prompts="r3", answer_tokens=100)
    closed_tokens: int = 20
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)

    @property
    def needs(self) -> Needs:
        """Needs of candidates, passage selector and answering."""
        found = needs_of(candidates=self.candidates, select=self.select)
        return found | tasks.answering_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Retrieves, then reads."""
        trace: steps.Trace = {}
        rows = await steps.retrieve(question, tools, self, trace)
        reply = await tasks.answer_from_passages(question, rows, tools, self, trace)
        return Answer(question.id, reply.text, trace)
