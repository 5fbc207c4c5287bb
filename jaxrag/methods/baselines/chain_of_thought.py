"""Chain of thought (Wei et al. 2022), the row COT of ARS-RAG's table: reasoning, then the answer.

One greedy generation with demonstrations of reasoning, without retrieval (`retrieve_and_read.COT`
is another method, an expansion of queries). The answer is what the text states to be the answer
(`jaxrag.text.stated_answer`); if it states none, its last sentence, and the trace marks it as junk.
The prompts of ARS-RAG's authors are not known; ours are shorter than those of Wei et al.

Source: docs/methods.md, "Chain of thought".
"""

from __future__ import annotations

import dataclasses

from jaxrag.core.checks import check_limits
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, prompts
from jaxrag.steps.tools import Needs, Tools
from jaxrag.text.stated_answer import last_sentence, stated_answer
from jaxrag.types import Answer, InputError, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the prompt.

    Attributes:
      reader: prompts and decoding; its ``answer_tokens`` are not used.
      reasoning_tokens: most new tokens of reasoning and answer together.
    """

    name = "chain_of_thought"

    reader: steps.Reader = steps.Reader(prompts="baselines")
    reasoning_tokens: int = 256

    def __post_init__(self) -> None:
        check_limits(reasoning_tokens=self.reasoning_tokens)

    @property
    def needs(self) -> Needs:
        """Needs of the reader."""
        return self.reader.needs

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Generates once and parses the answer at the end."""
        task = kinds.task_of(question)
        role = _role(question, task)
        reader = dataclasses.replace(self.reader, answer_tokens=self.reasoning_tokens)
        reply = await steps.ask(role, question, tools.llm, reader, **kinds.fields(question))
        stated = stated_answer(reply.text)
        template = prompts.load(reader.prompts).role(role)
        text = kinds.read(stated or last_sentence(reply.text), question, template)
        record = {**reply._replace(text=text).record(), "junk": stated is None}
        trace: steps.Trace = {"task": task, "answer": record}
        kinds.note_option(text, question, trace)
        return Answer(question.id, text, trace)


def _role(question: Question, task: str) -> str:
    """The role of the question's prompt."""
    if task == "fact_checking":
        raise InputError(
            f"Question {question.id} is a statement to check, for which chain of thought has no "
            "prompt: set the data's task to yes_no or labels, or take questions of another kind."
        )
    return "chain_of_thought" if task == "open" else f"chain_of_thought_{task}"
