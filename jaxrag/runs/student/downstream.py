"""What a method makes of a student's queries while it is trained: EM, F1 or recall."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.scheduler import Scheduler
from jaxrag.engines.store import Store
from jaxrag.evaluation.metrics import accuracy, retrieval
from jaxrag.methods.language_model_tool import LanguageModelTool
from jaxrag.run import Run, answer_function, prepare, store_path
from jaxrag.types import InputError

Figure = Literal["exact_match", "f1", "recall"]


@dataclasses.dataclass(frozen=True)
class Downstream:
    """A method that is run with the student as its query optimizer.

    Attributes:
      run: the method and all that it needs; its query optimizer is the student of the moment. Of
        its questions those are asked whose pairs are held out and looked at on the way.
      figure: what is looked at: "exact_match", "f1" (the best alias counts), or "recall", the share
        of the gold passages that the reader gets.
    """

    run: Run
    figure: Figure = "exact_match"

    def __post_init__(self) -> None:
        if self.figure not in get_args(Figure):
            raise InputError(
                f"downstream.figure is {self.figure!r}; allowed: {', '.join(get_args(Figure))}."
            )


def outcome(
    downstream: Downstream, model: LanguageModel, question_ids: Sequence[str]
) -> Float[np.ndarray, " q"]:
    """The figure of each question with ``model`` as the optimizer; NaN where it is undefined.

    The reader's answers are stored: the same queries are never read for twice.

    Raises:
      InputError: none of the questions is among the run's, or one failed.
    """
    run = dataclasses.replace(downstream.run, query_optimizer=None)
    dataset, questions, tools, _ = prepare(run, Path(run.cache))
    wanted = set(question_ids)
    some = [question for question in questions if question.id in wanted]
    if not some:
        raise InputError(
            f"None of the {len(wanted)} pairs held out is of a question of {dataset.name} as "
            "downstream.run asks it: give it the data that the pairs were made of, with the part "
            "to train on."
        )
    tools = dataclasses.replace(tools, query_optimizer=LanguageModelTool(model))
    answer, store, found = answer_function(run), Store(store_path(run)), {}
    try:
        started = ((q, functools.partial(answer, q, tools, run.method)) for q in some)
        for one in Scheduler(store, live=run.live).run(started):
            if one.error is not None:
                raise InputError(f"Question {one.id.id} failed downstream: {one.error}")
            record = {"gold_passages": dataset.gold.get(one.id.id, ()), "trace": one.value.trace}
            figures = accuracy(one.value.text, one.id.answers) | retrieval(record)
            found[one.id.id] = figures.get(downstream.figure, math.nan)
    finally:
        store.close()
    return np.array([found.get(name, math.nan) for name in question_ids])
