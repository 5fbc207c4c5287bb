"""Our values beside printed ones: means over the questions of a run, and what is made of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation import metrics, precision
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.significance import Interval, interval, paired_difference


class Measured(NamedTuple):
    """A measured value.

    Attributes:
      interval: the value with its 95 % interval; shares between 0 and 1.
      values: by question id, where the value is a mean over questions; else empty.
    """

    interval: Interval
    values: Mapping[str, float] = {}


class ScoredRun:
    """A run with its metrics.

    Attributes:
      run: its records.
    """

    def __init__(self, run: RunRecords):
        self.run = run

    @functools.cached_property
    def scores(self) -> Mapping[str, Float[np.ndarray, " q"]]:
        """Every metric, a value a question (see `jaxrag.evaluation.metrics`)."""
        return metrics.score(self.run.records, self.run.timings)

    @property
    def questions(self) -> list[str]:
        """The ids of the questions, in the order of `scores`."""
        return [record["question_id"] for record in self.run.records]

    def measure(self, metric: str) -> Measured:
        """One of `metrics.COLUMNS`, or of `precision.NAMES`."""
        if metric in precision.NAMES:
            return Measured(precision.intervals(self.run.records)[metric])
        return self.mean(self.scores[metric])

    def mean(self, values: Float[np.ndarray, " q"]) -> Measured:
        """The mean of a value a question, NaN left out; in the order of `questions`."""
        known = zip(self.questions, values, strict=True)
        return Measured(interval(values), {name: float(v) for name, v in known if not np.isnan(v)})


def difference(ours: Measured, theirs: Measured) -> Measured:
    """Ours minus theirs, paired on the questions that both answered."""
    names = [name for name in ours.values if name in theirs.values]
    pairs = np.array([(ours.values[name], theirs.values[name]) for name in names]).reshape(-1, 2)
    found = paired_difference(pairs[:, 0], pairs[:, 1])
    values = dict(zip(names, (pairs[:, 0] - pairs[:, 1]).tolist(), strict=True))
    return Measured(Interval(*found[:4]), values)


def mean_interval(intervals: Sequence[Interval]) -> Interval:
    """The mean of means of independent sets of questions, with an approximate 95 % interval.

    The variances that the half-widths imply are added, as for normal distributions. ``n`` is the
    number of all questions.
    """
    count = len(intervals)
    mean = sum(one.mean for one in intervals) / count
    low = math.sqrt(sum((one.mean - one.low) ** 2 for one in intervals)) / count
    high = math.sqrt(sum((one.high - one.mean) ** 2 for one in intervals)) / count
    return Interval(mean, mean - low, mean + high, sum(one.n for one in intervals))
