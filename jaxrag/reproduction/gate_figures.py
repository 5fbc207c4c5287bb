"""Figures of gates: groups of questions by a gate's decision, and curves over uncertainty.

docs/methods.md, "PAIRS: analyses" and "DTR: uncertainty curves".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation.curves import ThresholdCurve, accepted_curve, ratio_curve
from jaxrag.evaluation.metrics import direct_answers
from jaxrag.evaluation.report import plots
from jaxrag.evaluation.report.plots import Curve
from jaxrag.evaluation.significance import Interval
from jaxrag.evaluation.summary import name_of
from jaxrag.reproduction.measures import JOB, Measure, Results, over_questions
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


def in_group(group: Group, metric: Metric, job: str = JOB) -> Measure:
    """Measures the mean of a metric over a group of questions.

    Args:
      group: of `GROUPS`.
      metric: the metric.
      job: the run with the gate; "dq_retrieval" also reads the job `ALWAYS`.
    """

    def measure(results: Results) -> Measured:
        triggered = _by_question(results, "trigger", job)
        read = ALWAYS if group == "dq_retrieval" else job
        wanted = float(group == "non_dq_retrieval")
        own = [triggered.get(name) == wanted for name in results.questions(read)]
        dataset = name_of(results.run(read).config, "dataset")
        column = metric if isinstance(metric, str) else metric(dataset)
        values = np.where(own, results.scores(read)[column], math.nan)
        return over_questions(results, values, read)

    return measure


def group_bars(
    name: str, title: str, metric: Metric, y_title: str
) -> Callable[[Mapping[str, Results]], list[Picture]]:
    """Draws the mean of a metric over each group and data set; jobs `JOB` and `ALWAYS`."""

    def draw(results: Mapping[str, Results]) -> list[Picture]:
        bars = {
            dataset: [in_group(group, metric)(outputs).interval for group in GROUPS]
            for dataset, outputs in results.items()
        }
        panel = plots.bars("", bars, y_title=y_title)
        numbers = {
            dataset: dict(zip(GROUPS, map(_plain, group), strict=True))
            for dataset, group in bars.items()
        }
        return [Picture(name, plots.sheet(title, [panel], tuple(GROUPS.values())), numbers)]

    return draw


class GainOf(NamedTuple):
    """A series of EM gains: a run without retrieval, and one that always retrieves."""

    direct: str
    retrieved: str


def threshold_curves(
    name: str, title: str, series: Sequence[str]
) -> Callable[[Mapping[str, Results]], list[Picture]]:
    """Draws, over the threshold, EM of the accepted direct answers and the query ratio.

    ``series`` are jobs without retrieval; of equal ones the first is drawn.
    """

    def draw(results: Mapping[str, Results]) -> list[Picture]:
        panels, numbers = [], {}
        jobs = _made(results, series)
        for dataset, outputs in results.items():
            curves = {job: _accepted(*_direct(outputs, job)) for job in distinct(outputs, jobs)}
            numbers[dataset] = {job: _numbers(curve) for job, curve in curves.items()}
            panels.append(_over_thresholds(dataset, jobs, curves, "EM without retrieval, %"))
            ratio = {job: _Drawn(c.threshold, c.query_ratio) for job, c in curves.items()}
            panels.append(_over_thresholds(dataset, jobs, ratio, "query ratio, %"))
        legend = _legend(results, jobs)
        return [Picture(name, plots.sheet(title, panels, legend, columns=2), numbers)]

    return draw


def ratio_curves(
    name: str, title: str, series: Sequence[str]
) -> Callable[[Mapping[str, Results]], list[Picture]]:
    """Draws EM and F1 of direct answers over the share of least uncertain questions."""

    def draw(results: Mapping[str, Results]) -> list[Picture]:
        panels, numbers = [], {}
        jobs = _made(results, series)
        for metric, y_title in (("exact_match", "EM, %"), ("f1", "F1, %")):
            for dataset, outputs in results.items():
                curves = {
                    job: ratio_curve(_direct(outputs, job)[0], outputs.scores(job)[metric])
                    for job in distinct(outputs, jobs)
                }
                drawn = [
                    _curve(curves[job].query_ratio, curves.get(job)) if job in curves else None
                    for job in jobs
                ]
                panels.append(
                    plots.curves(
                        dataset, drawn, x_title="query ratio, %", y_title=y_title, x=(0, 100)
                    )
                )
                numbers.setdefault(dataset, {})[metric] = {
                    job: _numbers(curve) for job, curve in curves.items()
                }
        columns = len(results)
        legend = _legend(results, jobs)
        return [Picture(name, plots.sheet(title, panels, legend, columns=columns), numbers)]

    return draw


def gain_curves(
    name: str, title: str, blocks: Mapping[str, Mapping[str, GainOf]]
) -> Callable[[Mapping[str, Results]], list[Picture]]:
    """Draws the EM gain of retrieving among the questions with u up to the threshold.

    Args:
      name, title: of the picture.
      blocks: series by name, for each picture, which has the block's name.
    """

    def draw(results: Mapping[str, Results]) -> list[Picture]:
        pictures, first = [], next(iter(results.values()))
        for block, every in blocks.items():
            panels, numbers = [], {}
            series = {label: jobs for label, jobs in every.items() if first.has(*jobs)}
            if not series:
                continue
            for dataset, outputs in results.items():
                curves = {
                    label: _accepted(*_gain(outputs, series[label]))
                    for label in _distinct_gains(outputs, series)
                }
                panels.append(_over_thresholds(dataset, list(series), curves, "EM gain, points"))
                numbers[dataset] = {label: _numbers(curve) for label, curve in curves.items()}
            label, gain = next(iter(series.items()))
            one_model = len(_distinct_gains(first, series)) == 1 and label == gain.direct
            legend = _legend(results, [gain.direct]) if one_model else list(series)
            drawn = plots.sheet(f"{title} {block}".strip(), panels, legend)
            suffix = f"-{block.replace(' ', '-')}" if block else ""
            pictures.append(Picture(f"{name}{suffix}", drawn, numbers))
        return pictures

    return draw


def _made(results: Mapping[str, Results], series: Sequence[str]) -> list[str]:
    """The series whose jobs were made."""
    first = next(iter(results.values()))
    return [job for job in series if first.has(job)]


def _legend(results: Mapping[str, Results], series: Sequence[str]) -> list[str]:
    """Names of the series; of one model in place of all sizes, its own name."""
    first = next(iter(results.values()))
    if len(distinct(first, series)) > 1:
        return list(series)
    return [name_of(first.run(series[0]).config, "language_model")]


def distinct(results: Results, jobs: Sequence[str]) -> list[str]:
    """Jobs whose directory no earlier job has; at small scales several models are the same."""
    first = {results.directories[job]: job for job in reversed(jobs)}
    return [job for job in jobs if first[results.directories[job]] == job]


def _distinct_gains(results: Results, series: Mapping[str, GainOf]) -> list[str]:
    seen: dict[Any, str] = {}
    for label, gain in series.items():
        seen.setdefault(
            (results.directories[gain.direct], results.directories[gain.retrieved]), label
        )
    return list(seen.values())


def _direct(results: Results, job: str) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Uncertainty and exact match of a run's direct answers."""
    return direct_answers(results.run(job).records)


