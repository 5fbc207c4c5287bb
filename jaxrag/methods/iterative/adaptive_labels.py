"""Labels for Adaptive-RAG's classifier: which of the three strategies answer a question rightly.

Jeong et al. (2024), section 3.2: a question's label is the simplest strategy that answers it
rightly; if none does, the bias of its data set decides: one search for single-hop questions,
several for multi-hop ones. The labels are in the trace, from which
`jaxrag.methods.iterative.complexity_pairs` makes training data; the answer is that of IRCoT's loop.

Source: docs/methods, "Adaptive-RAG".
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from jaxrag.core.checks import check_choices, check_share
from jaxrag.engines.scheduler import gather
from jaxrag.methods.iterative.adaptive_rag import Strategies, Strategy
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reply
from jaxrag.text.answers import contains, exact_match
from jaxrag.types import InputError

Right = Literal["exact_match", "contains"]
Bias = Literal["single", "multi", "drop"]

_RIGHT = {"exact_match": exact_match, "contains": contains}


@dataclasses.dataclass(frozen=True)
class Config(Strategies):
    """The three strategies, and when their answers are right.

    Attributes:
      right: whether an answer is right if it equals a gold answer, or if it contains one.
      bias: the label if no strategy is right: "single" for single-hop data sets, "multi" for
        multi-hop ones; "drop" leaves such questions out.
      held_out: share of the questions, drawn by their ids, that is held out of training.
    """

    name = "adaptive_labels"

    right: Right = "exact_match"
    bias: Bias = "single"
    held_out: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, right=Right, bias=Bias)
        check_share(held_out=self.held_out)

    async def answer(self, episode: Episode) -> Reply:
        """Answers by all three strategies; the trace is that of the last, with all searches.

        ``trace["strategies"]`` has the answer of each and whether it is right. ``trace["label"]``
        has the simplest right one under "silver" (None if none is right), and the label for
        training under "strategy" (None if the question is left out).

        Raises:
          InputError: the question has no gold answer.
        """
        question, names = episode.question, get_args(Strategy)
        if not question.answers:
            raise InputError(
                f"Question {question.id} has no gold answer, so no strategy can be found right."
            )
        parts = [episode.apart() for _ in names]
        replies = await gather(*map(self.answer_by, names, parts))
        right = [int(_RIGHT[self.right](reply.text, question.answers)) for reply in replies]
        silver = next((name for name, ok in zip(names, right, strict=True) if ok), None)
        fallback = None if self.bias == "drop" else self.bias
        searches = [search for part in parts for search in part.trace.get("searches", ())]
        episode.trace.update({**parts[-1].trace, "searches": searches})
        episode.concluded = replies[-1]  # its record is that of the last strategy, as it stands
        episode.note(
            strategies={
                name: {"text": reply.text, "right": ok, "raw": reply.raw}
                for name, reply, ok in zip(names, replies, right, strict=True)
            },
            label={"silver": silver, "strategy": silver or fallback},
        )
        return replies[-1]
