"""Bootstrap intervals of means over questions, and paired significance tests.

Intervals are percentile bootstrap intervals over questions (Efron and Tibshirani 1993, ch. 13).
The bias-corrected kind (BCa) is left out on purpose: for a mean over 200 questions or more it
moves the ends by less than their Monte-Carlo error. Where a proportion is 0 (or 1) for every
question, all resamples agree and both kinds would have no width; Wilson's interval is used instead.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

RESAMPLES = 10_000
LEVEL = 0.95
ENDS = (1 - LEVEL) / 2, (1 + LEVEL) / 2
"""Quantiles at the ends of an interval."""
_CHUNK = 1 << 22  # resampled questions held in memory at once


class Interval(NamedTuple):
    """A mean over ``n`` questions and its interval; NaN where ``n`` is 0."""

    mean: float
    low: float
    high: float
    n: int


class Difference(NamedTuple):
    """Mean of ours minus theirs over the ``n`` questions that both answered.

    ``p`` is the two-sided p-value of the sign-flip test; it is not adjusted for the number of
    comparisons made.
    """

    mean: float
    low: float
    high: float
    n: int
    p: float


def resampled_means(
    values: Float[np.ndarray, "q m"], *, resamples: int = RESAMPLES, seed: int = 0
) -> Float[np.ndarray, "r m"]:
    """Means of bootstrap resamples of the questions, all columns on the same resamples.

    NaN marks a question for which a column is not defined. Questions are drawn, not values, so
    such a column's mean is over those drawn questions that define it (NaN when none does).
    """
    n, m = values.shape
    defined = ~np.isnan(values)
    table = np.concatenate([np.where(defined, values, 0.0), defined], axis=1)
    sums = np.empty((resamples, 2 * m))
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // max(n, 1))
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
        sums[start : start + size] = counts.astype(np.float64) @ table
    with np.errstate(invalid="ignore"):
        return sums[:, :m] / sums[:, m:]


def intervals(
    columns: Mapping[str, Float[np.ndarray, " q"]],
    *,
    counts: Collection[str] = (),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Interval]:
    """The mean of every column and its bootstrap interval; NaN entries are left out.

    ``counts`` are columns that are no proportions: if all of their values are 0, or 1, the interval
    has no width.
    """
    defined = {name: values[~np.isnan(values)] for name, values in columns.items()}
    empty = Interval(math.nan, math.nan, math.nan, 0)
    results = dict.fromkeys(columns, empty)
    moving = [name for name, values in defined.items() if len(values) and np.ptp(values) > 0]
    for name, values in defined.items():
        if len(values) and name not in moving:
            share = name not in counts
            results[name] = _constant(float(values[0]), len(values), share=share)
    if moving:
        table = np.stack([np.asarray(columns[name], np.float64) for name in moving], axis=1)
        means = resampled_means(table, resamples=resamples, seed=seed)
        ends = np.nanquantile(means, ENDS, axis=0)
        for name, low, high in zip(moving, *ends, strict=True):
            results[name] = Interval(
                float(defined[name].mean()), float(low), float(high), len(defined[name])
            )
    return results


def interval(
    values: Float[np.ndarray, " q"],
    *,
    count: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The mean of one column and its bootstrap interval."""
    counts = ("values",) * count
    only = intervals({"values": values}, counts=counts, resamples=resamples, seed=seed)
    return only["values"]


def plain(found: Interval | Difference) -> list[float | int | None]:
    """The values as JSON: null where they are NaN."""
    return [None if math.isnan(value) else value for value in found]


def _constant(value: float, n: int, *, share: bool) -> Interval:
    """Interval of equal values: Wilson's if all are 0 or all are 1, else of zero width."""
    if not share or value not in (0.0, 1.0):
        return Interval(value, value, value, n)
    z = NormalDist().inv_cdf(ENDS[1])
    width = z * z / (n + z * z)
    return Interval(value, 0.0, width, n) if value == 0 else Interval(value, 1 - width, 1.0, n)


