"""Adaptive information selection (AIS): which of the passages that two queries found are kept.

docs/methods.md, "PAIRS: selection (equations 1 to 4)" and "PAIRS: dynamic weight (equations 5, 6
and 8)"; equation 7 of DTR is equation 4 of PAIRS. Angles are in radians: theta0 between query and
pseudo-context, theta1 between query and passage, theta2 between pseudo-context and passage; s0, s1,
s2 are their cosines, the inner products of unit vectors.

Scores are functions of one passage and broadcast over many. A cosine near +-1 says little about
its angle (float32 resolves 3e-4 rad there), so with vectors at hand take `angle`, not arccos.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

Score = Literal["angle_sum", "cosine_sum", "dynamic"]

ALPHA0_PAPER, ALPHA1_PAPER = 0.455, 0.058
"""alpha = 0.455 + 0.058 theta0, fitted on 5,000 HotpotQA training questions (PAIRS eq 8)."""

ALPHA0_RELEASED, ALPHA1_RELEASED = 0.45520, 0.05848
"""The same line with the digits of the released code."""


def cosine_sum(s1: Float[Array, "*n"], s2: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """s1 + s2 of clipped cosines (PAIRS eq 1): the score that the released code has in force."""
    return _clip(s1) + _clip(s2)


def angle_sum(s1: Float[Array, "*n"], s2: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """cos(theta1 + theta2) = s1 s2 - sqrt(1 - s1^2) sqrt(1 - s2^2) (PAIRS eq 4, DTR eq 7).

    Cosines are clipped to [-1, 1]. At +-1, where the roots have no derivative, theirs counts as
    0, so the gradient is finite everywhere.
    """
    return _clip(s1) * _clip(s2) - _sine(s1) * _sine(s2)


def dynamic_weight(
    theta0: Float[Array, "*n"],
    *,
    alpha0: float | Float[Array, ""] = ALPHA0_PAPER,
    alpha1: float | Float[Array, ""] = ALPHA1_PAPER,
) -> Float[Array, "*n"]:
    """alpha = alpha0 + alpha1 theta0, kept in [0, 1]: the query's share of trust (PAIRS eq 8)."""
    return jnp.clip(alpha0 + alpha1 * theta0, 0.0, 1.0)


def dynamic_score(
    s1: Float[Array, "*n"],
    s2: Float[Array, "*n"],
    s0: Float[Array, ""],
    *,
    alpha0: float | Float[Array, ""] = ALPHA0_PAPER,
    alpha1: float | Float[Array, ""] = ALPHA1_PAPER,
) -> Float[Array, "*n"]:
    """cos(alpha theta1 + (1 - alpha) theta2) with alpha of theta0 = arccos s0 (PAIRS eq 5).

    The released code takes minus the angle instead: the same order, as the angle stays within
    [0, pi], where the cosine falls.
    """
    theta0, theta1, theta2 = _arccos(s0), _arccos(s1), _arccos(s2)
    return _weighted(theta1, theta2, dynamic_weight(theta0, alpha0=alpha0, alpha1=alpha1))


def _weighted(
    theta1: Float[Array, "*n"], theta2: Float[Array, "*n"], alpha: Float[Array, "*n"]
) -> Float[Array, "*n"]:
    return jnp.cos(alpha * theta1 + (1.0 - alpha) * theta2)


