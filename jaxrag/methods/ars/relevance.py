"""Relevance of a passage to a question, judged by a language model.

ARS-RAG's evaluator, after RAGAS' context relevance (docs/methods, "ARS-RAG: rewrites and labels"
and "ARS-RAG: prompts").
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from jaxrag.core.checks import check_choices
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.scheduler import gather
from jaxrag.steps import prompts
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.tools import Needs
from jaxrag.types import Passage, Prompt

By = Literal["logprob", "word"]
_WORD_TOKENS = 4  # enough for either word in any tokenizer


@dataclasses.dataclass(frozen=True)
class RelevanceJudge:
    """A judge of passages' relevance.

    Attributes:
      by: "word": by which of the words for relevant and irrelevant the model writes, as in the
        paper; "logprob": by which of them is more probable.
      prompts: the prompt set whose role "relevance" is used.
      empty: a text without content, such as "N/A". If set, "logprob" judges by whether the passage
        raises the log-odds of the word for relevant above those given this text, since small models
        prefer one word whatever they read (contextual calibration, Zhao et al. 2021).
      model: the language model that judges; None uses the run's.
    """

    by: By = "word"
    prompts: str = "ars"
    empty: str = ""
    model: ModelSettings | None = None

    def __post_init__(self) -> None:
        check_choices(self, by=By)

    @property
    def needs(self) -> Needs:
        """Scores of texts, if ``by`` is "logprob"."""
        return Needs(scores=self.by == "logprob")

    def other_way(self) -> RelevanceJudge:
        """The same judge with the other value of ``by``."""
        return dataclasses.replace(self, by="word" if self.by == "logprob" else "logprob")


class Judgement(NamedTuple):
    """The verdict on one passage.

    Attributes:
      relevant: s_j; False if the model wrote neither word.
      probability: P(relevant) / (P(relevant) + P(irrelevant)), after calibration if ``empty`` is
        set; None for a verdict by the written word.
      junk: the model wrote neither word.
    """

    relevant: bool
    probability: float | None = None
    junk: bool = False


async def judge_all(
    episode: Episode, rankings: Sequence[Pool], settings: RelevanceJudge
) -> dict[int, Judgement]:
    """The verdict on every passage of some pools, by row; each passage is judged once."""
    pool = functools.reduce(Pool.union, rankings, Pool())
    verdicts = await gather(*(judge(episode, p, settings) for p in episode.passages(pool)))
    return dict(zip(pool.rows, verdicts, strict=True))


async def judge(episode: Episode, passage: Passage, settings: RelevanceJudge) -> Judgement:
    """Judges one passage; InputError where the role "relevance" does not name its two words."""
    question, layout = episode.question.text, prompts.load(settings.prompts)
    meaning = 'the one for relevant first, as words = ["relevant", "irrelevant"]'
    template = layout.role_with_words("relevance", 2, meaning)
    prompt = template.prompt(question=question, passage=layout.render([passage]))
    if settings.by == "word":
        reply = await episode.model(settings.model).generate(
            prompt, max_new_tokens=_WORD_TOKENS, stop=template.stop
        )
        return word_judgement(reply.text, template.words)
    odds = await _log_odds(episode, prompt, template.words, settings)
    if settings.empty:
        nothing = template.prompt(question=question, passage=settings.empty)
        odds -= await _log_odds(episode, nothing, template.words, settings)
    return Judgement(odds > 0, 1 / (1 + math.exp(min(-odds, 700.0))))


def word_judgement(text: str, words: Sequence[str]) -> Judgement:
    """The judgement that a text names by the first of the words in it; junk without any."""
    match = re.search(rf"\b({'|'.join(map(re.escape, words))})\b", text, re.I)
    if not match:
        return Judgement(False, junk=True)
    return Judgement(match.group(1).lower() == words[0].lower())


async def _log_odds(
    episode: Episode, prompt: Prompt, words: tuple[str, ...], settings: RelevanceJudge
) -> float:
    """ln P(first word) - ln P(second word), each summed over its tokens."""
    continuations = [prompts.continuation(prompt, word) for word in words]
    first, second = await episode.logprobs(prompt, continuations, model=settings.model)
    return first - second
