"""Few-shot prompting, the row LLM of ARS-RAG's table: demonstrations, then the question.

Nothing is retrieved. `no_retrieval` is the same without demonstrations, and for open questions
only. The paper does not show its demonstrations; ours are those of the prompts.

Source: docs/methods.md, "Few-shot".
"""

from __future__ import annotations

import dataclasses

from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.tools import Needs, Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the prompt.

    Attributes:
      reader: its prompts hold the demonstrations; ``answer_tokens`` is for open questions.
      closed_tokens: most new tokens of the answer to a closed question.
      by: how a closed question is answered, see `kinds.By`.
    """

    name = "few_shot"

    reader: steps.Reader = steps.Reader(prompts="baselines")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)

    @property
    def needs(self) -> Needs:
        """Needs of answering."""
        return tasks.answering_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers with one generation."""
        trace: steps.Trace = {}
        reply = await tasks.answer_directly(question, tools, self, trace)
        return Answer(question.id, reply.text, trace)
