"""Precision over closed questions: of those answered with a class, the share that are of it.

METHODS section 5.7 prints a precision without saying how classes are averaged, so both usual ones
are here. It belongs to a set of questions and not to one, which is why it is no column of
`metrics`.

======================  =========================================================================
precision_positive      of the questions answered with yes (or true), the share whose gold answer
                        that is; not defined for choices, which have no positive class
precision_macro         the mean over all classes that were answered or are gold; a class that was
                        never answered has precision 0, as in scikit-learn
======================  =========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jaxrag.evaluation.significance import LEVEL, RESAMPLES, Interval

NAMES = ("precision_positive", "precision_macro")
_UNDEFINED = Interval(math.nan, math.nan, math.nan, 0)
_NO_CLASS = -1  # an answer that names no option


def intervals(
    records: Sequence[Mapping[str, Any]], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Interval]:
    """Both precisions with bootstrap intervals over the questions that have options."""
    options = [r["trace"]["option"] for r in records if "option" in r.get("trace", {})]
    options = [one for one in options if one["gold"] is not None]
    if not options:
        return dict.fromkeys(NAMES, _UNDEFINED)
    said = np.array([_NO_CLASS if o["said"] is None else o["said"] for o in options])
    gold = np.array([o["gold"] for o in options])
    draws = np.random.default_rng(seed).multinomial(
        len(said), np.full(len(said), 1 / len(said)), size=resamples
    )
    weights = np.vstack([np.ones(len(said)), draws])  # the first row is the questions themselves
    found = {"precision_macro": macro(said, gold, weights)}
    if all(option["positive"] for option in options):
        found["precision_positive"] = positive(said, gold, weights)
    return {name: _interval(found.get(name), len(said)) for name in NAMES}


def positive(
    said: Int[np.ndarray, " q"], gold: Int[np.ndarray, " q"], weights: Float[np.ndarray, "r q"]
) -> Float[np.ndarray, " r"]:
    """Of the weight answered with class 0, the share that is gold; NaN where none is."""
    with np.errstate(invalid="ignore"):
        return weights @ ((said == 0) & (gold == 0)) / (weights @ (said == 0))


def macro(
    said: Int[np.ndarray, " q"], gold: Int[np.ndarray, " q"], weights: Float[np.ndarray, "r q"]
) -> Float[np.ndarray, " r"]:
    """Mean precision over the classes; those that a row never answers count 0."""
    classes = [c for c in np.union1d(said, gold) if c != _NO_CLASS]
    shares = []
    for one in classes:
        answered = weights @ (said == one)
        right = weights @ ((said == one) & (gold == one))
        shares.append(np.divide(right, answered, out=np.zeros(len(right)), where=answered > 0))
    return np.mean(shares, axis=0)


def _interval(values: Float[np.ndarray, " r"] | None, n: int) -> Interval:
    if values is None or math.isnan(values[0]):
        return _UNDEFINED
    low, high = np.nanquantile(values[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(values[0]), float(low), float(high), n)
