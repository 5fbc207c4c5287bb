"""Adaptive information selection (AIS): keeps passages by angles to query and pseudo-context.

    >>> query, pseudo, passages = jnp.eye(2)[:1], jnp.eye(2)[1:], jnp.eye(2)[None]  # one question
    >>> ids, where = jnp.array([[7, 8]]), jnp.array([[True, False]])
    >>> score = jax.jit(jax.vmap(partial(select_passages, k=1)))
    >>> score(query, pseudo, passages, ids, where=where).selection.ids
    Array([[7]], dtype=int32)

docs/methods, "PAIRS: selection (equations 1 to 4)" and "PAIRS: dynamic weight (equations 5, 6
and 8)"; equation 7 of DTR is equation 4 of PAIRS. Symbols, for a query q, a pseudo-context p and a
passage d: theta0 is the angle between q and p, theta1 between q and d, theta2 between p and d, in
radians; s0, s1, s2 are their cosines, the inner products of unit vectors.

Scores are functions of the angles of one passage and broadcast over many. Near +-1 a cosine does
not determine its angle well (to 3e-4 rad in float32): angles come from vectors, by `angle`.
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


def cosine_sum(theta1: Float[Array, "*n"], theta2: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """s = cos theta1 + cos theta2 = s1 + s2 (PAIRS eq 1); the score of the released code."""
    return jnp.cos(theta1) + jnp.cos(theta2)


def angle_sum(theta1: Float[Array, "*n"], theta2: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """s = cos(theta1 + theta2) = s1 s2 - sqrt(1 - s1^2) sqrt(1 - s2^2) (PAIRS eq 4, DTR eq 7)."""
    return jnp.cos(theta1 + theta2)


def dynamic_weight(
    theta0: Float[Array, "*n"],
    *,
    alpha0: float | Float[Array, ""] = ALPHA0_PAPER,
    alpha1: float | Float[Array, ""] = ALPHA1_PAPER,
) -> Float[Array, "*n"]:
    """alpha = alpha0 + alpha1 theta0, clipped to [0, 1]: theta1's weight in s (PAIRS eq 8)."""
    return jnp.clip(alpha0 + alpha1 * theta0, 0.0, 1.0)


