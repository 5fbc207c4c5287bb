"""Figures and measures of where gold passages lie (`jaxrag.methods.gold_geometry`).

docs/methods.md, "PAIRS: analyses".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrag.core import jsonl
from jaxrag.evaluation.report import plots
from jaxrag.evaluation.significance import RESAMPLES, Interval
from jaxrag.functional import ais
from jaxrag.methods.gold_geometry import CLOUDS, POINTS, GoldGeometry, weights
from jaxrag.reproduction.measures import JOB, Results
from jaxrag.reproduction.printed.measured import Measured
from jaxrag.reproduction.tables import Picture

LEGEND = ("documents by the question", "documents by the pseudo-context", "gold documents")

Draw = Callable[[Mapping[str, Results]], list[Picture]]


def read_geometry(results: Results, job: str = JOB) -> list[dict[str, Any]]:
    """The lines of geometry.jsonl of a job."""
    return jsonl.read(results.directories[job] / GoldGeometry.file)


def alpha_slope(results: Results) -> Measured:
    """Measures alpha1 of alpha = alpha1 theta0 + alpha0 (PAIRS eq 8)."""
    return Measured(_fit(results)[0])


def alpha_intercept(results: Results) -> Measured:
    """Measures alpha0 of alpha = alpha1 theta0 + alpha0 (PAIRS eq 8)."""
    return Measured(_fit(results)[1])


def alpha_count(results: Results) -> Measured:
    """Measures the number of questions of the fit."""
    count = len(read_geometry(results))
    return Measured(Interval(count, count, count, count))


def _fit(results: Results) -> tuple[Interval, Interval]:
    """alpha1 and alpha0 with bootstrap intervals over questions."""
    theta0, alpha = weights(read_geometry(results))
    count, rng = len(theta0), np.random.default_rng(0)
    columns = np.stack([theta0, alpha, theta0 * theta0, theta0 * alpha])
    means = np.stack(
        [columns[:, rng.integers(count, size=count)].mean(1) for _ in range(RESAMPLES)]
    )
    x, y, xx, xy = means.T
    spread = xx - x * x
    slopes = np.where(spread > 1e-12, (xy - x * y) / np.where(spread > 1e-12, spread, 1), 0)
    coefficients = []
    fitted = ais.fit_alpha(jnp.asarray(theta0), jnp.asarray(alpha))
    for value, drawn in zip(fitted, (slopes, y - slopes * x), strict=True):
        low, high = np.quantile(drawn, [0.025, 0.975])
        coefficients.append(Interval(float(value), float(low), float(high), count))
    return coefficients[0], coefficients[1]


def alpha_scatter(name: str, results: Mapping[tuple[int, str], Results]) -> list[Picture]:
    """Draws alpha of each question against theta0, with the fitted line."""
    fitted = next(iter(results.values()))
    theta0, alpha = weights(read_geometry(fitted))
    slope, intercept = _fit(fitted)
    ends = [float(theta0.min()), float(theta0.max())]
    line = [(x, slope.mean * x + intercept.mean) for x in ends]
    points = list(zip(theta0.tolist(), alpha.tolist(), strict=True))
    panel = plots.scatter("", [points], x_title="theta0, radians", y_title="alpha", line=line)
    title = f"alpha = {slope.mean:.3f} theta0 + {intercept.mean:.3f}"
    numbers = {"slope": slope._asdict(), "intercept": intercept._asdict(), "points": points}
    return [Picture(name, plots.sheet(title, [panel], ("questions", "fit")), numbers)]


def similarities(name: str) -> Draw:
    """Draws the histogram of cosines between questions and their gold passages, bins of 0.02."""

    def draw(results: Mapping[str, Results]) -> list[Picture]:
        panels, numbers = [], {}
        for dataset, outputs in results.items():
            gold = _gold(outputs)
            cosines = np.cos([passage["theta1"] for passage in gold])
            low, high = np.floor(50 * cosines.min()), np.floor(50 * cosines.max()) + 1
            edges = (np.arange(low, high + 1) / 50).tolist()
            counts = np.histogram(cosines, edges)[0].tolist()
            panels.append(
                plots.histogram(dataset, counts, x_title="cosine, gold document", edges=edges)
            )
            numbers[dataset] = {
                "edges": edges,
                "counts": counts,
                "below 0.8": float((cosines < 0.8).mean()),
            }
        return [Picture(name, plots.sheet("Questions and gold documents", panels), numbers)]

    return draw


def ranks(name: str, depth: int = 20) -> Draw:
    """Draws the histogram of ranks of gold passages in the search by the question."""

    def draw(results: Mapping[str, Results]) -> list[Picture]:
        labels, panels, numbers = [*map(str, range(depth)), f"{depth}+"], [], {}
        for dataset, outputs in results.items():
            gold_ranks = [passage["rank"] for passage in _gold(outputs)]
            counts = [gold_ranks.count(rank) for rank in [*range(depth), None]]
            panels.append(plots.histogram(dataset, counts, x_title="rank", labels=labels))
            numbers[dataset] = dict(zip(labels, counts, strict=True))
        return [Picture(name, plots.sheet("Rank of gold documents", panels), numbers)]

    return draw


def positions(name: str, *, polar: bool) -> Draw:
    """Draws passages around the question, on two principal components.

    With ``polar``, at their true distance from the question in the direction of the projection.
    """

    def draw(results: Mapping[str, Results]) -> list[Picture]:
        panels, numbers = [], {}
        for dataset, outputs in results.items():
            lines = jsonl.read(outputs.directories[JOB] / POINTS)
            clouds = [_places(lines, cloud, polar) for cloud in CLOUDS]
            reach = max(abs(v) for cloud in clouds for point in cloud for v in point)
            panels.append(
                plots.scatter(
                    dataset,
                    clouds,
                    x_title="distance x cos" if polar else "first component",
                    y_title="distance x sin" if polar else "second component",
                    x=(-reach, reach),
                    y=(-reach, reach),
                )
            )
            numbers[dataset] = {
                cloud: {
                    "n": sum(line["cloud"] == cloud for line in lines),
                    "median distance": _median([x["r"] for x in lines if x["cloud"] == cloud]),
                }
                for cloud in CLOUDS
            }
        title = f"Documents around the question (origin), {'polar' if polar else 'xy'}"
        return [Picture(name, plots.sheet(title, panels, LEGEND), numbers)]

    return draw


def _places(
    lines: Sequence[Mapping[str, Any]], cloud: str, polar: bool
) -> list[tuple[float, float]]:
    places = []
    for line in lines:
        if line["cloud"] != cloud:
            continue
        x, y = line["x"], line["y"]
        if polar:
            angle = np.arctan2(y, x)
            x, y = float(line["r"] * np.cos(angle)), float(line["r"] * np.sin(angle))
        places.append((x, y))
    return places


def _gold(results: Results) -> list[dict[str, Any]]:
    return [passage for line in read_geometry(results) for passage in line["gold"]]


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None
