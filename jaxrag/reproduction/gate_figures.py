"""Figures of gates (docs/methods, "PAIRS: analyses" and "DTR: uncertainty curves")."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation.curves import ThresholdCurve, accepted_curve, ratio_curve
from jaxrag.evaluation.metrics import direct_answers
from jaxrag.evaluation.report import plots
from jaxrag.evaluation.summary import name_of
from jaxrag.reproduction.measures import JOB, Measure, Results
from jaxrag.reproduction.printed.measured import Measured
from jaxrag.reproduction.tables import Picture

ALWAYS = "always"
"""Name of the job that retrieves for every question."""

Group = Literal["non_dq_retrieval", "dq", "dq_retrieval"]
GROUPS: Mapping[Group, str] = {
    "non_dq_retrieval": "Non-DQ-retrieval",
    "dq": "DQ",
    "dq_retrieval": "DQ-retrieval",
}
"""Questions that the gate sends to retrieval; those that it answers directly; and the latter,
answered by a run that always retrieves (PAIRS' Figure 3 and Table 8)."""


Metric = str | Callable[[str], str]
"""A name of `jaxrag.evaluation.metrics`, or a function from data set to name."""


def in_group(group: Group, metric: Metric) -> Measure:
    """Measures a metric over a group; `JOB` has the gate, "dq_retrieval" also reads `ALWAYS`."""

    def measure(results: Results) -> Measured:
        triggered = results.scored(JOB).measure("trigger").values
        run = results.scored(ALWAYS if group == "dq_retrieval" else JOB)
        retrieves = float(group == "non_dq_retrieval")
        inside = [triggered.get(name) == retrieves for name in run.questions]
        dataset = name_of(run.run.config, "dataset")
        column = metric if isinstance(metric, str) else metric(dataset)
        return run.mean(np.where(inside, run.scores[column], math.nan))

    return measure


class GainOf(NamedTuple):
    """A series of EM gains: a run without retrieval, and one that always retrieves."""

    direct: str
    retrieved: str


Series = Mapping[str, Sequence[str]]
"""Jobs of each curve, the one without retrieval first, by the curve's label."""

Points = list[dict[str, Any]]
"""Points of a curve: the fields of `ThresholdCurve`; None where one is not finite."""


def threshold_curves(
    title: str, results: Mapping[str, Results], *, jobs: Sequence[str]
) -> list[Picture]:
    """Draws, over the threshold, EM of the accepted direct answers and the query ratio."""
    series = {job: (job,) for job in jobs}
    numbers = _series_points(
        results,
        series,
        lambda outputs, job: _accepted(*direct_answers(outputs.scored(job).run.records)),
    )
    panels = [
        plots.Panel(dataset, y_title, {job: _curve(line, y) for job, line in by_job.items()})
        for dataset, by_job in numbers.items()
        for y, y_title in (("mean", "EM without retrieval, %"), ("query_ratio", "query ratio, %"))
    ]
    return [Picture(_threshold_svg(title, panels, _legend(results, series)), numbers)]


def ratio_curves(
    title: str, results: Mapping[str, Results], *, jobs: Sequence[str]
) -> list[Picture]:
    """Draws EM and F1 of direct answers over the share of least uncertain questions."""
    series, panels = {job: (job,) for job in jobs}, []
    numbers: dict[str, dict[str, dict[str, Points]]] = {dataset: {} for dataset in results}

    def points(outputs: Results, job: str, metric: str) -> Points:
        scored = outputs.scored(job)
        u, _ = direct_answers(scored.run.records)
        return _points(ratio_curve(u, scored.scores[metric]))

    for dataset, outputs in results.items():
        for metric, y_title in (("exact_match", "EM, %"), ("f1", "F1, %")):
            lines = {job: points(outputs, job, metric) for job in distinct(outputs, series)}
            numbers[dataset][metric] = lines
            curves = {
                job: plots.Curve(_percent(line, "query_ratio"), *_with_band(line))
                for job, line in lines.items()
            }
            panels.append(plots.Panel(dataset, y_title, curves))
    legend = _legend(results, series)
    drawn = plots.curves(title, panels, x_title="query ratio, %", x=(0, 100), legend=legend)
    return [Picture(drawn, numbers)]


def gain_curves(
    title: str, results: Mapping[str, Results], *, blocks: Mapping[str, Mapping[str, GainOf]]
) -> list[Picture]:
    """Draws each block's EM gains of retrieving among the questions with u up to the threshold."""
    pictures = []
    for block, gains in blocks.items():
        numbers = _series_points(
            results,
            gains,
            lambda outputs, label: _gain_points(outputs, gains[label]),  # noqa: B023
        )
        if not any(numbers.values()):
            continue
        panels = [
            plots.Panel(dataset, "EM gain, points", {n: _curve(line) for n, line in points.items()})
            for dataset, points in numbers.items()
        ]
        name = ", ".join(filter(None, (title, block)))
        drawn = _threshold_svg(name, panels, _legend(results, gains))
        pictures.append(Picture(drawn, numbers, f"-{block.replace(' ', '-')}" if block else ""))
    return pictures


def _percent(points: Points, column: str) -> Float[np.ndarray, " p"]:
    return 100 * np.array([point[column] for point in points], np.float64)


def _with_band(points: Points) -> list[Float[np.ndarray, " p"]]:
    """Means and the ends of their intervals, in percent."""
    return [_percent(points, column) for column in ("mean", "low", "high")]


def _curve(points: Points, y: str = "mean") -> plots.Curve:
    """A column in percent over the threshold; means have their intervals."""
    u = np.array([point["threshold"] for point in points], np.float64)
    return plots.Curve(u, *(_with_band(points) if y == "mean" else [_percent(points, y)]))


def _threshold_svg(title: str, panels: Sequence[plots.Panel], legend: Sequence[str]) -> str:
    x_title = "uncertainty threshold u, nats"
    return plots.curves(title, panels, x_title=x_title, log_x=True, legend=legend)


def _series_points(
    results: Mapping[str, Results], series: Series, points: Callable[[Results, str], Points]
) -> dict[str, dict[str, Points]]:
    """The points of each distinct series, by data set and label."""
    return {
        dataset: {label: points(outputs, label) for label in distinct(outputs, series)}
        for dataset, outputs in results.items()
    }


def _legend(results: Mapping[str, Results], series: Series) -> list[str]:
    """The model's name if one model stands for all sizes; else empty: the labels serve."""
    first = next(iter(results.values()))
    label, *others = distinct(first, series)
    if others or label != series[label][0]:
        return []
    return [name_of(first.scored(label).run.config, "language_model")]


def distinct(results: Results, series: Series) -> list[str]:
    """Labels of the series that were made; of several with the same directories, the first."""
    first: dict[tuple[Path, ...], str] = {}
    for label, jobs in series.items():
        if results.has(*jobs):
            first.setdefault(tuple(results.directories[job] for job in jobs), label)
    return list(first.values())


def _gain_points(results: Results, of: GainOf) -> Points:
    """The curve of EM gained by retrieval; its last point has the values, to pair it."""
    direct = results.scored(of.direct)
    u, right = direct_answers(direct.run.records)
    retrieved, names = results.scored(of.retrieved).measure("exact_match").values, direct.questions
    gain = np.array([retrieved.get(name, math.nan) for name in names]) - right
    points = _accepted(u, gain)
    if points:
        inside = (u <= points[-1]["threshold"]) & ~np.isnan(gain)
        rows = zip(names, gain.tolist(), inside, strict=True)
        points[-1]["values"] = {name: value for name, value, within in rows if within}
    return points


def _accepted(u: Float[np.ndarray, " q"], values: Float[np.ndarray, " q"]) -> Points:
    """The mean of values among the questions with u <= threshold, at finite thresholds."""
    defined = ~np.isnan(u) & ~np.isnan(values)
    curve = accepted_curve(u[defined], values[defined])
    finite = np.isfinite(curve.threshold) & (curve.threshold > 0)
    return _points(ThresholdCurve(*(column[finite] for column in curve)))


def _points(curve: ThresholdCurve) -> Points:
    return [
        {n: v if math.isfinite(v) else None for n, v in zip(curve._fields, row, strict=True)}
        for row in zip(*(column.tolist() for column in curve), strict=True)
    ]
