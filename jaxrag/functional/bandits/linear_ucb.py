"""LinUCB: an arm's reward is linear in the context (Li et al. 2010, disjoint models).

Each arm has its own ridge regression: A = lambda I + sum x x' and b = sum r x over the rounds that
played it, theta = A^-1 b, value theta'x + alpha sqrt(x' A^-1 x). The inverse is kept by
Sherman-Morrison.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.confidence import Positive, check_positive
from jaxrag.functional.bandits.interaction import Bandit, Values
from jaxrag.types import InputError


class LinearState(NamedTuple):
    """A^-1 and b of every arm."""

    inverse: Float[Array, "a d d"]
    moment: Float[Array, "a d"]


def linear_ucb(
    d: int, arms: int, *, alpha: Positive = 1.0, regularization: Positive = 1.0
) -> Bandit:
    """LinUCB with disjoint arms; no networks, so ``fit`` is the identity.

    Args:
      d: features of a context.
      arms: how many.
      alpha: exploration factor.
      regularization: lambda of the ridge regression; 1 in the paper.
    """
    check_positive(regularization=regularization)
    if min(d, arms) < 1:
        raise InputError(f"{d} features and {arms} arms: at least 1 of each.")

    def init(key: jax.Array) -> LinearState:
        eye = jnp.broadcast_to(jnp.eye(d), (arms, d, d))
        return LinearState(eye / regularization, jnp.zeros((arms, d)))

    def values(state: LinearState, x: Float[Array, " d"]) -> Values:
        through = jnp.matmul(state.inverse, x, precision=lax.Precision.HIGHEST)
        mean = jnp.sum(through * state.moment, axis=1)  # x' A^-1 b
        width = jnp.sqrt(jnp.maximum(through @ x, 0.0))
        return Values(mean, width, mean + alpha * width)

    def update(
        state: LinearState, x: Float[Array, " d"], arm: Int[Array, ""], reward: Float[Array, ""]
    ) -> LinearState:
        was = state.inverse[arm]
        through = jnp.matmul(was, x, precision=lax.Precision.HIGHEST)
        inverse = was - jnp.outer(through, through / (1.0 + through @ x))
        return LinearState(state.inverse.at[arm].set(inverse), state.moment.at[arm].add(reward * x))

    return Bandit(
        init=init,
        values=values,
        select=lambda state, x, key: jnp.argmax(values(state, x).ucb),
        update=update,
        fit=lambda state, key: state,
        greedy=lambda state, x: jnp.argmax(values(state, x).mean),
    )
