"""Training data of a query optimizer: the frozen reader, as teacher, writes queries.

Nothing is searched for or answered; `jaxrag.methods.errr.query_pairs` makes pairs.jsonl from the
traces.

Source: docs/methods, "ERRR: frozen and trainable".
"""

from __future__ import annotations

import dataclasses

from jaxrag.core.checks import check_share
from jaxrag.methods.errr import queries
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import NO_ANSWER, Reader, Reply


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
    reader: Reader = Reader(prompts="errr")

    def __post_init__(self) -> None:
        check_share(held_out=self.held_out)

    async def answer(self, episode: Episode) -> Reply:
        """Extracts C if teacher or student are shown it, and has the teacher write queries."""
        shown = self.teacher.context or self.student.context
        await self.teacher(episode, await queries.extract(episode) if shown else "")
        return NO_ANSWER
