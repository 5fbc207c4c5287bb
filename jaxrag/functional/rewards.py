"""Rewards of a selector that picks how many rewrites to keep (ARS-RAG).

Source: docs/methods.md, "ARS-RAG: rewards".

Arm a, from 0, keeps the K = a + 1 best rewrites. A table holds the base reward of every question
under every arm; these functions make of it what a bandit is paid, and say how far its choices are
from the best ones.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

FIRST, SLOPE = 3.0, 0.2
"""The example weights of the paper: w_k = 3.0 - 0.2 k."""


def falling_weights(arms: int, *, first: float = FIRST, slope: float = SLOPE) -> Float[Array, " a"]:
    """w_k = first - slope * k for k = 1 .. arms; by default 2.8 at k = 1 and 1.0 at k = 10."""
    return first - slope * jnp.arange(1, arms + 1)


def exact_or_f1(exact_match: Float[Array, "q a"], f1: Float[Array, "q a"]) -> Float[Array, "q a"]:
    """Base reward of an open answer: 1 where it matches exactly, else its F1."""
    return jnp.where(exact_match == 1, 1.0, f1)


def weighted(base: Float[Array, "q a"], weights: Float[Array, " a"]) -> Float[Array, "q a"]:
    """Base rewards times the weight of their arm: r_t = reward * w_a (section on rewards)."""
    return base * weights


def penalised(base: Float[Array, "q a"], strength: Float[Array, ""] | float) -> Float[Array, "q a"]:
    """Base rewards less ``strength`` for each rewrite kept: base - lambda * k (appendix C).

    The appendix words the term as added; with a lambda above 0 only its subtraction makes fewer
    rewrites better, as its table 3 reports.
    """
    return base - strength * jnp.arange(1, base.shape[1] + 1)


def obtained(rewards: Float[Array, "q a"], arms: Int[Array, " q"]) -> Float[Array, " q"]:
    """What each question pays under the arm chosen for it."""
    return jnp.take_along_axis(rewards, arms[:, None], axis=1)[:, 0]


def regret(rewards: Float[Array, "q a"], arms: Int[Array, " q"]) -> Float[Array, " q"]:
    """How much more each question would have paid under its best arm; never below 0."""
    return rewards.max(1) - obtained(rewards, arms)
