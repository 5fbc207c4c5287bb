"""Figures of accuracy along trainings of retrievers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxrag.evaluation.report.plots import Curve, curves, sheet
from jaxrag.evaluation.significance import interval
from jaxrag.evaluation.training_log import evaluations, read_training
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.tables import Picture

Draw = Callable[[Mapping[str, Results]], Sequence[Picture]]
"""Draws the pictures of a figure from the results of all data sets."""


def accuracy_curves(
    name: str, title: str, trainings: Sequence[str], metric: str = "rag_accuracy"
) -> Draw:
    """One panel a data set: an evaluated metric in percent over the share of each training."""

    def draw(found: Mapping[str, Results]) -> list[Picture]:
        numbers: dict[str, Any] = {}
        panels = []
        first = next(iter(found.values()))
        shown = [label for label in trainings if first.has(label)]
        for dataset, results in found.items():
            points = {label: _points(results, label, metric) for label in shown}
            series = [Curve([p["progress"] for p in some], [p["mean"] for p in some])
                      for some in points.values()]  # fmt: skip
            panels.append(
                curves(
                    dataset, series, x_title="training progress, %", y_title="accuracy, %",
                    x=(0, 100),
                )
            )  # fmt: skip
            numbers[dataset] = points
        return [Picture(name, sheet(title, panels, shown), numbers)]

    return draw


def _points(results: Results, job: str, metric: str) -> list[dict[str, float]]:
    """Progress in percent, mean, ends of the interval and number of questions."""
    found = evaluations(read_training(results.directories[job]))[metric]
    last = found[-1][0]
    points = []
    for step, values in found:
        mean, low, high, n = interval(values)
        shares = {"mean": 100 * mean, "low": 100 * low, "high": 100 * high}
        points.append({"progress": 100 * step / last, **shares, "n": n})
    return points