def target_alpha(theta1: Float[Array, "*n"], theta2: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """theta2 / (theta1 + theta2): the alpha that a gold passage asks for (PAIRS eq 6).

    A passage at the query's place gives 1, at the pseudo-context's 0; at both (0 / 0), 1/2.
    """
    total = theta1 + theta2
    return jnp.where(total > 0.0, theta2 / jnp.where(total > 0.0, total, 1.0), 0.5)


class Line(NamedTuple):
    """alpha = alpha0 + alpha1 theta0."""

    alpha0: Float[Array, ""]
    alpha1: Float[Array, ""]


def fit_alpha(
    theta0: Float[Array, " n"],
    alpha: Float[Array, " n"],
    *,
    where: Bool[Array, " n"] | None = None,
) -> Line:
    """The line of least squares through (theta0, alpha), PAIRS eq 8.

    Points of a single theta0 give a slope of 0 through their mean; alpha0 is NaN for no points.
    """
    where = jnp.ones_like(theta0, bool) if where is None else where
    mean = partial(jnp.mean, where=where)
    x, y = jnp.where(where, theta0, 0.0), jnp.where(where, alpha, 0.0)
    dx, dy = x - mean(x), y - mean(y)  # centred first: float32 loses the slope otherwise
    # Equal values differ from their rounded mean, so they are told by their range, not by dx.
    vary = jnp.max(x, where=where, initial=-jnp.inf) > jnp.min(x, where=where, initial=jnp.inf)
    slope = jnp.where(vary, mean(dx * dy) / jnp.where(vary, mean(dx * dx), 1.0), 0.0)
    return Line(mean(y) - slope * mean(x), slope)


def angle(u: Float[Array, " d"], v: Float[Array, " d"]) -> Float[Array, ""]:
    """The angle between two vectors of any length, in [0, pi]; pi / 2 if either is zero.

    2 atan2(|u - v|, |u + v|) of the unit vectors (Kahan 2006) keeps float32's full precision
    where arccos of the inner product has lost half of the digits. NaN if an entry is NaN or
    infinite. A vector may count as zero if all its entries are below 1.2e-38 in absolute value,
    the smallest normal float32.
    """
    finite = jnp.all(jnp.isfinite(u)) & jnp.all(jnp.isfinite(v))
    u, v = _unit(u), _unit(v)
    vanished = ~(jnp.any(u != 0.0) & jnp.any(v != 0.0))
    half = jnp.arctan2(_norm(u - v), jnp.where(vanished, 1.0, _norm(u + v)))
    return jnp.where(finite, jnp.where(vanished, jnp.pi / 2, 2.0 * half), jnp.nan)


class Selection(NamedTuple):
    """What was kept, best first: ids, scores and positions in the pool; -1, -inf, -1 fill it."""

    ids: Int[Array, " k"]
    scores: Float[Array, " k"]
    positions: Int[Array, " k"]


@partial(jax.jit, static_argnames="k")
def select(
    scores: Float[Array, " n"],
    ids: Int[Array, " n"],
    *,
    k: int,
    where: Bool[Array, " n"] | None = None,
) -> Selection:
    """The ``k`` best candidates of a padded pool, each id once.

    Of several candidates (``where``) with one id the first counts, whatever the others score;
    equal scores come in order of position; NaN comes last. Works for any scores, such as a
    reranker's (PAIRS eq 7).
    """
    n = scores.shape[0]
    where = jnp.ones(n, bool) if where is None else where
    same = (ids[:, None] == ids[None, :]) & where[None, :]
    kept = where & ~jnp.any(jnp.tril(same, -1), axis=1)
    # Sorting by (left out, -score) and not top_k of -inf: a kept score may itself be -inf.
    out, _, order = lax.sort((~kept, -scores, jnp.arange(n)), num_keys=2, is_stable=True)
    order = jnp.where(out, -1, order)[:k]
    order = jnp.pad(order, (0, max(k - n, 0)), constant_values=-1)
    empty = order < 0
    return Selection(
        jnp.where(empty, -1, ids[order]), jnp.where(empty, -jnp.inf, scores[order]), order
    )


class Pool(NamedTuple):
    """Every candidate's cosines and score, and what was kept of them."""

    s0: Float[Array, ""]
    s1: Float[Array, " n"]
    s2: Float[Array, " n"]
    scores: Float[Array, " n"]
    selection: Selection


@partial(jax.jit, static_argnames=("k", "score"))
def select_passages(
    query: Float[Array, " d"],
    pseudo_context: Float[Array, " d"],
    passages: Float[Array, "n d"],
    ids: Int[Array, " n"],
    *,
    k: int,
    where: Bool[Array, " n"],
    score: Score = "angle_sum",
    alpha0: float | Float[Array, ""] = ALPHA0_PAPER,
    alpha1: float | Float[Array, ""] = ALPHA1_PAPER,
) -> Pool:
    """AIS for one question, from the vectors: scores the candidates and keeps the ``k`` best.

    The pool is padded to a fixed n (``where`` marks the real candidates), so that a run compiles
    this once. Vectors need not be of unit length: their angles count.
    """
    theta0 = angle(query, pseudo_context)
    theta1 = jax.vmap(angle, (None, 0))(query, passages)
    theta2 = jax.vmap(angle, (None, 0))(pseudo_context, passages)
    if score == "angle_sum":
        scores = jnp.cos(theta1 + theta2)
    elif score == "cosine_sum":
        scores = jnp.cos(theta1) + jnp.cos(theta2)
    else:
        scores = _weighted(theta1, theta2, dynamic_weight(theta0, alpha0=alpha0, alpha1=alpha1))
    selection = select(scores, ids, k=k, where=where)
    return Pool(jnp.cos(theta0), jnp.cos(theta1), jnp.cos(theta2), scores, selection)


def _clip(cosine: Float[Array, "*n"]) -> Float[Array, "*n"]:
    # Not jnp.clip: its gradient at the bounds is a half or zero, here it is the identity's.
    return jnp.where(jnp.abs(cosine) > 1.0, jnp.sign(cosine), cosine)


def _sine(cosine: Float[Array, "*n"]) -> Float[Array, "*n"]:
    room = (1.0 - cosine) * (1.0 + cosine)  # 1 - cosine^2 loses digits near 1
    inside = room > 0.0
    return jnp.where(inside, jnp.sqrt(jnp.where(inside, room, 1.0)), 0.0)


def _arccos(cosine: Float[Array, "*n"]) -> Float[Array, "*n"]:
    return jnp.arctan2(_sine(cosine), _clip(cosine))


def _norm(x: Float[Array, " d"]) -> Float[Array, ""]:
    square = jnp.sum(x * x)
    zero = square == 0.0  # not `square > 0`, which is also false for NaN
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, square)))


def _unit(x: Float[Array, " d"]) -> Float[Array, " d"]:
    x = _scaled(x)
    norm = _norm(x)
    return jnp.where(norm == 0.0, 0.0, x / jnp.where(norm == 0.0, 1.0, norm))


def _scaled(x: Float[Array, " d"]) -> Float[Array, " d"]:
    """The vector times a power of two, such that the squares of its largest entries are normal.

    A power of two does not round. It counts as constant in the gradient, which is exact because
    the unit vector does not depend on it.
    """
    kind = jnp.finfo(x.dtype)
    _, exponent = jnp.frexp(lax.stop_gradient(jnp.max(jnp.abs(x), initial=0.0)))
    exponent = jnp.clip(exponent, kind.minexp, kind.maxexp - 2)  # the power itself stays normal
    return x * jnp.ldexp(jnp.ones((), x.dtype), -exponent)
