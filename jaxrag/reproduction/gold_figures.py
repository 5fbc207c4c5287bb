"""Figures and measures of where gold passages lie (`jaxrag.methods.gold_geometry`).

docs/methods.md, "PAIRS: analyses".
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxrag.core import jsonl
from jaxrag.evaluation.report import plots
from jaxrag.evaluation.significance import RESAMPLES, Interval
from jaxrag.functional import ais
from jaxrag.methods.gold_geometry import CLOUDS, POINTS, GoldGeometry, weights
from jaxrag.reproduction.measures import JOB, Results
from jaxrag.reproduction.printed.measured import Measured
from jaxrag.reproduction.tables import Picture

LEGEND = ("documents by the question", "documents by the pseudo-context", "gold documents")


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
    points = list(zip(theta0.tolist(), alpha.tolist(), strict=True))
    ends = [float(theta0.min()), float(theta0.max())]
    panel = functools.partial(
        plots.scatter,
        title=f"n = {len(points):,}",
        clouds=[points],
        line=[(x, slope.mean * x + intercept.mean) for x in ends],
        x_title="theta0, radians",
        y_title="alpha",
    )
    drawn = plots.sheet(
        f"alpha = {slope.mean:.3f} theta0 + {intercept.mean:.3f}", [panel], ("questions", "fit")
    )
    numbers = {"slope": slope._asdict(), "intercept": intercept._asdict(), "points": points}
    return [Picture(name, drawn, numbers)]


def similarities(name: str, results: Mapping[str, Results]) -> list[Picture]:
    """Draws the histogram of cosines between questions and their gold passages, bins of 0.02."""
    numbers = {}
    for dataset, outputs in results.items():
        cosines = np.cos([passage["theta1"] for passage in _gold(outputs)])
        low, high = np.floor(50 * cosines.min()), np.floor(50 * cosines.max()) + 1
        edges = (np.arange(low, high + 1) / 50).tolist()
        numbers[dataset] = {
            "edges": edges,
            "counts": np.histogram(cosines, edges)[0].tolist(),
            "below 0.8": float((cosines < 0.8).mean()),
        }
    panels = [
        functools.partial(
            plots.histogram,
            title=dataset,
            counts=histogram["counts"],
            edges=histogram["edges"],
            x_title="cosine, gold document",
        )
        for dataset, histogram in numbers.items()
    ]
    return [Picture(name, plots.sheet("Questions and gold documents", panels), numbers)]


def ranks(name: str, results: Mapping[str, Results], depth: int = 20) -> list[Picture]:
    """Draws the histogram of ranks of gold passages in the search by the question."""
    labels = {**{rank: str(rank) for rank in range(depth)}, None: f"{depth}+"}
    numbers = {}
    for dataset, outputs in results.items():
        gold_ranks = [passage["rank"] for passage in _gold(outputs)]
        numbers[dataset] = {label: gold_ranks.count(rank) for rank, label in labels.items()}
    panels = [
        functools.partial(plots.histogram, title=dataset, counts=counts, x_title="rank")
        for dataset, counts in numbers.items()
    ]
    return [Picture(name, plots.sheet("Rank of gold documents", panels), numbers)]


def positions(name: str, results: Mapping[str, Results], *, polar: bool) -> list[Picture]:
    """Draws passages around the question, on two principal components.

    With ``polar``, at their true distance from the question in the direction of the projection.
    """
    panels, numbers = [], {}
    for dataset, outputs in results.items():
        lines = jsonl.read(outputs.directories[JOB] / POINTS)
        places = {cloud: _places(lines, cloud, polar) for cloud in CLOUDS}
        reach = max(float(np.abs(points).max(initial=0)) for points in places.values())
        panels.append(
            functools.partial(
                plots.scatter,
                title=dataset,
                clouds=list(places.values()),
                x_title="distance x cos" if polar else "first component",
                y_title="distance x sin" if polar else "second component",
                limits=(-reach, reach),
            )
        )
        distances = {cloud: [p["r"] for p in lines if p["cloud"] == cloud] for cloud in CLOUDS}
        numbers[dataset] = {
            cloud: {"n": len(r), "median distance": float(np.median(r)) if r else None}
            for cloud, r in distances.items()
        }
    title = f"Documents around the question (origin), {'polar' if polar else 'xy'}"
    return [Picture(name, plots.sheet(title, panels, LEGEND), numbers)]


def _places(
    lines: Sequence[Mapping[str, Any]], cloud: str, polar: bool
) -> Float[np.ndarray, "p 2"]:
    """Positions of a cloud's passages."""
    chosen = [line for line in lines if line["cloud"] == cloud]
    places = np.array([(line["x"], line["y"]) for line in chosen]).reshape(-1, 2)
    if not polar:
        return places
    angle = np.arctan2(places[:, 1], places[:, 0])
    distance = np.array([line["r"] for line in chosen])
    return np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)


def _gold(results: Results) -> list[dict[str, Any]]:
    return [passage for line in read_geometry(results) for passage in line["gold"]]
