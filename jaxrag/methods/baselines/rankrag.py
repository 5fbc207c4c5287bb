"""RankRAG's selection (Yu et al. 2024) by prompting: the model that answers first ranks passages.

The same language model is asked of each of n passages whether it is relevant to the question, and
scores it by the probability of the word that says so ("True"); the k best, in that order, are read.

It is not RankRAG: there one model was fine-tuned on instructions to rank and to answer, and its
checkpoint is needed for its figures. Here an untuned model is prompted for both, so only the way of
inference is RankRAG's. The word's probability is scored (the sum over its tokens), never sampled.

Source: docs/methods.md, "RankRAG".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxrag.engines.scheduler import gather
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, prompts, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.passage_selectors import record_choice
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, InputError, Passage, Prompt, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """How many passages are judged and read.

    Attributes:
      candidates: the passages that are scored, one prompt each.
      k: how many are read.
      reader: how the model is asked; the first of ``words`` of its prompt [relevance] says that a
        passage is relevant. ``answer_tokens`` is for open questions.
      closed_tokens: most new tokens of the answer to a closed question.
      by: what answers a closed question, see `kinds.By`.
    """

    name = "rankrag"

    candidates: steps.Candidates = OnePath(n=20)
    k: int = 5
    reader: steps.Reader = steps.Reader(prompts="baselines")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)
        if self.k < 1:
            raise InputError(f"k is {self.k}; it must be at least 1.")

    @property
    def needs(self) -> Needs:
        """Passages are ranked by a probability."""
        return (
            Needs(logprobs=True)
            | tasks.answering_needs(self)
            | needs_of(candidates=self.candidates)
        )

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Scores the candidates, then reads the best."""
        trace: steps.Trace = {}
        pool = await steps.find_candidates(question, tools, self, trace)
        passages = tools.retriever.passages(pool.rows)
        pairs = _judged(question, passages, self.reader)
        found = await gather(*(tools.llm.logprob(prompt, word) for prompt, word in pairs))
        scores = [float(np.sum(logprobs, dtype=np.float64)) for logprobs in found]
        best = sorted(range(len(scores)), key=lambda i: -scores[i])[
            : self.k
        ]  # ties: search's order
        rows = tuple(pool.rows[i] for i in best)
        columns = {"retrieval": pool.scores, "score": scores}
        record_choice(trace, tools, pool, columns, rows)
        reply = await tasks.answer_from_passages(question, rows, tools, self, trace)
        return Answer(question.id, reply.text, trace)


def _judged(
    question: Question, passages: Sequence[Passage], reader: steps.Reader
) -> list[tuple[Prompt, str]]:
    """For each passage what asks about it, and the word for relevant as it would follow.

    Raises:
      InputError: the prompts do not say which word that is.
    """
    layout = prompts.load(reader.prompts)
    template = layout.role("relevance")
    if not template.words:
        raise InputError(
            f"{layout.path} [relevance] has no words: give them with the one for relevant first, "
            'as words = ["relevant", "irrelevant"].'
        )
    told = steps.question_text(question)
    asked = [template.prompt(question=told, passage=layout.render([one])) for one in passages]
    return [(prompt, tasks.continuation(prompt, template.words[0])) for prompt in asked]
