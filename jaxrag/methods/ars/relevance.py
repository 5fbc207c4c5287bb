"""Is a passage relevant to a question? A language model's word for it, or its two words' odds.

ARS-RAG's evaluator (docs/methods.md, "ARS-RAG: rewrites and labels" and "ARS-RAG: prompts"), after
RAGAS' context relevance.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Literal, NamedTuple, get_args

import numpy as np

from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.scheduler import gather
from jaxrag.steps import prompts
from jaxrag.steps.model_helper import model_needs, model_tool
from jaxrag.steps.needs import Needs
from jaxrag.steps.tasks import continuation
from jaxrag.steps.tools import LanguageModelTool, Tools
from jaxrag.types import InputError, Passage, Prompt

By = Literal["logprob", "word"]
_WORD_TOKENS = 4  # enough for either word in any tokenizer
_WORDS = 2  # relevant, irrelevant


@dataclasses.dataclass(frozen=True)
class Judge:
    """How relevance is asked for.

    Attributes:
      by: "logprob": whether the word for relevant is more probable than the other; "word": which
        of the two the model writes.
      prompts: the set whose role "relevance" asks.
      empty: a text that says nothing, such as "N/A". With one, "logprob" asks whether the passage
        makes the word for relevant more probable than that text does, since small models prefer one
        word whatever they read (contextual calibration, Zhao et al. 2021); "" compares the words.
      model: the language model that is asked; None is the one that reads.
    """

    by: By = "logprob"
    prompts: str = "ars"
    empty: str = ""
    model: ModelSettings | None = None

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise InputError(f"judge.by is {self.by!r}; allowed: {', '.join(get_args(By))}.")

    @property
    def needs(self) -> Needs:
        """The model that is asked, with log-probabilities where it is judged by them."""
        return model_needs("model", self.model, logprobs=self.by == "logprob")

    def language_model(self, tools: Tools) -> LanguageModelTool:
        """The model that is asked."""
        return model_tool(self.model, tools)

    def other_way(self) -> Judge:
        """The same judge, asked in the other of the two ways."""
        return dataclasses.replace(self, by="word" if self.by == "logprob" else "logprob")


class Judgement(NamedTuple):
    """A verdict on one passage.

    Attributes:
      relevant: s of docs/methods.md, "ARS-RAG: rewrites and labels"; what the model wrote being
        neither word counts as irrelevant.
      probability: of the word for relevant, against the other (with ``empty``, against what it is
        given that text); None by the written word.
      junk: the model wrote neither word.
    """

    relevant: bool
    probability: float | None = None
    junk: bool = False


async def judge(
    question: str, passage: Passage, llm: LanguageModelTool, settings: Judge
) -> Judgement:
    """Judges one passage.

    Raises:
      InputError: the prompts do not say which two words there are.
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
    found = re.search(rf"\b({'|'.join(map(re.escape, template.words))})\b", reply.text, re.I)
    if not found:
        return Judgement(False, junk=True)
    return Judgement(found.group(1).lower() == template.words[0].lower())


async def _log_odds(prompt: Prompt, words: tuple[str, ...], llm: LanguageModelTool) -> float:
    """ln P(first word) - ln P(second word), each summed over its tokens."""
    parts = await gather(*(llm.logprob(prompt, continuation(prompt, word)) for word in words))
    first, second = (float(np.sum(part, dtype=np.float64)) for part in parts)
    return first - second
