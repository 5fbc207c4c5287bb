"""Accuracy of a gate on the uncertainty u of direct answers at every threshold, from records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jaxrag.evaluation.significance import intervals
from jaxrag.functional.ranking import auc

POINTS = 61
RESAMPLES = 2_000  # per point of a curve; enough for a drawn band


class ThresholdCurve(NamedTuple):
    """Mean score as the threshold moves from accepting no direct answer to accepting all.

    ``query_ratio`` is the share of questions with u <= threshold, which bypass retrieval
    (docs/methods, "DTR: uncertainty curves"); the other arrays run beside it.
    """

    threshold: Float[np.ndarray, " p"]
    query_ratio: Float[np.ndarray, " p"]
    mean: Float[np.ndarray, " p"]
    low: Float[np.ndarray, " p"]
    high: Float[np.ndarray, " p"]


def thresholds(u: Float[np.ndarray, " q"], *, points: int = POINTS) -> Float[np.ndarray, " p"]:
    """At most ``points`` thresholds that accept evenly growing shares of the questions.

    The first accepts none (-inf), the last all (+inf); the others are recorded values of u, so
    that questions with equal u are never split.
    """
    ranks = np.linspace(0, len(u) - 1, points).astype(int)
    return np.unique(np.concatenate([[-np.inf], np.sort(u)[ranks], [np.inf]]))


def accepted_curve(
    u: Float[np.ndarray, " q"], direct: Float[np.ndarray, " q"], *, points: int = POINTS
) -> ThresholdCurve:
    """Score of direct answers with u <= threshold (DTR figure 16), from 5 % and 10 questions on."""
    at = thresholds(u, points=points)
    curve = _curve(at, [u <= t for t in at], lambda accepted: np.where(accepted, direct, np.nan))
    some = curve.query_ratio >= min(max(0.05, 10 / len(u)), 1)
    return ThresholdCurve(*(values[some] for values in curve))


def ratio_curve(
    u: Float[np.ndarray, " q"],
    scores: Float[np.ndarray, " q"],
    *,
    ratios: Sequence[float] = tuple(i / 10 for i in range(1, 11)),
) -> ThresholdCurve:
    """Mean score of the least uncertain share of the questions (DTR figure 16).

    A share holds ``ratio`` times the number of questions, rounded up; of equally uncertain ones the
    first. ``threshold`` is the greatest u of the share.
    """
    order = np.argsort(u, kind="stable")
    counts = [math.ceil(ratio * len(u) - 1e-9) for ratio in ratios]
    at, rank = u[order[np.array(counts) - 1]], np.argsort(order)
    shares = [rank < count for count in counts]
    return _curve(at, shares, lambda accepted: np.where(accepted, scores, np.nan))


def _curve(
    at: Float[np.ndarray, " p"],
    accepted: Sequence[Bool[np.ndarray, " q"]],
    scores: Callable[[Bool[np.ndarray, " q"]], Float[np.ndarray, " q"]],
) -> ThresholdCurve:
    """The mean of ``scores`` at each threshold, of which ``accepted`` says what it accepts."""
    columns = {str(i): scores(mask) for i, mask in enumerate(accepted)}
    means = intervals(columns, resamples=RESAMPLES)
    bands = np.array([means[name][:3] for name in columns])
    return ThresholdCurve(at, np.array([mask.mean() for mask in accepted]), *bands.T)


def separation(u: Float[np.ndarray, " q"], right: Float[np.ndarray, " q"]) -> float:
    """AUROC of u as a detector of wrong answers, ties half; NaN if all are right or all wrong."""
    return auc(u, 1 - right)
