"""IRCoT (Trivedi et al. 2023): retrieval and reasoning take turns.

Passages for the question; a sentence of reasoning from them; passages for that sentence; the next
sentence from all passages so far; until a sentence states the answer. Then the answer is read, by
the setting, from all passages ("passages", the paper's separate reader, here the one that asks for
the answer alone) or from the reasoning itself.

What differs from the original: its demonstrations are written for each data set, and its reader may
reason anew; here a sentence that was written before ends the loop.

Source: docs/methods.md, "IRCoT".
"""

from __future__ import annotations

import dataclasses

from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, loops, tasks
from jaxrag.steps.needs import Needs
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's limits, with 4 passages a search.

    Attributes:
      loop: how much is retrieved and written.
      answer_from: what the answer is read from.
      reader: how the model is asked; roles "reason", and those that answer from passages.
      closed_tokens: most new tokens of a closed question's answer, from "passages".
      by: what answers a closed question, from "passages"; see `kinds.By`.
    """

    name = "ircot"

    loop: loops.Interleaving = loops.Interleaving()
    answer_from: loops.AnswerFrom = "passages"
    reader: steps.Reader = steps.Reader(prompts="iterative")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        loops.check_answer_from(self.answer_from)
        kinds.check_closed(self.closed_tokens, self.by)

    @property
    def needs(self) -> Needs:
        """It searches, and may answer from passages."""
        return Needs(search=True) | tasks.answering_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Reasons and retrieves in turns, then answers."""
        trace: steps.Trace = {}
        reply = await loops.reason_and_answer(question, tools, self, trace)
        return Answer(question.id, reply.text, trace)
