"""Measures of printed metrics, read from the directories of finished jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation import metrics, precision
from jaxrag.evaluation.records import RunRecords, read_run
from jaxrag.evaluation.significance import Interval, interval

JOB = ""
"""Name of a row's own job among its results."""


class Measured(NamedTuple):
    """A measured value.

    Attributes:
      interval: the value with its 95 % interval; shares between 0 and 1.
      values: by question id, where the value is a mean over questions; else empty.
    """

    interval: Interval
    values: Mapping[str, float] = {}


class Results:
    """What the jobs of a row wrote, by name; `JOB` is the row's own.

    Attributes:
      directories: of the jobs.
    """

    def __init__(self, directories: Mapping[str, Path]):
        self.directories = directories

    @property
    def there(self) -> bool:
        """Whether all jobs have been executed, here or by another host."""
        return all(path.is_dir() for path in self.directories.values())

    @functools.cache  # noqa: B019 - as many as a table has rows
    def run(self, job: str = JOB) -> RunRecords:
        """The records of a run; of a job that executes a run, of that run."""
        directory = self.directories[job]
        inner = directory / "run"
        return read_run(inner if inner.is_dir() else directory)

    @functools.cache  # noqa: B019
    def scores(self, job: str = JOB) -> Mapping[str, Float[np.ndarray, " q"]]:
        """Every metric of a run, a value a question (see `jaxrag.evaluation.metrics`)."""
        run = self.run(job)
        return metrics.score(run.records, run.timings)

    def questions(self, job: str = JOB) -> list[str]:
        """The ids of a run's questions, in the order of `scores`."""
        return [record["question_id"] for record in self.run(job).records]


Measure = Callable[[Results], Measured]
"""Measures a printed metric."""


def mean_of(name: str, job: str = JOB) -> Measure:
    """Measures the mean of one of `jaxrag.evaluation.metrics` over a run's questions."""
    return lambda results: over_questions(results, results.scores(job)[name], job)


def over_questions(results: Results, values: Float[np.ndarray, " q"], job: str = JOB) -> Measured:
    """The mean of a value a question, NaN left out; in the order of a run's records."""
    known = zip(results.questions(job), values, strict=True)
    return Measured(interval(values), {name: float(v) for name, v in known if not np.isnan(v)})


def precision_of(name: str) -> Measure:
    """Measures a precision of closed questions (see `jaxrag.evaluation.precision`)."""
    return lambda results: Measured(precision.intervals(results.run().records)[name])


USUAL: Mapping[str, Measure] = {
    "EM": mean_of("exact_match"),
    "F1": mean_of("f1"),
    "accuracy": mean_of("contains"),
    "precision": precision_of("precision_macro"),
    "ir_accuracy@1": mean_of("ir_accuracy"),
    "recall@3": mean_of("recall"),
    "trigger_ratio": mean_of("trigger"),
    "retriever_activation_ratio": mean_of("trigger"),
}
"""Measures of printed metrics."""
