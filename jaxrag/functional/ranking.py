"""RankNet's loss on the rewrites of one question, and metrics of rankings and scores.

    >>> scores, labels = jnp.array([[0.0, 0.0]]), jnp.array([[1, 0]])  # of one question
    >>> jax.device_get(jax.jit(jax.vmap(ranknet_loss))(scores, labels)).round(2)  # log 2
    array([0.69], dtype=float32)

docs/methods, "ARS-RAG: ranker" (eqs 7-9): RankNet (Burges et al., 2005) over all pairs of a
question's n rewrites. Symbols: s_i is the score of rewrite i, y_i its label, the number of its
relevant passages. The loss is JAX; the metrics are NumPy in float64, and NaN where they are
undefined.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Real

from jaxrag.types import InputError

Ties = Literal["half", "drop"]
"""Pairs of equal labels: P = 1/2 (eq 7 as printed), which draws their scores together, or left
out."""

Gain = Literal["exponential", "linear"]
"""Gain of a label y in nDCG: 2^y - 1 (Burges et al., 2005) or y."""


def pair_targets(labels: Real[Array, " n"]) -> Float[Array, "n n"]:
    """P_ij = (1 + sign(y_i - y_j)) / 2: 1 if i is better than j, 1/2 if equal (ARS-RAG eq 7)."""
    return (1.0 + jnp.sign(labels[:, None] - labels[None, :]).astype(jnp.float32)) / 2.0


def ranknet_loss(
    scores: Float[Array, " n"],
    labels: Real[Array, " n"],
    *,
    where: Bool[Array, " n"] | None = None,
    ties: Ties = "half",
) -> Float[Array, ""]:
    """L = -1/N sum over i != j of P_ij log sigma(s_i - s_j) + (1 - P_ij) log sigma(s_j - s_i).

    Mean cross-entropy over the N ordered pairs of one question, in nats (ARS-RAG eqs 8-9); P_ij are
    the `pair_targets` by ``ties``, sigma the logistic function. Only differences of scores matter;
    they may be infinite, but two equal infinite scores give NaN. With "half", a pair of equal
    labels contributes log 2 at least. The loss is 0 without pairs, for example with "drop" if all
    labels are equal. ``where`` marks the real rewrites, all by default.
    """
    where = jnp.ones(scores.shape, bool) if where is None else where
    pairs = where[:, None] & where[None, :] & ~jnp.eye(len(labels), dtype=bool)
    if ties == "drop":
        pairs &= labels[:, None] != labels[None, :]
    # Other pairs are 0 before the logarithm, so that their gradient is 0 and not NaN.
    difference = jnp.where(pairs, scores[:, None] - scores[None, :], 0.0)
    target = pair_targets(labels)
    # A term of weight 0 is left out: 0 times the -inf of an infinite difference would be NaN.
    above = jnp.where(target > 0.0, target * jax.nn.log_sigmoid(difference), 0.0)
    below = jnp.where(target < 1.0, (1.0 - target) * jax.nn.log_sigmoid(-difference), 0.0)
    return -jnp.where(pairs, above + below, 0.0).sum() / jnp.maximum(pairs.sum(), 1)


def pairwise_accuracy(scores: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"]) -> float:
    """mean of (1 + sign(s_i - s_j) sign(y_i - y_j)) / 2 over pairs of different labels.

    The share of correctly ordered pairs; equal scores count half. NaN if all labels are equal.
    """
    of_scores, of_labels = _signs(scores, labels)
    different = of_labels != 0
    agreement = (1.0 + of_scores * of_labels)[different] / 2.0
    return float(agreement.mean()) if different.any() else float("nan")


def auc(scores: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"]) -> float:
    """P(s_i > s_j) + P(s_i = s_j) / 2 for y_i = 1, y_j = 0: area under the ROC curve.

    `pairwise_accuracy` of labels 0 and 1, in n log n time (Hanley and McNeil, 1982). 1/2 is chance;
    NaN if all labels are equal.
    """
    scores, labels = _checked(scores, labels)
    positive, negative = scores[labels == 1], np.sort(scores[labels == 0])
    if len(positive) + len(negative) < len(labels):
        raise InputError("A label is neither 0 nor 1; auc takes binary labels.")
    below = np.searchsorted(negative, positive, "left") + np.searchsorted(
        negative, positive, "right"
    )
    pairs = len(positive) * len(negative)
    return float(below.sum() / (2 * pairs)) if pairs else float("nan")


def kendall_tau(scores: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"]) -> float:
    """tau-b = (C - D) / sqrt(N_s N_y): rank correlation in [-1, 1] (Kendall, 1945).

    C and D are the numbers of pairs that scores and labels order alike and oppositely, N_s and N_y
    those with different scores and with different labels. NaN if all scores or all labels are
    equal.
    """
    of_scores, of_labels = _signs(scores, labels)
    untied = float(np.abs(of_scores).sum()) * float(np.abs(of_labels).sum())
    return float((of_scores * of_labels).sum() / np.sqrt(untied)) if untied else float("nan")


def ndcg(
    scores: Real[np.ndarray, " n"],
    labels: Real[np.ndarray, " n"],
    *,
    k: int | None = None,
    gain: Gain = "exponential",
) -> float:
    """nDCG@k = DCG / DCG of the best order, DCG = sum over ranks r <= k of G(y_r) / log2(r + 1).

    y_r is the label at rank r by falling score, G its `Gain`, ``k`` all by default; in [0, 1]
    (Järvelin and Kekäläinen, 2002). Equal scores get the mean over their orders (McSherry and
    Najork, 2008). NaN if no label is above 0.
    """
    scores, labels = _checked(scores, labels)
    if labels.size and labels.min() < 0:
        raise InputError(f"A label is {labels.min():g}; nDCG takes labels of 0 and above.")
    if k is not None and k < 1:
        raise InputError(f"k is {k}; give nDCG 1 or more ranks.")
    gains = np.exp2(labels) - 1.0 if gain == "exponential" else labels
    discounts = 1.0 / np.log2(np.arange(len(gains)) + 2.0)
    discounts[len(gains) if k is None else k :] = 0.0
    best = float(np.sort(gains)[::-1] @ discounts)
    if not best > 0:
        return float("nan")
    values, group = np.unique(-scores, return_inverse=True)
    sizes = np.bincount(group, minlength=len(values))
    means = np.bincount(group, gains, minlength=len(values)) / sizes
    return float(np.repeat(means, sizes) @ discounts) / best


def _signs(
    scores: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]:
    """sign(s_i - s_j) and sign(y_i - y_j) of the n (n - 1) / 2 pairs i < j."""
    scores, labels = _checked(scores, labels)
    i, j = np.triu_indices(len(scores), 1)
    # compared, not subtracted: the difference of two infinite scores is NaN
    return _compare(scores[i], scores[j]), _compare(labels[i], labels[j])


def _compare(a: Float[np.ndarray, " p"], b: Float[np.ndarray, " p"]) -> Int[np.ndarray, " p"]:
    return (a > b).astype(int) - (a < b).astype(int)


def _checked(
    scores: Real[np.ndarray, " n"], labels: Real[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Both in float64; InputError if their lengths differ or a value is NaN."""
    scores, labels = np.asarray(scores, np.float64), np.asarray(labels, np.float64)
    if scores.ndim != 1 or scores.shape != labels.shape:
        raise InputError(
            f"Scores have shape {scores.shape} and labels {labels.shape}: give one label per score."
        )
    for name, values in (("score", scores), ("label", labels)):
        if np.isnan(values).any():
            raise InputError(f"The {name} of item {int(np.isnan(values).argmax())} is NaN.")
    return scores, labels
