"""Measures of trained retrievers: gains, unions of retrievers, passages that were scored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxrag.core.json_text import read_json_object
from jaxrag.evaluation.significance import interval
from jaxrag.methods.r3.training import SCORED
from jaxrag.reproduction.measures import JOB, Measure, Results, over_questions
from jaxrag.reproduction.printed.measured import Measured, difference


def any_of(metric: str, jobs: Sequence[str]) -> Measure:
    """The share of questions for which a metric of 0 and 1 is 1 in at least one of several runs.

    A question counts where the metric is defined in all of them.
    """

    def measure(results: Results) -> Measured:
        first = results.questions(jobs[0])
        columns = []
        for job in jobs:
            values = dict(zip(results.questions(job), results.scores(job)[metric], strict=True))
            columns.append([values.get(name, np.nan) for name in first])
        return over_questions(results, np.max(np.array(columns), axis=0), jobs[0])

    return measure


def gain(before: str, metric: str = "contains") -> Measure:
    """The paired difference of a row's run to another one."""

    def measure(results: Results) -> Measured:
        ours, theirs = (
            over_questions(results, results.scores(job)[metric], job) for job in (JOB, before)
        )
        return difference(ours, theirs)

    return measure


def passages_scored(job: str) -> Measure:
    """Mean number of passages outside its pool that R3's training scored for a question."""

    def measure(results: Results) -> Measured:
        counts = read_json_object(
            results.directories[job] / SCORED,
            what="the passages that R3's training scored",
            way_out="remove the training's directory and make the table again",
        )
        mean = interval(np.array([*counts.values()], np.float64))
        return Measured(mean, {name: float(count) for name, count in counts.items()})

    return measure
