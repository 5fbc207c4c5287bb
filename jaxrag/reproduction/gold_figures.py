"""Figures and measures of where gold passages lie (docs/methods, "PAIRS: analyses")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxrag.core import jsonl
from jaxrag.evaluation.report import plots
from jaxrag.evaluation.significance import ENDS, Interval, resampled_means
from jaxrag.functional import ais
from jaxrag.methods.gold_geometry import CLOUDS, POINTS, GoldGeometry, weights
from jaxrag.reproduction.measures import JOB, Measure, Results
from jaxrag.reproduction.printed.measured import Measured
from jaxrag.reproduction.tables import Picture

LEGEND = ("documents by the question", "documents by the pseudo-context", "gold documents")


def read_geometry(results: Results) -> list[dict[str, Any]]:
    """The lines of geometry.jsonl."""
    return jsonl.read(results.directories[JOB] / GoldGeometry.file)


ALPHA_FIT: Mapping[str, Measure] = {
    "regression_slope": lambda results: Measured(_fit(results)[0]),
    "regression_intercept": lambda results: Measured(_fit(results)[1]),
    "n_samples": lambda results: Measured(Interval(*[len(read_geometry(results))] * 4)),
}
"""Measures of alpha = alpha1 theta0 + alpha0 (PAIRS eq 8): alpha1, alpha0, number of questions."""


def _fit(results: Results) -> tuple[Interval, Interval]:
    """alpha1 and alpha0 with bootstrap intervals over questions."""
    theta0, alpha = weights(read_geometry(results))
    columns = np.stack([theta0, alpha, theta0 * theta0, theta0 * alpha], axis=1)
    x, y, xx, xy = resampled_means(columns).T
    spread = xx - x * x
    slopes = np.where(spread > 1e-12, (xy - x * y) / np.where(spread > 1e-12, spread, 1), 0)
    coefficients = []
    fitted = ais.fit_alpha(jnp.asarray(theta0), jnp.asarray(alpha))
    for value, drawn in zip(fitted, (slopes, y - slopes * x), strict=True):
        low, high = np.quantile(drawn, ENDS)
        coefficients.append(Interval(float(value), float(low), float(high), len(theta0)))
    return coefficients[0], coefficients[1]


def alpha_scatter(results: Mapping[tuple[int, str], Results]) -> list[Picture]:
    """Draws alpha of each question against theta0, with the fitted line."""
    fitted = next(iter(results.values()))
    theta0, alpha = weights(read_geometry(fitted))
    slope, intercept = _fit(fitted)
    points = np.stack([theta0, alpha], axis=1)
    ends = np.array([theta0.min(), theta0.max()])
    line = np.stack([ends, slope.mean * ends + intercept.mean], axis=1)
    drawn = plots.clouds(
        f"alpha = {slope.mean:.3f} theta0 + {intercept.mean:.3f}",
        {f"n = {len(points):,}": {"questions": points, "fit": line}},
        x_title="theta0, radians",
        y_title="alpha",
    )
    numbers = {"slope": slope._asdict(), "intercept": intercept._asdict()}
    return [Picture(drawn, numbers | {"points": points.tolist()})]


def similarities(title: str, results: Mapping[str, Results]) -> list[Picture]:
    """Draws the histogram of cosines between questions and their gold passages, bins of 0.02."""
    numbers, panels = {}, {}
    for dataset, outputs in results.items():
        cosines = np.cos([passage["theta1"] for passage in _gold(outputs)])
        low, high = np.floor(50 * cosines.min()), np.floor(50 * cosines.max()) + 1
        edges = (np.arange(low, max(high, low + 2) + 1) / 50).tolist()  # of two bins at least
        counts = np.histogram(cosines, edges)[0].tolist()
        below = float((cosines < 0.8).mean())
        numbers[dataset] = {"edges": edges, "counts": counts, "below 0.8": below}
        panels[dataset] = np.array([edges[:-1], counts])
    return [Picture(plots.histograms(title, panels, x_title="cosine, gold document"), numbers)]


def ranks(title: str, results: Mapping[str, Results]) -> list[Picture]:
    """Draws the histogram of ranks of gold passages in the search by the question, up to 20."""
    labels = {**{rank: str(rank) for rank in range(20)}, None: "20+"}
    numbers = {}
    for dataset, outputs in results.items():
        gold_ranks = [passage["rank"] for passage in _gold(outputs)]
        numbers[dataset] = {label: gold_ranks.count(rank) for rank, label in labels.items()}
    return [Picture(plots.histograms(title, numbers, x_title="rank"), numbers)]


def positions(title: str, results: Mapping[str, Results], *, polar: bool = False) -> list[Picture]:
    """Draws passages around the question, on two components; ``polar``: at their true distance."""
    panels, numbers = {}, {}
    for dataset, outputs in results.items():
        lines = jsonl.read(outputs.directories[JOB] / POINTS)
        by_cloud = {c: [line for line in lines if line["cloud"] == c] for c in CLOUDS}
        places = (_places(chosen, polar) for chosen in by_cloud.values())
        panels[dataset] = dict(zip(LEGEND, places, strict=True))
        numbers[dataset] = {
            cloud: {
                "n": len(chosen),
                "median distance": float(np.median([x["r"] for x in chosen])) if chosen else None,
            }
            for cloud, chosen in by_cloud.items()
        }
    titles = (
        ("distance x cos", "distance x sin") if polar else ("first component", "second component")
    )
    drawn = plots.clouds(title, panels, x_title=titles[0], y_title=titles[1], around_origin=True)
    return [Picture(drawn, numbers)]


def _places(lines: Sequence[Mapping[str, Any]], polar: bool) -> Float[np.ndarray, "p 2"]:
    """Positions of passages; polar: scaled to the distance r from the origin."""
    places = np.array([(line["x"], line["y"]) for line in lines]).reshape(-1, 2)
    if not polar:
        return places
    angle = np.arctan2(places[:, 1], places[:, 0])
    distance = np.array([line["r"] for line in lines])
    return np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1)


def _gold(results: Results) -> list[dict[str, Any]]:
    return [passage for line in read_geometry(results) for passage in line["gold"]]
