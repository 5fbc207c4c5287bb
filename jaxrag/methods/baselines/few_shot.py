"""The row LLM of ARS-RAG's table (METHODS 5.8): demonstrations, then the question; no retrieval.

The answer comes from what the model knows. `no_retrieval` is the same without demonstrations and
for open questions only; here closed ones (yes or no, choices) are asked as such. Which and how many
demonstrations the paper shows, it does not say; ours are those of the prompts.
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods import kinds, steps, tasks
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """How the model is asked.

    Attributes:
      reader: its prompts hold the demonstrations; ``answer_tokens`` is for open questions.
      closed_tokens: most new tokens of the answer to a closed question.
      by: what answers a closed question, see `kinds.By`.
    """

    reader: steps.Reader = steps.Reader(prompts="baselines")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Asks once."""
    trace: steps.Trace = {}
    reply = await tasks.answer_directly(question, tools, config, trace)
    return Answer(question.id, reply.text, trace)
