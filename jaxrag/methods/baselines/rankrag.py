"""RankRAG's inference (Yu et al. 2024) by prompting: the model ranks passages, then answers.

1. For each of n passages, a prompt asks the language model whether it is relevant to the question;
   its score is the probability of the word for relevant ("True"), summed over its tokens.
2. The same model answers from the k best, in that order.

RankRAG fine-tunes one model for both, and its figures need that checkpoint; here an untuned model
is prompted.

Source: docs/methods.md, "RankRAG".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxrag.core.checks import check_limits
from jaxrag.engines.scheduler import gather
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, prompts, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import record_choice
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.types import Answer, InputError, Passage, Prompt, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """RankRAG's settings.

    Attributes:
      candidates: the passages that are scored, one prompt each.
      k: how many of them are read.
      reader: prompts and decoding; the first of ``words`` of its prompt [relevance] is the word
        for relevant. ``answer_tokens`` is for open questions.
      closed_tokens: most new tokens of the answer to a closed question.
      by: how a closed question is answered, see `kinds.By`.
    """

    name = "rankrag"

    candidates: steps.Candidates = OnePath(n=20)
    k: int = 5
    reader: steps.Reader = steps.Reader(prompts="baselines")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)
        check_limits(k=self.k)

    @property
    def needs(self) -> Needs:
        """Log-probabilities, and the needs of candidates and answering."""
        return (
            Needs(scores=True) | tasks.answering_needs(self) | needs_of(candidates=self.candidates)
        )

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Scores the candidates, then reads the best."""
        trace: steps.Trace = {}
        pool = await steps.find_candidates(question, tools, self, trace)
        passages = tools.retriever.passages(pool.rows)
        pairs = _relevance_prompts(question, passages, self.reader)
        found = await gather(*(tools.llm.logprob(prompt, word) for prompt, word in pairs))
        scores = [float(np.sum(logprobs, dtype=np.float64)) for logprobs in found]
        order = sorted(range(len(scores)), key=lambda i: -scores[i])  # ties: order of the search
        rows = tuple(pool.rows[i] for i in order[: self.k])
        columns = {"retrieval": pool.scores, "score": scores}
        record_choice(trace, tools, pool, columns, rows)
        reply = await tasks.answer_from_passages(question, rows, tools, self, trace)
        return Answer(question.id, reply.text, trace)


def _relevance_prompts(
    question: Question, passages: Sequence[Passage], reader: steps.Reader
) -> list[tuple[Prompt, str]]:
    """For each passage the prompt for its relevance, and the word for relevant as continuation.

    Raises:
      InputError: the prompt does not name its words.
    """
    layout = prompts.load(reader.prompts)
    template = layout.role("relevance")
    if not template.words:
        raise InputError(
            f"{layout.path} [relevance] has no words: give them with the one for relevant first, "
            'as words = ["relevant", "irrelevant"].'
        )
    text = steps.question_text(question)
    made = [template.prompt(question=text, passage=layout.render([one])) for one in passages]
    return [(prompt, tasks.continuation(prompt, template.words[0])) for prompt in made]
