"""Relevance of a passage to a question, judged by a language model.

ARS-RAG's evaluator, after RAGAS' context relevance (docs/methods.md, "ARS-RAG: rewrites and labels"
and "ARS-RAG: prompts").
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from jaxrag.core.checks import check_choices
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.scheduler import gather
from jaxrag.steps import prompts
from jaxrag.steps.tasks import continuation
from jaxrag.steps.tools import LanguageModelTool, Needs, Tools, model_needs, model_tool
from jaxrag.types import InputError, Passage, Prompt, Question, Ranking

By = Literal["logprob", "word"]
_WORD_TOKENS = 4  # enough for either word in any tokenizer
_WORDS = 2  # relevant, irrelevant


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
        """The judging model, which scores texts if ``by`` is "logprob"."""
        return model_needs("model", self.model, scores=self.by == "logprob")

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
    question: Question, rankings: Sequence[Ranking], tools: Tools, settings: RelevanceJudge
) -> dict[int, Judgement]:
    """The verdict on every passage found, by row; each passage is judged once."""
    rows = list(dict.fromkeys(row for ranking in rankings for row in ranking.ids))
    passages, llm = tools.retriever.passages(rows), model_tool(settings.model, tools)
    found = await gather(*(judge(question.text, one, llm, settings) for one in passages))
    return dict(zip(rows, found, strict=True))


async def judge(
    question: str, passage: Passage, llm: LanguageModelTool, settings: RelevanceJudge
) -> Judgement:
    """Judges one passage.

    Raises:
      InputError: the role "relevance" of the prompts does not name its two words.
    """
    layout = prompts.load(settings.prompts)
    template = layout.role("relevance")
    if len(template.words) != _WORDS:
        raise InputError(
            f"{layout.path} [relevance] has the words {list(template.words)}; give two, the one "
            'for relevant first, as words = ["relevant", "irrelevant"].'
        )
    prompt = template.prompt(question=question, passage=layout.render([passage]))
    if settings.by == "word":
        return await _by_word(prompt, template, llm)
    odds = await _log_odds(prompt, template.words, llm)
    if settings.empty:
        nothing = template.prompt(question=question, passage=settings.empty)
        odds -= await _log_odds(nothing, template.words, llm)
    return Judgement(odds > 0, 1 / (1 + math.exp(min(-odds, 700.0))))


async def _by_word(prompt: Prompt, template: prompts.Template, llm: LanguageModelTool) -> Judgement:
    reply = await llm.generate(prompt, max_new_tokens=_WORD_TOKENS, stop=template.stop)
    return word_judgement(reply.text, template.words)


def word_judgement(text: str, words: Sequence[str]) -> Judgement:
    """The judgement that a text names by the first of the words in it; junk without any."""
    found = re.search(rf"\b({'|'.join(map(re.escape, words))})\b", text, re.I)
    if not found:
        return Judgement(False, junk=True)
    return Judgement(found.group(1).lower() == words[0].lower())


async def _log_odds(prompt: Prompt, words: tuple[str, ...], llm: LanguageModelTool) -> float:
    """ln P(first word) - ln P(second word), each summed over its tokens."""
    parts = await gather(*(llm.logprob(prompt, continuation(prompt, word)) for word in words))
    first, second = (float(np.sum(part, dtype=np.float64)) for part in parts)
    return first - second
