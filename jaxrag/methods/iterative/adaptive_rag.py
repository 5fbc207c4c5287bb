"""Adaptive-RAG (Jeong et al. 2024): as much retrieval as the complexity of a question requires.

A trained classifier labels the question: A is answered without retrieval, B after one search, C by
IRCoT's loop. Its training data is made by `adaptive_labels`.

Source: docs/methods, "Adaptive-RAG".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

from jaxrag.core.checks import check_choices
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.methods.iterative import ircot
from jaxrag.steps import loops, prompts
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, Episode, PassageSelector
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.types import InputError

Strategy = Literal["none", "single", "multi"]
"""How a question is answered: without retrieval, after one search, or by IRCoT's loop."""

Asked = Literal["logprob", "text"]
_LABEL_TOKENS = 4  # enough for one letter in any tokenizer


@dataclasses.dataclass(frozen=True)
class Strategies:
    """Settings of the three strategies.

    Attributes:
      candidates, select: passages of the single search of "single"; None for no search at all.
      loop, answer_from: settings of "multi", as in `ircot`.
    """

    candidates: Candidates | None = OnePath(n=4)
    select: PassageSelector = Top(k=4)
    loop: ircot.Interleaving = ircot.Interleaving()
    answer_from: ircot.AnswerFrom = "reasoning"
    reader: Reader = Reader(prompts="iterative")

    def __post_init__(self) -> None:
        check_choices(self, answer_from=ircot.AnswerFrom)

    @property
    def needs(self) -> Needs:
        """An index, unless nothing is searched for."""
        return Needs(search=self.candidates is not None)

    async def answer_by(self, strategy: Strategy, episode: Episode) -> Reply:
        """Answers by one of the three strategies."""
        if strategy == "none" or self.candidates is None:
            return await episode.answer()
        if strategy == "single":
            pool = await loops.retrieve(episode, self.candidates, self.select)
            return await episode.answer(pool)
        return await ircot.reason_and_answer(episode, self.loop, self.answer_from)


class Complexity(Protocol):
    """Chooses the strategy of a question."""

    async def __call__(self, episode: Episode) -> Strategy:
        """The strategy."""
        ...


@dataclasses.dataclass(frozen=True)
class Classified:
    """The strategy by a trained classifier; its prompt is role "complexity" of the reader's.

    Attributes:
      asked: "logprob" takes the most probable of its three labels (ties go to the simplest);
        "text" takes the label that it writes, or B if it writes none, which the trace marks.
    """

    classifier: ModelSettings = Seq2Seq()
    asked: Asked = "logprob"

    def __post_init__(self) -> None:
        check_choices(self, asked=Asked)

    @property
    def needs(self) -> Needs:
        """Log-probabilities of labels, which the classifier must give."""
        return Needs(scores=self.asked == "logprob")

    async def __call__(self, episode: Episode) -> Strategy:
        """Asks the classifier; ``trace["complexity"]``."""
        template = classifier_template(episode.reader.prompts)
        words, prompt = template.words, template.prompt(question=episode.question.text)
        if self.asked == "logprob":  # as in training (`adaptive_labels`), no blank before a label
            logprobs = await episode.logprobs(prompt, words, model=self.classifier)
            number = max(range(len(logprobs)), key=logprobs.__getitem__)
            record: dict[str, Any] = {"logprobs": list(logprobs)}
        else:
            generation = await episode.model(self.classifier).generate(
                prompt, max_new_tokens=_LABEL_TOKENS, stop=template.stop
            )
            label = first_label(generation.text, words)
            number = len(words) // 2 if label is None else label
            record = {"raw": generation.text, "junk": label is None}
        episode.note(complexity={"label": words[number], **record})
        return get_args(Strategy)[number]


@dataclasses.dataclass(frozen=True)
class OneStrategy:
    """The same strategy for every question: the paper's baselines."""

    strategy: Strategy = "single"

    def __post_init__(self) -> None:
        check_choices(self, strategy=Strategy)

    async def __call__(self, episode: Episode) -> Strategy:
        """The strategy."""
        return self.strategy


@dataclasses.dataclass(frozen=True)
class Config(Strategies):
    """The three strategies, and how one is chosen for a question."""

    name = "adaptive_rag"

    complexity: Complexity = Classified()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.candidates is None and self.complexity != OneStrategy("none"):
            raise InputError(
                "candidates is None, so nothing is searched for: set complexity=OneStrategy with "
                "strategy none, or give candidates."
            )

    async def answer(self, episode: Episode) -> Reply:
        """Classifies the question, then answers by that strategy."""
        strategy = await self.complexity(episode)
        episode.decided("adaptive_rag", strategy != "none", strategy=strategy)
        return await self.answer_by(strategy, episode)


def classifier_template(name: str) -> prompts.Template:
    """The role "complexity" of a prompt set, in training and in use; InputError without 3 words."""
    meaning = 'the labels of no, one and several searches, as words = ["A", "B", "C"]'
    return prompts.load(name).role_with_words("complexity", len(get_args(Strategy)), meaning)


def first_label(text: str, labels: Sequence[str]) -> int | None:
    """Index of the label that occurs first in a text as a whole word; None if none does."""
    either = "|".join(map(re.escape, labels))
    match = re.search(rf"(?<!\w)(?:{either})(?!\w)", text)
    return labels.index(match.group()) if match else None