def _gain(results: Results, of: GainOf) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Uncertainty of the direct answers, and EM with retrieval minus EM without."""
    u, right = _direct(results, of.direct)
    theirs = _by_question(results, "exact_match", of.retrieved)
    names = results.questions(of.direct)
    return u, np.array([theirs.get(name, math.nan) for name in names]) - right


def _accepted(u: Float[np.ndarray, " q"], values: Float[np.ndarray, " q"]) -> ThresholdCurve:
    """The mean of values among the questions with u <= threshold, at finite thresholds."""
    defined = ~np.isnan(u) & ~np.isnan(values)
    curve = accepted_curve(u[defined], values[defined])
    finite = np.isfinite(curve.threshold) & (curve.threshold > 0)
    return ThresholdCurve(*(column[finite] for column in curve))


class _Drawn(NamedTuple):
    """What is drawn of a curve over thresholds."""

    threshold: Float[np.ndarray, " p"]
    mean: Float[np.ndarray, " p"]


def _over_thresholds(
    title: str, legend: Sequence[str], curves: Mapping[str, Any], y_title: str
) -> plots.Panel:
    drawn = [
        _curve(curves[job].threshold, curves[job], 1) if job in curves else None for job in legend
    ]
    return plots.curves(
        title, drawn, x_title="uncertainty threshold u, nats", y_title=y_title, log_x=True
    )


def _curve(x: Float[np.ndarray, " p"], curve: Any, factor: float = 100) -> Curve:
    """A curve in percent; ``factor`` is that of x."""
    low, high = (100 * getattr(curve, end, np.zeros(0)) for end in ("low", "high"))
    return Curve(*(v.tolist() for v in (factor * x, 100 * curve.mean, low, high)))


def _numbers(curve: ThresholdCurve) -> list[dict[str, float | None]]:
    columns = {name: column.tolist() for name, column in curve._asdict().items()}
    return [
        {
            name: value if math.isfinite(value) else None
            for name, value in zip(columns, row, strict=True)
        }
        for row in zip(*columns.values(), strict=True)
    ]


def _by_question(results: Results, metric: str, job: str) -> dict[str, float]:
    values = results.scores(job)[metric].tolist()
    return dict(zip(results.questions(job), values, strict=True))


def _plain(mean: Interval) -> dict[str, float] | None:
    return mean._asdict() if mean.n else None
