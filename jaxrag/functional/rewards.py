"""Rewards of a bandit that chooses how many rewrites to keep (ARS-RAG).

Source: docs/methods.md, "ARS-RAG: rewards". Arm a, from 0, keeps the K = a + 1 best rewrites. A
table holds the base reward of every question under every arm.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

FIRST, SLOPE = 3.0, 0.2
"""The paper's example of weights: w_k = 3.0 - 0.2 k."""


def falling_weights(arms: int, *, first: float = FIRST, slope: float = SLOPE) -> Float[Array, " a"]:
    """w_k = first - slope * k for k = 1 .. arms; by default 2.8 at k = 1 and 1.0 at k = 10."""
    return first - slope * jnp.arange(1, arms + 1)


def weighted(base: Float[Array, "q a"], weights: Float[Array, " a"]) -> Float[Array, "q a"]:
    """Base rewards times the weight of their arm: r = base * w_k."""
    return base * weights


def penalised(base: Float[Array, "q a"], strength: Float[Array, ""] | float) -> Float[Array, "q a"]:
    """Base rewards minus ``strength`` for each rewrite kept: r = base - lambda * k (appendix C).

    The appendix adds the term; with lambda above 0 only its subtraction makes fewer rewrites
    better, as its table 3 reports.
    """
    return base - strength * jnp.arange(1, base.shape[1] + 1)