def seed_interval(values: Float[np.ndarray, " s"]) -> Interval:
    """The mean over few repetitions, such as seeds, and Student's t interval.

    Bootstrap intervals of five values are too narrow. A single value has no interval: both ends are
    the mean.
    """
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return Interval(mean, mean, mean, n)
    quantile = float(special.stdtrit(n - 1, ENDS[1]))
    half = quantile * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def crossed_interval(values: Float[np.ndarray, "s q"]) -> Interval:
    """The mean over seeds and questions, with an interval over both.

    Seeds and questions are crossed random effects, y_sq = mu + a_q + b_s + e_sq, so the mean has
    the variance var_q / Q + var_s / S + var_e / (S Q). The mean squares of the two-way analysis of
    variance, with "." for a mean over an index, and their expectations are

        M_q = S sum_q (y_.q - y_..)^2 / (Q - 1)                          var_e + S var_q
        M_s = Q sum_s (y_s. - y_..)^2 / (S - 1)                          var_e + Q var_s
        M_e = sum_sq (y_sq - y_s. - y_.q + y_..)^2 / ((S - 1) (Q - 1))   var_e

    so (M_q + M_s - M_e) / (S Q) estimates it without bias; a var_q or var_s estimated below 0
    counts as 0. The interval is Student's with Satterthwaite's degrees of freedom,
    (M_q + M_s - M_e)^2 / (M_q^2 / (Q - 1) + M_s^2 / (S - 1) + M_e^2 / ((S - 1) (Q - 1))).
    With three seeds and normal effects it covers 95 %, but 92 to 93 % where most variance of the
    mean is between seeds. Its ends may lie outside the range of the values. One seed, or equal
    values: `interval`; one question: `seed_interval`. ``n`` is Q.

    Source: Searle, Casella and McCulloch, Variance Components (1992), ch. 4.
    """
    seeds, questions = values.shape
    if seeds == 1 or np.ptp(values) == 0:
        return interval(values[0])
    if questions == 1:
        return seed_interval(values[:, 0])._replace(n=1)
    mean, by_question, by_seed = values.mean(), values.mean(0), values.mean(1)
    m_q = seeds * float(np.var(by_question, ddof=1))
    m_s = questions * float(np.var(by_seed, ddof=1))
    freedom = (seeds - 1) * (questions - 1)
    m_e = float(((values - by_seed[:, None] - by_question + mean) ** 2).sum()) / freedom
    total = max(m_q, m_e) + max(m_s, m_e) - m_e
    parts = m_q**2 / (questions - 1) + m_s**2 / (seeds - 1) + m_e**2 / freedom
    quantile = float(special.stdtrit(total**2 / parts, ENDS[1]))
    half = quantile * math.sqrt(total / values.size)
    return Interval(float(mean), float(mean) - half, float(mean) + half, questions)


def paired_difference(ours: Float[np.ndarray, " q"], theirs: Float[np.ndarray, " q"]) -> Difference:
    """Mean of ``ours - theirs`` question by question, with interval and p-value.

    Both arrays are in the same question order; questions that either leaves undefined (NaN) are
    left out.
    """
    differences = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    differences = differences[~np.isnan(differences)]
    if not len(differences):
        return Difference(math.nan, math.nan, math.nan, 0, math.nan)
    if np.ptp(differences) > 0:
        low, high = np.quantile(resampled_means(differences[:, None]), ENDS)
    else:
        low = high = differences[0]
    p = sign_flip_test(differences)
    return Difference(float(differences.mean()), float(low), float(high), len(differences), p)


def sign_flip_test(
    differences: Float[np.ndarray, " q"], *, resamples: int = RESAMPLES, seed: int = 0
) -> float:
    """Two-sided p-value of the hypothesis that each difference is as likely as its negative.

    When all differences that are not zero have one size, as with exact match, the test is
    McNemar's and is computed exactly; otherwise signs are drawn ``resamples`` times and the
    observed ones count as one more draw, so that p is never 0 (Phipson and Smyth 2010).
    """
    moved = differences[differences != 0]
    sizes = np.abs(moved)
    if not len(moved):
        return 1.0
    if np.ptp(sizes) == 0:
        return mcnemar_exact(int((moved > 0).sum()), int((moved < 0).sum()))
    rng = np.random.default_rng(seed)
    observed = abs(moved.sum()) * (1 - 1e-12)  # sums of the same terms differ in the last bits
    rows, extreme = max(1, _CHUNK // len(moved)), 0
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        bits = rng.integers(256, size=(size, -(-len(moved) // 8)), dtype=np.uint8)
        flips = np.unpackbits(bits, axis=1, count=len(moved)).astype(np.float64)
        extreme += int((np.abs((2 * flips - 1) @ moved) >= observed).sum())
    return (extreme + 1) / (resamples + 1)


def interval_p(mean: float, low: float, high: float, *, freedom: float = math.inf) -> float:
    """Two-sided p-value of the hypothesis that the mean is 0, from its interval.

    The standard error is half the interval's width by the quantile of Student's distribution with
    ``freedom`` degrees (infinite: the normal one), which also gives p: below 0.05 just if the 95 %
    interval excludes 0, for all ``freedom``. With fewer degrees than the interval's, p is too
    large where it is small.
    """
    if math.isinf(freedom):
        freedom = 1e12
    error = (high - low) / 2 / float(special.stdtrit(freedom, ENDS[1]))
    return 2 * float(special.stdtr(freedom, -abs(mean) / error)) if error else float(mean == 0)


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm 1979).

    The i-th smallest of m is multiplied by m - i + 1, and is at least as large as those before it:
    where no effect exists, the probability that any of them is below 0.05 is at most 5 %.
    """
    order = np.argsort(p, kind="stable")
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = largest
    return adjusted


def mcnemar_exact(wins: int, losses: int) -> float:
    """Two-sided exact binomial p-value of ``wins`` against ``losses`` (McNemar 1947)."""
    n, tail, term = wins + losses, 0, 1
    for k in range(min(wins, losses) + 1):
        tail += term
        term = term * (n - k) // (k + 1)
    return min(1.0, 2 * tail / 2**n)


def needed_questions(spread: float, effect: float, *, power: float = 0.8) -> int:
    """Number of questions with which a paired difference would be found significant.

    n = ((z_level + z_power) * spread / effect)^2, two-sided, for normally distributed means of
    differences with standard deviation ``spread`` and true mean ``effect``, in one unit. ``power``
    is the probability that the interval then excludes zero.
    """
    normal = NormalDist()
    z = normal.inv_cdf(ENDS[1]) + normal.inv_cdf(power)
    return math.ceil((z * spread / effect) ** 2)