def best_weight(theta1: Float[Array, "*n"], theta2: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """alpha = theta2 / (theta1 + theta2), with the angles of a gold passage (PAIRS eq 6).

    With this weight both angles count alike: alpha theta1 = (1 - alpha) theta2. 1 / 2 where both
    are 0.
    """
    total = theta1 + theta2
    zero = total == 0.0
    return jnp.where(zero, 0.5, theta2 / jnp.where(zero, 1.0, total))


def fit_alpha(
    theta0: Float[Array, " q"], alpha: Float[Array, " q"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Least-squares line alpha = alpha1 theta0 + alpha0 over q questions (PAIRS eq 8).

    Returns the slope alpha1 = cov(theta0, alpha) / var(theta0), 0 where all theta0 are equal, and
    the intercept alpha0 = mean(alpha) - alpha1 mean(theta0). ``alpha``: see `best_weight`.
    """
    across = theta0 - jnp.mean(theta0)
    square = jnp.sum(across * across)
    zero = square == 0.0
    # alpha centred, too: in float32 the sum of ``across`` is not zero
    product = jnp.sum(across * (alpha - jnp.mean(alpha)))
    slope = jnp.where(zero, 0.0, product / jnp.where(zero, 1.0, square))
    return slope, jnp.mean(alpha) - slope * jnp.mean(theta0)


def dynamic_score(
    theta1: Float[Array, "*n"], theta2: Float[Array, "*n"], alpha: Float[Array, ""]
) -> Float[Array, "*n"]:
    """s = cos(alpha theta1 + (1 - alpha) theta2), alpha the `dynamic_weight` (PAIRS eq 5).

    The released code uses minus the angle: the same order, as the cosine decreases on [0, pi].
    """
    return jnp.cos(alpha * theta1 + (1.0 - alpha) * theta2)


def angle(u: Float[Array, " d"], v: Float[Array, " d"]) -> Float[Array, ""]:
    """theta = 2 atan2(|u - v|, |u + v|) of u and v scaled to unit length, in [0, pi] (Kahan 2006).

    It has float32's full precision where arccos of the inner product loses half of the digits.
    pi / 2 if u or v is zero; NaN if an entry is NaN or infinite. A vector may count as zero if all
    its entries are below 1.2e-38, the smallest normal float32.
    """
    finite = jnp.all(jnp.isfinite(u)) & jnp.all(jnp.isfinite(v))
    u, v = _unit(u), _unit(v)
    vanished = ~(jnp.any(u != 0.0) & jnp.any(v != 0.0))
    half = jnp.arctan2(_norm(u - v), jnp.where(vanished, 1.0, _norm(u + v)))
    return jnp.where(finite, jnp.where(vanished, jnp.pi / 2, 2.0 * half), jnp.nan)


class Selection(NamedTuple):
    """The k selected candidates, best first, with positions in the pool; padded by -1, -inf, -1."""

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
    """argtop-k over i of score_i: the ``k`` best candidates i of a padded pool of n (PAIRS eq 7).

    Each id is selected at most once: among the real candidates (``where``) with the same id only
    the first counts, whatever its score. Equal scores are in order of position, NaN is last.
    """
    n = scores.shape[0]
    where = jnp.ones(n, bool) if where is None else where
    same = (ids[:, None] == ids[None, :]) & where[None, :]
    first = where & ~jnp.any(jnp.tril(same, -1), axis=1)
    # A sort by (excluded, -score), not top_k of -inf: the score of a candidate may be -inf.
    out, _, order = lax.sort((~first, -scores, jnp.arange(n)), num_keys=2, is_stable=True)
    order = jnp.where(out, -1, order)[:k]
    order = jnp.pad(order, (0, max(k - n, 0)), constant_values=-1)
    empty = order < 0
    return Selection(
        jnp.where(empty, -1, ids[order]), jnp.where(empty, -jnp.inf, scores[order]), order
    )


class ScoredPool(NamedTuple):
    """Cosines and scores of all candidates, and the selected rows."""

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
) -> ScoredPool:
    """AIS of one question from its vectors: scores all candidates and selects the ``k`` best.

    "angle_sum": s = cos(theta1 + theta2); "cosine_sum": s = cos theta1 + cos theta2; "dynamic":
    s = cos(alpha theta1 + (1 - alpha) theta2), alpha = alpha0 + alpha1 theta0. Vectors may have any
    length. Pools are padded to a fixed n (``where`` marks the real candidates), so that a run
    compiles this once.
    """
    theta0 = angle(query, pseudo_context)
    theta1 = jax.vmap(angle, (None, 0))(query, passages)
    theta2 = jax.vmap(angle, (None, 0))(pseudo_context, passages)
    if score == "angle_sum":
        scores = angle_sum(theta1, theta2)
    elif score == "cosine_sum":
        scores = cosine_sum(theta1, theta2)
    else:
        alpha = dynamic_weight(theta0, alpha0=alpha0, alpha1=alpha1)
        scores = dynamic_score(theta1, theta2, alpha)
    selection = select(scores, ids, k=k, where=where)
    return ScoredPool(jnp.cos(theta0), jnp.cos(theta1), jnp.cos(theta2), scores, selection)


def _norm(x: Float[Array, " d"]) -> Float[Array, ""]:
    square = jnp.sum(x * x)
    zero = square == 0.0  # false for NaN
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, square)))


def _unit(x: Float[Array, " d"]) -> Float[Array, " d"]:
    """The unit vector; 0 for 0. Scaled by a power of two first, so that squares do not overflow.

    A power of two does not round. It counts as constant in the gradient, which is exact because
    the unit vector does not depend on it.
    """
    limits = jnp.finfo(x.dtype)
    _, exponent = jnp.frexp(lax.stop_gradient(jnp.max(jnp.abs(x), initial=0.0)))
    exponent = jnp.clip(exponent, limits.minexp, limits.maxexp - 2)  # keeps the power normal
    x = x * jnp.ldexp(jnp.ones((), x.dtype), -exponent)
    norm = _norm(x)
    return jnp.where(norm == 0.0, 0.0, x / jnp.where(norm == 0.0, 1.0, norm))
