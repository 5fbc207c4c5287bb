"""Learning to rank the rewrites of one question from graded labels, and how good an order is.

docs/methods.md, "ARS-RAG: ranker" (eqs 7-9): RankNet (Burges et al., 2005) over all pairs of a
question's rewrites, from ONE score for each rewrite. The loss is JAX; the figures are NumPy in
float64, and NaN where labels or scores define none.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Real

from jaxrag.types import InputError

Ties = Literal["half", "drop"]
"""What pairs of equal labels do: pull their scores together (P = 1/2, eq 7 as it stands), or
nothing."""

Gain = Literal["exponential", "linear"]
"""What a label y is worth in nDCG: 2^y - 1 (Burges et al., 2005) or y."""


def pair_targets(labels: Real[Array, " n"]) -> Float[Array, "n n"]:
    """P_ij = (1 + sign(y_i - y_j)) / 2, one of 0, 1/2 and 1 (ARS-RAG eq 7)."""
    return (1.0 + jnp.sign(labels[:, None] - labels[None, :]).astype(jnp.float32)) / 2.0


def counted_pairs(
    labels: Real[Array, " n"], *, where: Bool[Array, " n"], ties: Ties = "half"
) -> Bool[Array, "n n"]:
    """Which ordered pairs the loss is a mean over: i != j, both ``where``, and by ``ties``."""
    pairs = where[:, None] & where[None, :] & ~jnp.eye(len(labels), dtype=bool)
    return pairs & (labels[:, None] != labels[None, :]) if ties == "drop" else pairs


def ranknet_loss(
    scores: Float[Array, " n"],
    labels: Real[Array, " n"],
    *,
    where: Bool[Array, " n"] | None = None,
    ties: Ties = "half",
) -> Float[Array, ""]:
    """Mean cross-entropy over the ordered pairs of one question, in nats (ARS-RAG eqs 8-9).

    -[P_ij log sigmoid(s_i - s_j) + (1 - P_ij) log sigmoid(s_j - s_i)], stable for any scores, also
    for a difference of scores that is infinite; NaN for two equal infinite scores. It does not
    change when the same number is added to all scores. With "half" its least value is not 0 where
    labels tie: such a pair costs log 2 at best.

    Args:
      scores: one for each rewrite.
      labels: y_i, how many of its passages are relevant.
      where: the rewrites that count; all of them by default.
      ties: see `Ties`.

    Returns:
      The loss; 0 where no pair is left, as with "drop" where all labels are equal.
    """
    where = jnp.ones(scores.shape, bool) if where is None else where
    pairs = counted_pairs(labels, where=where, ties=ties)
    # What does not count is set to 0 before the logarithm, so that its gradient is 0 and not NaN.
    apart = jnp.where(pairs, scores[:, None] - scores[None, :], 0.0)
    wanted = pair_targets(labels)
    # A term of weight 0 is left out: 0 times the -inf of an infinite difference would be NaN.
    above = jnp.where(wanted > 0.0, wanted * jax.nn.log_sigmoid(apart), 0.0)
    below = jnp.where(wanted < 1.0, (1.0 - wanted) * jax.nn.log_sigmoid(-apart), 0.0)
    return -jnp.where(pairs, above + below, 0.0).sum() / jnp.maximum(pairs.sum(), 1)


def pairwise_accuracy(scores: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"]) -> float:
    """Share of the pairs of different labels that the scores put in the right order.

    Equal scores of such a pair count one half. NaN where all labels are equal.
    """
    found, wanted = _signs(scores, labels)
    apart = wanted != 0
    return float(((1.0 + found * wanted) / 2.0)[apart].mean()) if apart.any() else float("nan")


def kendall_tau(scores: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"]) -> float:
    """Kendall's tau-b, rank correlation in [-1, 1] corrected for ties of both (Kendall, 1945).

    (concordant - discordant) / sqrt(pairs untied in scores * pairs untied in labels); NaN where all
    scores or all labels are equal.
    """
    found, wanted = _signs(scores, labels)
    untied = float(np.abs(found).sum()) * float(np.abs(wanted).sum())
    return float((found * wanted).sum() / np.sqrt(untied)) if untied else float("nan")


def ndcg(
    scores: Real[np.ndarray, " n"],
    labels: Real[np.ndarray, " n"],
    *,
    k: int | None = None,
    gain: Gain = "exponential",
) -> float:
    """Discounted gain of the ``k`` first (by default all) over that of the best order, in [0, 1].

    A gain at rank r counts 1 / log2(r + 1) (Järvelin and Kekäläinen, 2002). Equal scores share the
    mean over their orders (McSherry and Najork, 2008), so that no order of the file shows. NaN
    where no label is above 0; 1 where all are equal and above 0.
    """
    found, wanted = _checked(scores, labels)
    if wanted.size and wanted.min() < 0:
        raise InputError(f"A label is {wanted.min():g}; the gain of a label is for 0 and above.")
    if k is not None and k < 1:
        raise InputError(f"k is {k}; nDCG looks at the first 1 or more.")
    gains = np.exp2(wanted) - 1.0 if gain == "exponential" else wanted
    discounts = 1.0 / np.log2(np.arange(len(gains)) + 2.0)
    discounts[len(gains) if k is None else k :] = 0.0
    best = float(np.sort(gains)[::-1] @ discounts)
    return _discounted(found, gains, discounts) / best if best > 0 else float("nan")


def _discounted(
    scores: Float[np.ndarray, " n"],
    gains: Float[np.ndarray, " n"],
    discounts: Float[np.ndarray, " n"],
) -> float:
    """Expected discounted gain, best score first: a group of equal scores has its mean gain."""
    values, group = np.unique(-scores, return_inverse=True)
    sizes = np.bincount(group, minlength=len(values))
    means = np.bincount(group, gains, minlength=len(values)) / sizes
    return float(np.repeat(means, sizes) @ discounts)


def _signs(
    scores: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]:
    """sign(s_i - s_j) and sign(y_i - y_j) of the n (n - 1) / 2 pairs i < j."""
    found, wanted = _checked(scores, labels)
    i, j = np.triu_indices(len(found), 1)
    # compared, not subtracted: the difference of two infinite scores is no number
    return _compare(found[i], found[j]), _compare(wanted[i], wanted[j])


def _compare(a: Float[np.ndarray, " p"], b: Float[np.ndarray, " p"]) -> Int[np.ndarray, " p"]:
    return (a > b).astype(int) - (a < b).astype(int)


def _checked(
    scores: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Both in float64.

    Raises:
      InputError: they differ in length, or one is NaN, which has no place in an order.
    """
    found, wanted = np.asarray(scores, np.float64), np.asarray(labels, np.float64)
    if found.ndim != 1 or found.shape != wanted.shape:
        raise InputError(
            f"Scores are {found.shape} and labels {wanted.shape}: one of each for every rewrite."
        )
    for name, values in (("score", found), ("label", wanted)):
        if np.isnan(values).any():
            raise InputError(f"The {name} of rewrite {int(np.isnan(values).argmax())} is NaN.")
    return found, wanted
