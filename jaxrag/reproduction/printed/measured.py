"""Measured values to compare with printed ones: means over a run's questions, and differences."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation import metrics, precision
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.significance import (
    Interval,
    crossed_interval,
    interval,
    paired_difference,
    seed_interval,
)


class Measured(NamedTuple):
    """A measured value with its 95 % interval; shares are between 0 and 1.

    ``values`` are by question id, empty where the value is no mean over questions; ``seeds`` are
    the values of each seed of the trainings, of which these are means, empty for one seed.
    """

    interval: Interval
    values: Mapping[str, float] = {}
    seeds: tuple[Measured, ...] = ()


@dataclasses.dataclass(eq=False)
class ScoredRun:
    """A run with its metrics, each computed once."""

    run: RunRecords

    @functools.cached_property
    def scores(self) -> Mapping[str, Float[np.ndarray, " q"]]:
        """All metrics, with one value per question (see `jaxrag.evaluation.metrics`)."""
        return metrics.score(self.run.records, self.run.timings)

    @property
    def questions(self) -> list[str]:
        """The ids of the questions, in the order of `scores`."""
        return [record["question_id"] for record in self.run.records]

    @functools.cache  # noqa: B019 - as many as a report or a table has
    def measure(self, metric: str) -> Measured:
        """The mean of a metric of `metrics.COLUMNS` or of `precision.NAMES`."""
        if metric in precision.NAMES:
            return Measured(precision.intervals(self.run.records)[metric])
        return self.mean(self.scores[metric], count=metric in metrics.COUNTS)

    def mean(self, values: Float[np.ndarray, " q"], *, count: bool = False) -> Measured:
        """Mean of one value per question, in the order of `questions`; NaN is left out.

        ``count`` says that the values are no proportions, see `intervals`.
        """
        pairs = zip(self.questions, values.tolist(), strict=True)
        by_question = {name: value for name, value in pairs if not math.isnan(value)}
        return Measured(interval(values, count=count), by_question)


def over_seeds(seeds: Sequence[Measured]) -> Measured:
    """The mean over the seeds of trainings, with an interval over seeds and questions.

    Of means over questions: `crossed_interval` of the questions that all seeds have. Of others: the
    mean half-width of the seeds' intervals, and that of Student's interval over the seeds, added as
    squares.
    """
    first, *others = seeds
    if not others:
        return first
    names = [name for name in first.values if all(name in seed.values for seed in others)]
    if names:
        table = np.array([[seed.values[name] for name in names] for seed in seeds])
        values = dict(zip(names, table.mean(0).tolist(), strict=True))
        return Measured(crossed_interval(table), values, tuple(seeds))
    between = seed_interval(np.array([seed.interval.mean for seed in seeds]))
    ends = np.array([(i.mean - i.low, i.high - i.mean) for i, *_ in seeds]).mean(0)
    below, above = np.hypot(ends, between.high - between.mean).tolist()
    mean, n = between.mean, min(seed.interval.n for seed in seeds)
    return Measured(Interval(mean, mean - below, mean + above, n), {}, tuple(seeds))


def difference(ours: Measured, theirs: Measured) -> Measured:
    """Mean of ours minus theirs, paired on the questions that both answered.

    With seeds of trainings, it is that of each seed, and their mean; a side without any stands
    against each.
    """
    count = max(len(ours.seeds), len(theirs.seeds))
    if count:
        sides = (side.seeds or (side,) * count for side in (ours, theirs))
        return over_seeds([difference(*pair) for pair in zip(*sides, strict=True)])
    names = [name for name in ours.values if name in theirs.values]
    pairs = np.array([(ours.values[name], theirs.values[name]) for name in names]).reshape(-1, 2)
    paired = paired_difference(pairs[:, 0], pairs[:, 1])
    values = dict(zip(names, (pairs[:, 0] - pairs[:, 1]).tolist(), strict=True))
    return Measured(Interval(*paired[:4]), values)


def mean_interval(intervals: Sequence[Interval], sets: Sequence[Hashable] = ()) -> Interval:
    """The mean of several means, with an approximate 95 % interval; n is that of all questions.

    Means of independent sets of questions: the variances that the half-widths imply are added, as
    for normal distributions. Means over the same of ``sets``, such as EM and F1 of a run: the
    half-widths are added, as if the values rose and fell together, which is the widest case.
    """
    count = len(intervals)
    keys = sets or range(count)
    below: dict[Hashable, float] = collections.defaultdict(float)
    above: dict[Hashable, float] = collections.defaultdict(float)
    questions: dict[Hashable, int] = {}
    for part, name in zip(intervals, keys, strict=True):
        below[name] += part.mean - part.low
        above[name] += part.high - part.mean
        questions[name] = max(part.n, questions.get(name, 0))
    mean = sum(part.mean for part in intervals) / count
    low, high = math.hypot(*below.values()) / count, math.hypot(*above.values()) / count
    return Interval(mean, mean - low, mean + high, sum(questions.values()))
