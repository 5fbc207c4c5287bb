"""Retrievers: figures of trainings and searches; gains, unions, numbers of scored passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.core.json_text import read_json_object
from jaxrag.evaluation.report import plots
from jaxrag.evaluation.significance import interval
from jaxrag.evaluation.training_log import TrainingLog, evaluations, read_training
from jaxrag.methods.r3.training import SCORED
from jaxrag.reproduction.bars import means_of
from jaxrag.reproduction.measures import JOB, Measure, Results
from jaxrag.reproduction.printed.measured import Measured, difference, over_seeds
from jaxrag.reproduction.tables import Picture
from jaxrag.runs.retriever_comparison import read_metric

_ACCURACY = "rag_accuracy"  # as evaluated along trainings


def of_retriever(number: int, metric: str) -> Measure:
    """Measures a metric of one of the retrievers that `JOB`, a `RetrieverComparison`, compares."""

    def seed_value(seed: Results) -> Measured:
        values = read_metric(seed.directories[JOB], number, metric)
        return Measured(interval(np.array([*values.values()])), values)

    return lambda results: results.measure(seed_value)


def accuracy_curves(
    title: str, results: Mapping[str, Results], *, trainings: Sequence[str]
) -> list[Picture]:
    """One panel a data set: evaluated accuracy in percent over the share of each training.

    A point is the mean over questions and seeds, where all have it. If all trainings of a panel
    evaluated the same questions, the first and the last point of each curve hold their values, so
    that claims compare them in pairs, by number from 0: trainings log no ids.
    """
    first = next(iter(results.values()))
    labels = [label for label in trainings if first.has(label)]
    numbers, panels = {}, []
    for dataset, outputs in results.items():
        logs = {
            label: [read_training(seed.directories[label]) for seed in outputs.seeds]
            for label in labels
        }
        paired = len({_evaluated(log) for seeds in logs.values() for log in seeds}) == 1
        numbers[dataset] = {label: _points(seeds, paired) for label, seeds in logs.items()}
        curves = {
            label: plots.Curve([p["progress"] for p in line], [p["mean"] for p in line])
            for label, line in numbers[dataset].items()
        }
        counts = dict.fromkeys(f"{line[-1]['n']:,}" for line in numbers[dataset].values())
        panels.append(plots.Panel(f"{dataset}, n = {', '.join(counts)}", "accuracy, %", curves))
    drawn = plots.curves(title, panels, x_title="training progress, %", x=(0, 100))
    return [Picture(drawn, numbers)]


def _evaluated(training: TrainingLog) -> tuple[Any, ...]:
    """Identity of the evaluated questions: of their data set, the limit, and how many they were."""
    data, settings = training.config.get("data") or [None], training.config["training"]
    _, values = evaluations(training)[_ACCURACY][-1]
    return data[-1], settings.get("evaluation_limit"), len(values)


def _points(seeds: Sequence[TrainingLog], with_values: bool) -> list[dict[str, Any]]:
    """Points in percent, progress that of the first seed; ``with_values``: shares at both ends."""
    evaluated = [evaluations(training)[_ACCURACY] for training in seeds]
    last = evaluated[0][-1][0]
    points: list[dict[str, Any]] = []
    for of_seeds in zip(*evaluated, strict=False):
        measured = over_seeds([Measured(interval(v), _numbered(v)) for _, v in of_seeds])
        mean, low, high, n = measured.interval
        shares = {"mean": 100 * mean, "low": 100 * low, "high": 100 * high}
        progress = 100 * of_seeds[0][0] / last
        points.append({"progress": progress, **shares, "n": n, **means_of(measured.seeds)})
        points[-1]["values"] = measured.values
    for point in points[1:-1] if with_values else points:
        del point["values"]
    return points


def _numbered(values: Float[np.ndarray, " q"]) -> dict[str, float]:
    """The values that are defined, by the number of the question."""
    return {str(n): value for n, value in enumerate(values.tolist()) if not np.isnan(value)}


def any_of(metric: str, jobs: Sequence[str]) -> Measure:
    """The share of questions with a metric of 1 in some run, of those where all runs define it."""

    def measure(results: Results) -> Measured:
        first = results.scored(jobs[0])
        columns = []
        for job in jobs:
            values = results.scored(job).measure(metric).values
            columns.append([values.get(name, np.nan) for name in first.questions])
        return first.mean(np.max(np.array(columns), axis=0))

    return measure


def gain(before: str) -> Measure:
    """The paired difference of accuracy between a row's run and another one."""

    def measure(results: Results) -> Measured:
        ours, theirs = (results.scored(job).measure("contains") for job in (JOB, before))
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
