"""Labels for Adaptive-RAG's classifier: which of the three strategies answer a question rightly.

Jeong et al. (2024), section 3.2: a question's label is the simplest strategy that answers it; where
none does, the bias of its data set stands in, one search for questions of one hop, several for
those of more. What it is asked for is the trace, from which
`jaxrag.methods.iterative.complexity_pairs` makes what the classifier is trained on; its own answer
is that of IRCoT's loop.

Source: docs/methods.md, "Adaptive-RAG".
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from jaxrag.engines.scheduler import gather
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, loops
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.needs import Needs
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.tools import Tools
from jaxrag.text.answers import contains, exact_match
from jaxrag.types import Answer, InputError, Question

Right = Literal["exact_match", "contains"]
Bias = Literal["single", "multi", "drop"]

_RIGHT = {"exact_match": exact_match, "contains": contains}


@dataclasses.dataclass(frozen=True)
class Config:
    """The three strategies, with the settings of `adaptive_rag`, and what counts.

    Attributes:
      right: when an answer is right: it equals a gold answer, or holds one.
      bias: the label where no strategy is right: "single" for data sets of one hop, "multi" for
        those of more; "drop" leaves such questions out.
      held_out: share of the questions, drawn by their ids, that are kept out of training.
      candidates, select: of the one search of "single".
      loop, answer_from: of "multi".
      reader: how the model is asked.
      closed_tokens: most new tokens of a closed question's answer.
      by: what answers a closed question, see `kinds.By`.
    """

    name = "adaptive_labels"

    right: Right = "exact_match"
    bias: Bias = "single"
    held_out: float = 0.1
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
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out is {self.held_out}; it is a share from 0 to below 1.")
        for name, allowed in (("right", Right), ("bias", Bias)):
            value = getattr(self, name)
            if value not in get_args(allowed):
                raise InputError(f"{name} is {value!r}; allowed: {', '.join(get_args(allowed))}.")

    @property
    def needs(self) -> Needs:
        """Those of the three strategies."""
        return loops.strategy_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers in all three ways.

        ``trace["strategies"]`` has the answer of each and whether it is right. ``trace["label"]``
        has the simplest one that is right under "silver" (None where none is), and the strategy
        that is learned from under "strategy" (None where the question is left out).

        Raises:
          InputError: the question has no gold answer.
        """
        if not question.answers:
            raise InputError(
                f"Question {question.id} has no gold answer, so no strategy can be found right."
            )
        names = get_args(loops.Strategy)
        traces: list[steps.Trace] = [{} for _ in names]
        found = await gather(
            *(
                loops.answer_by(name, question, tools, self, trace)
                for name, trace in zip(names, traces, strict=True)
            )
        )
        right = [int(_RIGHT[self.right](one.text, question.answers)) for one in found]
        silver = next((name for name, ok in zip(names, right, strict=True) if ok), None)
        biased = None if self.bias == "drop" else self.bias
        searches = [search for trace in traces for search in trace.get("searches", ())]
        trace: steps.Trace = {
            **traces[-1],
            "searches": searches,
            "strategies": {
                name: {"text": one.text, "right": ok, "raw": part["answer"]["raw"]}
                for name, one, ok, part in zip(names, found, right, traces, strict=True)
            },
            "label": {"silver": silver, "strategy": silver or biased},
        }
        return Answer(question.id, found[-1].text, trace)
