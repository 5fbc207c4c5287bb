"""Training data of a query optimizer: the frozen reader, as teacher, writes queries.

Nothing is searched for or answered; `jaxrag.methods.errr.query_pairs` makes pairs.jsonl from the
traces.

Source: docs/methods.md, "ERRR: frozen and trainable".
"""

from __future__ import annotations

import dataclasses

from jaxrag.core.checks import check_share
from jaxrag.methods.errr import queries
from jaxrag.steps import asking as steps
from jaxrag.steps.tools import Needs, Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings, with our choices for unspecified ones.

    Attributes:
      teacher: how the reader writes queries: as in frozen ERRR, or without C as in frozen RRR.
      student: input of the model to be trained; give the same to the method that uses it.
      held_out: share of the questions, drawn by their ids, that is held out of training, for early
        stopping.
      reader: prompts and decoding.
    """

    name = "errr_pairs"

    teacher: queries.Prompted = queries.Prompted()
    student: queries.StudentInput = queries.StudentInput()
    held_out: float = 0.1
    reader: steps.Reader = steps.Reader(prompts="errr")

    def __post_init__(self) -> None:
        check_share(held_out=self.held_out)

    @property
    def needs(self) -> Needs:
        """Needs of the reader."""
        return self.reader.needs

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Extracts C if teacher or student are shown it, and has the teacher write queries."""
        trace: steps.Trace = {}
        context = ""
        if self.teacher.context or self.student.context:
            context = await queries.extract(question, tools, self.reader, trace)
        await self.teacher(question, context, tools, self.reader, trace)
        return Answer(question.id, "", trace)
