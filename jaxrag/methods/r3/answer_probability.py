"""Reads the passages from which the gold answer is most probable (R3, Table 6).

The passages of a pool are put into the order of P(y|q,d), each read alone, and the first ``k`` are
read together: a bound on what a retriever could gain, not a method to compare with.

Source: docs/methods, "R3: ablations".
"""

from __future__ import annotations

import dataclasses

from jaxrag.core.checks import check_limits
from jaxrag.engines.scheduler import gather
from jaxrag.methods.r3.environment import answer_logprobs, gold_logprob
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, Episode, Scored
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's pool of 100 passages, of which ``k`` are read."""

    name = "answer_probability"
    needs = Needs(scores=True)

    candidates: Candidates = OnePath(n=100)
    k: int = 1
    reader: Reader = Reader(prompts="r3", answer_tokens=100, closed_tokens=20)

    def __post_init__(self) -> None:
        check_limits(k=self.k)

    async def answer(self, episode: Episode) -> Reply:
        """Scores and reads; InputError where the question has no gold answer."""
        question = episode.question
        if not question.answers:
            raise InputError(f"Question {question.id} has no gold answer to score passages by.")
        pseudo = await episode.pseudo_for(self.candidates)
        pool = await self.candidates(episode, question.text, pseudo)
        values = await gather(*(answer_logprobs(episode, p) for p in episode.passages(pool)))
        scores = [gold_logprob(question, logprobs) for logprobs in values]
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        columns = {"s1": pool.scores, "score": scores}
        return await episode.answer(episode.selected(Scored(columns, order[: self.k]), pool))
