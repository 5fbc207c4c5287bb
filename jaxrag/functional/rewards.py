"""Rewards of a bandit that chooses how many rewrites to keep (ARS-RAG).

    >>> base = jnp.array([[1.0, 1.0], [0.0, 1.0]])  # of two questions under K = 1 and 2
    >>> sweep = jax.jit(jax.vmap(penalised, (None, 0)))  # over strengths of the penalty
    >>> sweep(base, jnp.array([0.0, 0.25]))[:, 0]
    Array([[1.  , 1.  ],
           [0.75, 0.5 ]], dtype=float32)

Source: docs/methods, "ARS-RAG: rewards". Symbols: arm a, from 0, keeps the K = a + 1 best
rewrites; r_K is its reward; base_K is the base reward (of correctness), which a table [q a] holds
of every question under every arm.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

FIRST, SLOPE = 3.0, 0.2
"""The paper's example of weights: w_K = 3.0 - 0.2 K."""


def falling_weights(arms: int, *, first: float = FIRST, slope: float = SLOPE) -> Float[Array, " a"]:
    """w_K = first - slope K for K = 1 .. arms; by default 2.8 at K = 1 and 1.0 at K = 10."""
    return first - slope * jnp.arange(1, arms + 1)


def weighted(base: Float[Array, "q a"], weights: Float[Array, " a"]) -> Float[Array, "q a"]:
    """r_K = base_K w_K: base rewards times the weight of their arm, see `falling_weights`."""
    return base * weights


def penalised(base: Float[Array, "q a"], strength: Float[Array, ""] | float) -> Float[Array, "q a"]:
    """r_K = base_K - lambda K: base rewards minus lambda for each rewrite kept (appendix C).

    The appendix adds the term; with lambda (``strength``) above 0 only its subtraction makes fewer
    rewrites better, as its table 3 reports.
    """
    return base - strength * jnp.arange(1, base.shape[1] + 1)
