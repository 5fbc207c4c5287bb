"""Figures of accuracy along trainings of retrievers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation.report.plots import Curve, curves, sheet
from jaxrag.evaluation.significance import interval
from jaxrag.evaluation.training_log import TrainingLog, evaluations, read_training
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.tables import Picture

Draw = Callable[[Mapping[str, Results]], Sequence[Picture]]
"""Draws the pictures of a figure from the results of all data sets."""


def accuracy_curves(
    name: str, title: str, trainings: Sequence[str], metric: str = "rag_accuracy"
) -> Draw:
    """One panel a data set: an evaluated metric in percent over the share of each training.

    If all trainings of a panel evaluated the same questions, the first and the last point of each
    curve hold the values of these questions, so that claims compare them in pairs. A question is
    named by its number, from 0: trainings log no ids.
    """

    def draw(by_dataset: Mapping[str, Results]) -> list[Picture]:
        numbers: dict[str, Any] = {}
        panels = []
        first = next(iter(by_dataset.values()))
        labels = [label for label in trainings if first.has(label)]
        for dataset, results in by_dataset.items():
            logs = {label: read_training(results.directories[label]) for label in labels}
            paired = len({_evaluated(log, metric) for log in logs.values()}) == 1
            points = {label: _points(log, metric, paired) for label, log in logs.items()}
            series = [Curve([p["progress"] for p in some], [p["mean"] for p in some])
                      for some in points.values()]  # fmt: skip
            panels.append(
                curves(
                    dataset, series, x_title="training progress, %", y_title="accuracy, %",
                    x=(0, 100),
                )
            )  # fmt: skip
            numbers[dataset] = points
        return [Picture(name, sheet(title, panels, labels), numbers)]

    return draw


def _evaluated(training: TrainingLog, metric: str) -> tuple[Any, ...]:
    """Identity of the evaluated questions: of their data set, the limit, and how many they were."""
    data, settings = training.config.get("data") or [None], training.config["training"]
    _, values = evaluations(training)[metric][-1]
    return data[-1], settings.get("evaluation_limit"), len(values)


def _points(training: TrainingLog, metric: str, with_values: bool) -> list[dict[str, Any]]:
    """Progress in percent, mean, ends of the interval and number of questions.

    ``with_values`` adds the values of questions, as shares, to the first and the last point.
    """
    evaluated = evaluations(training)[metric]
    last = evaluated[-1][0]
    points: list[dict[str, Any]] = []
    for step, values in evaluated:
        mean, low, high, n = interval(values)
        shares = {"mean": 100 * mean, "low": 100 * low, "high": 100 * high}
        points.append({"progress": 100 * step / last, **shares, "n": n})
    if with_values:
        for point, (_, values) in ((points[0], evaluated[0]), (points[-1], evaluated[-1])):
            point["values"] = _by_number(values)
    return points


def _by_number(values: Float[np.ndarray, " q"]) -> dict[str, float]:
    """The values that are defined, by the number of the question."""
    return {str(n): value for n, value in enumerate(values.tolist()) if not np.isnan(value)}
