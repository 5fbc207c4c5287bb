"""Chain of thought (Wei et al. 2022), the row COT of ARS-RAG's table: reasoning, then the answer.

One greedy generation with demonstrations of reasoning, without retrieval. The answer is what the
text states to be the answer; if it states none, its last sentence, marked as junk in the trace.

Source: docs/methods, "Chain of thought".
"""

from __future__ import annotations

import dataclasses

from jaxrag.core.checks import check_limits
from jaxrag.steps import kinds
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader, Reply
from jaxrag.text.sentences import last_sentence, stated_answer
from jaxrag.types import InputError, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the prompt.

    Attributes:
      reader: prompts and decoding; its ``answer_tokens`` are not used.
      reasoning_tokens: most new tokens of reasoning and answer together.
    """

    name = "chain_of_thought"

    reader: Reader = Reader(prompts="baselines")
    reasoning_tokens: int = 256

    def __post_init__(self) -> None:
        self.reader.check_stated(self.name)
        check_limits(reasoning_tokens=self.reasoning_tokens)

    async def answer(self, episode: Episode) -> Reply:
        """Generates once and parses the answer at the end."""
        role = _role(episode.question)
        fields = kinds.fields(episode.question)
        reply = await episode.ask(role, limit=self.reasoning_tokens, **fields)
        stated = stated_answer(reply.text)
        return episode.finish(
            stated or last_sentence(reply.text),
            raw=reply.raw,
            generation=reply.generation,
            junk=stated is None,
            role=role,
        )


def _role(question: Question) -> str:
    task = kinds.task_of(question)
    if task == "fact_checking":
        raise InputError(
            f"Question {question.id} is a statement to check, for which chain of thought has no "
            "prompt: set the data's task to yes_no or labels, or take questions of another kind."
        )
    return "chain_of_thought" if task == "open" else f"chain_of_thought_{task}"
