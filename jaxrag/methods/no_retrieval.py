"""No Retrieval: the model answers from its own knowledge."""

from __future__ import annotations

import dataclasses

from jaxrag.methods import steps
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """How the model is asked."""

    reader: steps.Reader = steps.Reader(prompts="dtr")


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Asks once."""
    trace: steps.Trace = {}
    reply = await steps.answer_directly(question, tools, config.reader, trace)
    trace["answer"] = reply.record()
    return Answer(question.id, reply.text, trace)
