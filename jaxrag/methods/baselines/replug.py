"""REPLUG (Shi et al. 2023): the language model reads every passage alone, and its distributions are
mixed by the passages' relevance.

    p(y|q) = sum_d lambda(d) p(y|q,d),    lambda = softmax of the retrieval scores.

A closed question is answered by the option that is most probable under the mixture. For an open
one, the original mixes the distributions of every token while it decodes. Here the model writes an
answer from each passage, and the mixture chooses among these: p(y|q) is exact for each of them, but
an answer that no single passage gives cannot win.

REPLUG's second half, LSR, trains the retriever by the KL divergence between its distribution over
the passages and that of the answer's probabilities: `jaxrag.methods.r3.jobs.TrainR3` with
``training.phases="online"``, ``training.update.objective="kl"`` and ``search="reindexed"``.

Source: docs/methods.md, "REPLUG".
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from jaxrag.data import question_kinds
from jaxrag.engines.scheduler import gather
from jaxrag.functional.mixtures import log_mixture
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import record_choice
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.types import Answer, InputError, Passage, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """Ten passages, as in the paper.

    Attributes:
      candidates: the passages, each of which is read alone.
      temperature: divides the retrieval scores in lambda. It must suit the retriever: inner
        products in the hundreds leave all weight on one passage.
      reader: prompts and decoding; ``answer_tokens`` is for open questions.
    """

    name = "replug"

    candidates: steps.Candidates = OnePath(n=10)
    temperature: float = 1.0
    reader: steps.Reader = steps.Reader(prompts="r3", answer_tokens=100)

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise InputError(f"temperature is {self.temperature}; it must be above 0.")

    @property
    def needs(self) -> Needs:
        """Log-probabilities, and the needs of the candidates."""
        return needs_of(candidates=self.candidates) | Needs(scores=True) | self.reader.needs

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Searches, reads every passage alone, and chooses by the mixture.

        Where nothing was found, the question alone is read.
        """
        trace: steps.Trace = {"task": kinds.task_of(question)}
        pool = await steps.find_candidates(question, tools, self, trace)
        record_choice(trace, tools, pool, {"score": pool.scores}, pool.rows)
        each_read = [[one] for one in tools.retriever.passages(pool.rows)] or [[]]
        if question_kinds.options(question):
            answers = question_kinds.option_texts(question)
            each = await gather(
                *(tasks.choice_logprobs(question, p, tools, self.reader) for p in each_read)
            )
        else:
            answers = await self._answers(question, each_read, tools)
            each = await gather(*(self._logprobs(question, p, answers, tools) for p in each_read))
        scores = jnp.asarray(pool.scores or (0.0,))
        mixed = log_mixture(scores, jnp.asarray(each), temperature=self.temperature)
        text = answers[int(jnp.argmax(mixed))]
        trace["answer"] = {"text": text}
        trace["ensemble"] = dict(zip(answers, np.asarray(mixed).tolist(), strict=True))
        kinds.note_option(text, question, trace)
        return Answer(question.id, text, trace)

    async def _answers(
        self, question: Question, each_read: list[list[Passage]], tools: Tools
    ) -> tuple[str, ...]:
        """The different answers that the model writes from each passage alone, in their order."""
        replies = await gather(
            *(
                steps.ask_from_passages(question, passages, tools.llm, self.reader, {})
                for passages in each_read
            )
        )
        return tuple(dict.fromkeys(reply.text for reply in replies if reply.text)) or ("",)

    async def _logprobs(
        self, question: Question, passages: list[Passage], answers: tuple[str, ...], tools: Tools
    ) -> tuple[float, ...]:
        """log p(y|q,d) of each answer y, summed over its tokens, without an end token."""
        prompt = tasks.prompt(question, passages, tools.llm, self.reader, {})
        parts = await gather(
            *(tools.llm.logprob(prompt, tasks.continuation(prompt, answer)) for answer in answers)
        )
        return tuple(float(np.sum(part, dtype=np.float64)) for part in parts)
