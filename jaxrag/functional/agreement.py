"""How far binary judgements agree with others, such as a model's relevance with gold passages.

Raw agreement alone says little where one answer is rare or a judge always says the same; so chance
is taken out of it (kappa), and a judge's yes and no are looked at apart. What a side's judgements
do not define, as kappa where both always say the same, is NaN. NumPy, float64.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Real

from jaxrag.types import InputError


class Agreement(NamedTuple):
    """Judgements against gold ones, both 0 or 1.

    Attributes:
      n: how many were compared.
      raw: share that are equal.
      kappa: Cohen's (1960): (raw - chance) / (1 - chance), with the chance of two judges who say 1
        as often as these but know nothing of each other. 0 is noise; NaN where both always say
        the same one thing.
      precision: share of gold 1 among those judged 1.
      recall: share judged 1 among gold 1.
      f1: harmonic mean of the two, 2 TP / (2 TP + FP + FN).
      balanced: mean of recall and of the share judged 0 among gold 0; 1/2 is noise.
      judged: share judged 1.
      gold: share of gold 1.
    """

    n: int
    raw: float
    kappa: float
    precision: float
    recall: float
    f1: float
    balanced: float
    judged: float
    gold: float


def agreement(judged: Any, gold: Any) -> Agreement:
    """Compares binary judgements with gold ones.

    Args:
      judged: [n] of 0 and 1, or False and True.
      gold: [n], of the same things in the same order.

    Raises:
      InputError: their lengths differ, or one of them is neither 0 nor 1.
    """
    found, wanted = binary(judged, "judged"), binary(gold, "gold")
    _same_length(found, wanted)
    n = len(found)
    hits = int((found & wanted).sum())
    yes, right = int(found.sum()), int(wanted.sum())
    raw = _share(int((found == wanted).sum()), n)
    chance = _share(yes * right + (n - yes) * (n - right), n * n)
    recall = _share(hits, right)
    # of the n - right that are gold 0, the wrongly judged are yes - hits
    specificity = _share(n - right - (yes - hits), n - right)
    return Agreement(
        n=n,
        raw=raw,
        kappa=(raw - chance) / (1.0 - chance) if chance < 1.0 else math.nan,
        precision=_share(hits, yes),
        recall=recall,
        f1=_share(2 * hits, yes + right),
        balanced=(recall + specificity) / 2.0,
        judged=_share(yes, n),
        gold=_share(right, n),
    )


def auc(scores: Any, gold: Any) -> float:
    """Area under the ROC curve: how often a gold 1 scores above a gold 0, equal scores one half.

    1/2 is noise; NaN where gold is all 0 or all 1 (Hanley and McNeil, 1982).

    Raises:
      InputError: lengths differ, gold is not binary, or a score is NaN.
    """
    values, wanted = _scored(scores, gold)
    right, wrong = values[wanted], np.sort(values[~wanted])
    below = np.searchsorted(wrong, right, "left") + np.searchsorted(wrong, right, "right")
    return _share(int(below.sum()), 2 * len(right) * len(wrong))


def point_biserial(scores: Any, gold: Any) -> float:
    """Pearson's correlation of finite scores with gold 0 and 1; NaN where either never varies.

    Raises:
      InputError: as `auc`; also for an infinite score.
    """
    values, wanted = _scored(scores, gold)
    if np.isinf(values).any():
        raise InputError(
            f"Score {int(np.isinf(values).argmax())} is infinite, and has no correlation; auc takes"
            " any order."
        )
    if not len(values) or np.ptp(values) == 0 or np.ptp(wanted.astype(int)) == 0:
        return math.nan
    x, y = values - values.mean(), wanted - wanted.mean()
    return float(x @ y / math.sqrt((x @ x) * (y @ y)))


def binary(values: Any, name: str) -> Real[np.ndarray, " n"]:
    """Judgements as booleans.

    Raises:
      InputError: naming ``name`` and the place, where one is neither 0 nor 1.
    """
    found = np.asarray(values)
    if found.size == 0:
        return np.zeros(0, bool)
    known = (found == 0) | (found == 1)
    if found.ndim != 1 or not np.all(known):
        wrong = found.shape if found.ndim != 1 else found[int(np.argmin(known))]
        raise InputError(f"{name} holds {wrong!r}; judgements are a list of 0 and 1.")
    return found.astype(bool)


def _scored(scores: Any, gold: Any) -> tuple[Float[np.ndarray, " n"], Real[np.ndarray, " n"]]:
    values, wanted = np.asarray(scores, np.float64).reshape(-1), binary(gold, "gold")
    _same_length(values, wanted)
    if np.isnan(values).any():
        raise InputError(f"Score {int(np.isnan(values).argmax())} is NaN; leave that pair out.")
    return values, wanted


def _same_length(first: Any, second: Any) -> None:
    if len(first) != len(second):
        raise InputError(
            f"{len(first)} judgements but {len(second)} gold ones: each is compared with its own."
        )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
