"""REPLUG (Shi et al. 2023): the language model reads every passage alone, and its distributions are
mixed by the passages' relevance.

    p(y|q) = sum_d lambda(d) p(y|q,d),    lambda = softmax of the retrieval scores.

A closed question is answered by the option that is most probable under the mixture. To an open one
the model writes an answer from each passage, and the mixture chooses among these; the original
mixes at every token while it decodes. REPLUG's LSR is trained by `jaxrag.methods.r3.jobs.TrainR3`.

Source: docs/methods, "REPLUG".
"""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxrag.core.checks import check_positive
from jaxrag.data import question_kinds
from jaxrag.engines.scheduler import gather
from jaxrag.functional.mixtures import log_mixture
from jaxrag.functional.on_host import on_host
from jaxrag.steps import kinds, prompts
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, Episode, Scored
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.types import Generation, Passage

_log_mixture = on_host(log_mixture)


@dataclasses.dataclass(frozen=True)
class Config:
    """Ten passages, as in the paper.

    Attributes:
      temperature: divides the retrieval scores in lambda. It must suit the retriever: inner
        products in the hundreds leave all weight on one passage.
    """

    name = "replug"
    needs = Needs(scores=True)

    candidates: Candidates = OnePath(n=10)
    temperature: float = 1.0
    reader: Reader = Reader(prompts="r3", answer_tokens=100)

    def __post_init__(self) -> None:
        check_positive(temperature=self.temperature)

    async def answer(self, episode: Episode) -> Reply:
        """Searches, reads every passage alone, and chooses by the mixture.

        Where nothing was found, the question alone is read.
        """
        question, pseudo = episode.question, await episode.pseudo_for(self.candidates)
        pool = await self.candidates(episode, question.text, pseudo)
        pool = episode.selected(Scored({"score": pool.scores}, range(len(pool))), pool)
        alone = [[passage] for passage in episode.passages(pool)] or [[]]
        if question_kinds.options(question):
            answers = question_kinds.option_texts(question)
            logprobs = await gather(*(episode.option_logprobs(passages) for passages in alone))
        else:
            replies = await gather(*(episode.read(passages) for passages in alone))
            texts = dict.fromkeys(reply.text for reply in replies if reply.text)
            answers = tuple(texts) or ("",)
            logprobs = await gather(*(_logprobs(episode, p, answers) for p in alone))
        scores = np.asarray(pool.scores or (0.0,), np.float32)
        mixed = _log_mixture(scores, np.asarray(logprobs, np.float32), temperature=self.temperature)
        episode.note(ensemble=dict(zip(answers, mixed.tolist(), strict=True)))
        best = int(np.argmax(mixed))
        text, logprob = answers[best], float(mixed[best])
        generation = Generation(text, (), (logprob,), "stop", 0)
        return episode.conclude(Reply(text, text, -logprob, generation), read=pool)


async def _logprobs(
    episode: Episode, passages: list[Passage], answers: tuple[str, ...]
) -> tuple[float, ...]:
    """log p(y|q,d) of each answer y, summed over its tokens, without an end token."""
    limit, fields = episode.reader.answer_tokens, kinds.fields(episode.question)
    prompt, _ = episode.prompt("context", passages=passages, limit=limit, **fields)
    words = [prompts.continuation(prompt, answer) for answer in answers]
    return await episode.logprobs(prompt, words)
