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

from jaxrag.core.store import Store
from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.scheduler import Scheduler
from jaxrag.evaluation.metrics import accuracy, retrieval
from jaxrag.runs.run import Run, prepare, store_path
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import InputError

Figure = Literal["exact_match", "f1", "recall"]


@dataclasses.dataclass(frozen=True)
class Downstream:
    """A method that is run with the student as one of its helpers.

    Attributes:
      run: the method and all else that it needs. Of its questions those are asked whose pairs are
        held out and looked at on the way.
      helper: the field of the method that the student stands for, such as "optimizer.model".
      figure: what is looked at: "exact_match", "f1" (the best alias counts), or "recall", the share
        of the gold passages that the reader gets.
    """

    run: Run
    helper: str
    figure: Figure = "exact_match"

    def __post_init__(self) -> None:
        if self.figure not in get_args(Figure):
            raise InputError(
                f"downstream.figure is {self.figure!r}; allowed: {', '.join(get_args(Figure))}."
            )
        helpers = self.run.method.needs.helpers
        if self.helper not in helpers:
            raise InputError(
                f"downstream.helper is {self.helper!r}; {self.run.name} has "
                f"{', '.join(helpers) or 'no helpers'}."
            )


def outcome(
    downstream: Downstream, model: LanguageModel, question_ids: Sequence[str]
) -> Float[np.ndarray, " q"]:
    """The figure of each question with ``model`` as the helper; NaN where it is undefined.

    The reader's answers are stored: the same queries are never read for twice.

    Raises:
      InputError: none of the questions is among the run's, or one failed.
    """
    run, student = downstream.run, {downstream.helper: LanguageModelTool(model)}
    dataset, questions, tools, _ = prepare(run, Path(run.cache), given=student)
    wanted = set(question_ids)
    some = [question for question in questions if question.id in wanted]
    if not some:
        raise InputError(
            f"None of the {len(wanted)} pairs held out is of a question of {dataset.name} as "
            "downstream.run asks it: give it the data that the pairs were made of, with the part "
            "to train on."
        )
    store, found = Store(store_path(run)), {}
    try:
        started = ((q, functools.partial(run.method.answer, q, tools)) for q in some)
        for one in Scheduler(store, live=run.live).run(started):
            if one.error is not None:
                raise InputError(f"Question {one.id.id} failed downstream: {one.error}")
            record = {"gold_passages": dataset.gold.get(one.id.id, ()), "trace": one.value.trace}
            figures = accuracy(one.value.text, one.id.answers) | retrieval(record)
            found[one.id.id] = figures.get(downstream.figure, math.nan)
    finally:
        store.close()
    return np.array([found.get(name, math.nan) for name in question_ids])
