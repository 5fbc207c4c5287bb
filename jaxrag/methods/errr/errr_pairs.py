"""Pairs from which a query optimizer is distilled: what the student reads, what the teacher wrote.

docs/methods.md, "ERRR: frozen and trainable": the reader, asked as in the frozen setting, writes
queries for questions to train on. Nothing is searched for or answered: what it is asked for is the
trace, from which `experiments.tabulate` makes pairs.jsonl.
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods.errr import queries
from jaxrag.steps import asking as steps
from jaxrag.steps.needs import Needs
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, InputError, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings, and ours where it gives none.

    Attributes:
      teacher: how the reader is asked for queries: frozen ERRR's way, or frozen RRR's without C.
      student: what the trained model will read; give the same to the method that uses it.
      held_out: share of the questions, drawn by their ids, that are kept out of training, to stop
        it by.
      reader: how the model is asked.
    """

    name = "errr_pairs"

    teacher: queries.Prompted = queries.Prompted()
    student: queries.StudentInput = queries.StudentInput()
    held_out: float = 0.1
    reader: steps.Reader = steps.Reader(prompts="errr")

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out is {self.held_out}; it is a share from 0 to below 1.")

    @property
    def needs(self) -> Needs:
        """Those of the reader, which is the teacher."""
        return self.reader.needs

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Extracts what the teacher or the student is shown, and has the teacher write queries."""
        trace: steps.Trace = {}
        known = ""
        if self.teacher.context or self.student.context:
            known = await queries.extract(question, tools, self.reader, trace)
        await self.teacher(question, known, tools, self.reader, trace)
        return Answer(question.id, "", trace)
