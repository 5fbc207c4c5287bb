"""Adaptive-RAG (Jeong et al. 2024): as much retrieval as the complexity of a question requires.

A trained classifier labels the question: A is answered without retrieval, B after one search, C by
IRCoT's loop. Its training data is made by `adaptive_labels`.

Source: docs/methods.md, "Adaptive-RAG".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from jaxrag.core.checks import check_choices
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.scheduler import gather
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.methods.iterative import ircot
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, prompts, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.tools import LanguageModelTool, ModelHelper, Needs, Tools, needs_of
from jaxrag.types import Answer, InputError, Question

Strategy = Literal["none", "single", "multi"]
"""How a question is answered: without retrieval, after one search, or by IRCoT's loop."""

Complexity = Literal["trained", "none", "single", "multi"]
Asked = Literal["logprob", "text"]
_LABEL_TOKENS = 4  # enough for one letter in any tokenizer


@dataclasses.dataclass(frozen=True)
class Strategies:
    """Settings of the three strategies.

    Attributes:
      candidates, select: passages of the single search of "single".
      loop, answer_from: settings of "multi", as in `ircot`.
      reader: prompts and decoding.
      closed_tokens: most new tokens of a closed question's answer.
      by: how a closed question is answered, see `kinds.By`.
    """

    candidates: steps.Candidates = OnePath(n=4)
    select: steps.PassageSelector = Top(k=4)
    loop: ircot.Interleaving = ircot.Interleaving()
    answer_from: ircot.AnswerFrom = "reasoning"
    reader: steps.Reader = steps.Reader(prompts="iterative")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        check_choices(self, answer_from=ircot.AnswerFrom)
        kinds.check_closed(self.closed_tokens, self.by)

    @property
    def needs(self) -> Needs:
        """An index, and the needs of all strategies."""
        found = needs_of(candidates=self.candidates, select=self.select)
        return Needs(search=True) | found | tasks.answering_needs(self)

    async def answer_by(
        self, strategy: Strategy, question: Question, tools: Tools, trace: steps.Trace
    ) -> Answer:
        """Answers by one of the three strategies."""
        if strategy == "none":
            reply = await tasks.answer_directly(question, tools, self, trace)
        elif strategy == "single":
            rows = await steps.retrieve(question, tools, self, trace)
            reply = await tasks.answer_from_passages(question, rows, tools, self, trace)
        else:
            reply = await ircot.reason_and_answer(question, tools, self, trace)
        return Answer(question.id, reply.text, trace)


@dataclasses.dataclass(frozen=True)
class Config(Strategies):
    """The three strategies, and how one is chosen for a question.

    Attributes:
      complexity: "trained" asks the classifier; the others use one strategy for every question,
        the paper's baselines.
      classifier: the trained model, a T5 or a decoder. ``reader``'s role "complexity" is its
        prompt, whose ``words`` are the labels of none, single and multi.
      asked: "logprob" takes the most probable of its three labels (ties go to the simplest);
        "text" takes the label that it writes, or B if it writes none, which the trace marks.
    """

    name = "adaptive_rag"

    complexity: Complexity = "trained"
    classifier: ModelSettings = Seq2Seq()
    asked: Asked = "logprob"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, complexity=Complexity, asked=Asked)

    @property
    def helper(self) -> ModelHelper:
        """The classifier as a helper."""
        return ModelHelper(self.classifier, scores=self.asked == "logprob")

    @property
    def needs(self) -> Needs:
        """Needs of the possible strategies, and the classifier."""
        found = super().needs if self.complexity != "none" else tasks.answering_needs(self)
        if self.complexity == "trained":
            found |= Needs(helpers={"classifier": self.helper})
        return found

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Classifies the question, then answers by that strategy."""
        trace: steps.Trace = {}
        if self.complexity == "trained":
            strategy = await self._classify(question, tools, trace)
        else:
            strategy = self.complexity
        trace["gate"] = {
            "name": "adaptive_rag",
            "retrieve": strategy != "none",
            "strategy": strategy,
        }
        return await self.answer_by(strategy, question, tools, trace)

    async def _classify(self, question: Question, tools: Tools, trace: steps.Trace) -> Strategy:
        template = classifier_template(self.reader.prompts)
        label = label_by_logprob if self.asked == "logprob" else label_by_text
        number, record = await label(question, template, tools.helper(self.helper))
        trace["complexity"] = {"label": template.words[number], **record}
        return get_args(Strategy)[number]


def classifier_template(name: str) -> prompts.Template:
    """The classifier's prompt, in training and in use: role "complexity" of a prompt set.

    Raises:
      InputError: it does not name the three labels.
    """
    layout = prompts.load(name)
    template = layout.role("complexity")
    count = len(get_args(Strategy))
    if len(template.words) != count:
        raise InputError(
            f"{layout.path} [complexity] has the words {list(template.words)}; give {count}, the "
            'labels of no, one and several searches, as words = ["A", "B", "C"].'
        )
    return template


async def label_by_logprob(
    question: Question, template: prompts.Template, llm: LanguageModelTool
) -> tuple[int, dict[str, Any]]:
    """Number of the most probable label, by the sum over its tokens.

    As in training (`complexity_pairs`), no blank precedes a label.
    """
    prompt = template.prompt(question=question.text)
    parts = await gather(*(llm.logprob(prompt, label) for label in template.words))
    found = [float(np.sum(part, dtype=np.float64)) for part in parts]
    return max(range(len(found)), key=found.__getitem__), {"logprobs": found}


async def label_by_text(
    question: Question, template: prompts.Template, llm: LanguageModelTool
) -> tuple[int, dict[str, Any]]:
    """Number of the first label in the generated text; the middle one if it contains none."""
    generation = await llm.generate(
        template.prompt(question=question.text),
        max_new_tokens=_LABEL_TOKENS,
        stop=template.stop,
    )
    number = first_label(generation.text, template.words)
    record = {"raw": generation.text, "junk": number is None}
    return len(template.words) // 2 if number is None else number, record


def first_label(text: str, labels: Sequence[str]) -> int | None:
    """Index of the label that occurs first in a text as a whole word; None if none does."""
    either = "|".join(map(re.escape, labels))
    found = re.search(rf"(?<!\w)(?:{either})(?!\w)", text)
    return labels.index(found.group()) if found else None
