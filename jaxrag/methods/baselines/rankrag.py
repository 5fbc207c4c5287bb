"""RankRAG's inference (Yu et al. 2024) by prompting: the model ranks passages, then answers.

1. For each of n passages, a prompt asks the language model whether it is relevant to the question;
   its score is the probability of the word for relevant ("True"), summed over its tokens.
2. The same model answers from the k best, in that order.

The original fine-tunes one model for both; here an untuned model is prompted.

Source: docs/methods, "RankRAG".
"""

from __future__ import annotations

import dataclasses

from jaxrag.core.checks import check_limits
from jaxrag.engines.scheduler import gather
from jaxrag.steps import kinds, prompts
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, Episode, Pool, Scored
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.types import Passage


@dataclasses.dataclass(frozen=True)
class Config:
    """RankRAG's settings.

    Attributes:
      candidates: the passages that are scored, one prompt each.
      k: how many of them are read.
      reader: prompts and decoding; the first of ``words`` of its prompt [relevance] is the word
        for relevant.
    """

    name = "rankrag"
    needs = Needs(scores=True)

    candidates: Candidates = OnePath(n=20)
    k: int = 5
    reader: Reader = Reader(prompts="baselines")

    def __post_init__(self) -> None:
        check_limits(k=self.k)

    async def answer(self, episode: Episode) -> Reply:
        """Scores the candidates, then reads the best."""
        query, pseudo = episode.question.text, await episode.pseudo_for(self.candidates)
        pool = await self.candidates(episode, query, pseudo)
        scores = await _relevance(episode, pool)
        order = sorted(range(len(scores)), key=lambda i: -scores[i])  # ties: order of the search
        columns = {"retrieval": pool.scores, "score": scores}
        return await episode.answer(episode.selected(Scored(columns, order[: self.k]), pool))


async def _relevance(episode: Episode, pool: Pool) -> list[float]:
    """For each passage the log-probability of the word for relevant."""
    layout = prompts.load(episode.reader.prompts)
    meaning = 'the one for relevant first, as words = ["relevant", "irrelevant"]'
    template = layout.role_with_words("relevance", 2, meaning)

    async def score(passage: Passage) -> float:
        text = kinds.question_text(episode.question)
        prompt = template.prompt(question=text, passage=layout.render([passage]))
        word = prompts.continuation(prompt, template.words[0])
        (logprob,) = await episode.logprobs(prompt, [word])
        return logprob

    return await gather(*(score(passage) for passage in episode.passages(pool)))
