"""Adaptive-RAG (Jeong et al. 2024): as much retrieval as a question's complexity asks for.

A trained classifier labels the question: A is answered without retrieval, B
after one search, C by IRCoT's loop. What it is trained on is made by `adaptive_labels`.

Source: docs/methods.md, "Adaptive-RAG".
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal, get_args

import numpy as np

from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.scheduler import gather
from jaxrag.engines.seq2seq.settings import Seq2Seq
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, loops, prompts, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.model_helper import ModelHelper
from jaxrag.steps.needs import Needs
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.tools import LanguageModelTool, Tools
from jaxrag.types import Answer, InputError, Question

Complexity = Literal["trained", "none", "single", "multi"]
Asked = Literal["logprob", "text"]
_LABEL_TOKENS = 4  # enough for one letter in any tokenizer


@dataclasses.dataclass(frozen=True)
class Config:
    """The three strategies, and what chooses between them.

    Attributes:
      complexity: "trained" asks the classifier; the others take one strategy for every question,
        the paper's baselines.
      classifier: the trained model, a T5 or a decoder.
      asked: how the classifier tells: by the most probable of its three labels (ties go to the
        simplest), or by the label that it writes; where it writes none, B stands, and the trace
        shows it.
      candidates, select: of the one search of "single".
      loop, answer_from: of "multi", as in `ircot`.
      reader: how the model is asked; role "complexity" asks the classifier, whose ``words`` are
        the labels of none, single and multi.
      closed_tokens: most new tokens of a closed question's answer.
      by: what answers a closed question, see `kinds.By`.
    """

    name = "adaptive_rag"

    complexity: Complexity = "trained"
    classifier: ModelSettings = Seq2Seq()
    asked: Asked = "logprob"
    candidates: steps.Candidates = OnePath(n=4)
    select: steps.Selector = Top(k=4)
    loop: loops.Interleaving = loops.Interleaving()
    answer_from: loops.AnswerFrom = "reasoning"
    reader: steps.Reader = steps.Reader(prompts="iterative")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        loops.check_answer_from(self.answer_from)
        kinds.check_closed(self.closed_tokens, self.by)
        for name, allowed in (("complexity", Complexity), ("asked", Asked)):
            value = getattr(self, name)
            if value not in get_args(allowed):
                raise InputError(f"{name} is {value!r}; allowed: {', '.join(get_args(allowed))}.")

    @property
    def trained(self) -> ModelHelper:
        """The classifier as a helper."""
        return ModelHelper(self.classifier, logprobs=self.asked == "logprob")

    @property
    def needs(self) -> Needs:
        """Those of the strategies that may be taken, and the classifier."""
        found = tasks.answering_needs(self)
        if self.complexity != "none":
            found |= loops.strategy_needs(self)
        if self.complexity == "trained":
            found |= Needs(helpers={"classifier": self.trained})
        return found

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Classifies, then answers by that strategy."""
        trace: steps.Trace = {}
        strategy = await _strategy(question, tools, self, trace)
        trace["gate"] = {
            "name": "adaptive_rag",
            "retrieve": strategy != "none",
            "strategy": strategy,
        }
        return await loops.answer_by(strategy, question, tools, self, trace)


def classifier_template(name: str) -> prompts.Template:
    """What asks the classifier, and is its input in training: role "complexity" of a prompt set.

    Raises:
      InputError: it does not say the three labels.
    """
    layout = prompts.load(name)
    template = layout.role("complexity")
    count = len(get_args(loops.Strategy))
    if len(template.words) != count:
        raise InputError(
            f"{layout.path} [complexity] has the words {list(template.words)}; give {count}, the "
            'labels of no, one and several searches, as words = ["A", "B", "C"].'
        )
    return template


async def _strategy(
    question: Question, tools: Tools, config: Config, trace: steps.Trace
) -> loops.Strategy:
    if config.complexity != "trained":
        return config.complexity
    template = classifier_template(config.reader.prompts)
    place, record = await (_by_logprob if config.asked == "logprob" else _by_text)(
        question, template, tools.helper(config.trained)
    )
    trace["complexity"] = {"label": template.words[place], **record}
    return get_args(loops.Strategy)[place]


async def _by_logprob(
    question: Question, template: prompts.Template, llm: LanguageModelTool
) -> tuple[int, dict[str, Any]]:
    """Which label is the most probable, its tokens' log-probabilities summed.

    Labels are asked for as `jaxrag.methods.iterative.complexity_pairs` has them learned: without a
    blank before.
    """
    asked = template.prompt(question=question.text)
    parts = (llm.logprob(asked, label) for label in template.words)
    found = [float(np.sum(part, dtype=np.float64)) for part in await gather(*parts)]
    return max(range(len(found)), key=found.__getitem__), {"logprobs": found}


async def _by_text(
    question: Question, template: prompts.Template, llm: LanguageModelTool
) -> tuple[int, dict[str, Any]]:
    """Which label is written first; the middle one where none is."""
    generation = await llm.generate(
        template.prompt(question=question.text),
        max_new_tokens=_LABEL_TOKENS,
        stop=template.stop,
    )
    labels = "|".join(map(re.escape, template.words))
    found = re.search(rf"(?<!\w)(?:{labels})(?!\w)", generation.text)
    place = template.words.index(found.group()) if found else len(template.words) // 2
    return place, {"raw": generation.text, "junk": found is None}
