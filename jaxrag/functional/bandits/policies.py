"""LinUCB, exploration on top of any `Bandit`, and references that bound a policy's reward."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.confidence import Positive, check_positive
from jaxrag.functional.bandits.interaction import Bandit, Key, State, Values, rewards_of
from jaxrag.types import InputError


def oracle(rewards: Float[Array, "t a"]) -> Int[Array, " t"]:
    """The best arm of each round, known from all rewards; ties go to the first."""
    return jnp.argmax(rewards, axis=1)


def best_fixed_arm(rewards: Float[Array, "t a"]) -> Int[Array, ""]:
    """The arm with the highest mean reward over all rounds; ties go to the first."""
    return jnp.argmax(jnp.mean(rewards, axis=0))


def regret(expected: Float[Array, "t a"], arms: Int[Array, " t"]) -> Float[Array, " t"]:
    """Cumulative regret after each round: best reward minus reward of the played arm, summed.

    ``expected`` is the reward of every arm, without noise if that is known.
    """
    return jnp.cumsum(jnp.max(expected, axis=1) - rewards_of(expected, arms))


def epsilon_greedy(bandit: Bandit, epsilon: float | Float[Array, ""]) -> Bandit:
    """``bandit`` with its greedy arm, and with probability ``epsilon`` a uniformly random arm.

    Random arms include the greedy one. Widths are not used: give `neural_ucb` the `zero_width`
    confidence.
    """
    if not isinstance(epsilon, Tracer) and not 0 <= float(epsilon) <= 1:
        raise InputError(f"epsilon is {epsilon}: a probability lies between 0 and 1.")

    def select(state: State, x: Float[Array, " d"], key: Key) -> Int[Array, ""]:
        for_coin, for_arm = jax.random.split(key)
        mean = bandit.values(state, x).mean
        random_arm = jax.random.randint(for_arm, (), 0, mean.shape[0])
        return jnp.where(jax.random.uniform(for_coin) < epsilon, random_arm, jnp.argmax(mean))

    return bandit._replace(select=select, rounds=None)


def thompson(bandit: Bandit) -> Bandit:
    """``bandit`` with Thompson sampling: plays the highest of rewards drawn for each arm.

    Draws are normal around the mean with the exploration bonus as standard deviation: for a beta of
    nu, N(f, (nu sigma)^2) (NeuralTS, LinTS; Zhang et al. 2021).
    """

    def select(state: State, x: Float[Array, " d"], key: Key) -> Int[Array, ""]:
        values = bandit.values(state, x)
        noise = jax.random.normal(key, values.mean.shape)
        return jnp.argmax(values.mean + (values.ucb - values.mean) * noise)

    return bandit._replace(select=select, rounds=None)


class LinearState(NamedTuple):
    """A^-1 and b of every arm."""

    inverse: Float[Array, "a d d"]
    moment: Float[Array, "a d"]


def linear_ucb(
    d: int, arms: int, *, alpha: Positive = 1.0, regularization: Positive = 1.0
) -> Bandit:
    """LinUCB (Li et al. 2010, disjoint models): a ridge regression per arm, without networks.

    A = lambda I + sum x x' and b = sum r x over the rounds that played the arm, theta = A^-1 b,
    value theta'x + alpha sqrt(x' A^-1 x). The inverse is updated by Sherman-Morrison. lambda
    (``regularization``) is 1 in the paper; ``alpha`` is the exploration factor.
    """
    check_positive(regularization=regularization)
    if min(d, arms) < 1:
        raise InputError(f"{d} features and {arms} arms: at least 1 of each.")

    def init(key: jax.Array) -> LinearState:
        identity = jnp.broadcast_to(jnp.eye(d), (arms, d, d))
        return LinearState(identity / regularization, jnp.zeros((arms, d)))

    def values(state: LinearState, x: Float[Array, " d"]) -> Values:
        product = jnp.matmul(state.inverse, x, precision=lax.Precision.HIGHEST)
        mean = jnp.sum(product * state.moment, axis=1)  # x' A^-1 b
        width = jnp.sqrt(jnp.maximum(product @ x, 0.0))
        return Values(mean, width, mean + alpha * width)

    def update(
        state: LinearState, x: Float[Array, " d"], arm: Int[Array, ""], reward: Float[Array, ""]
    ) -> LinearState:
        old = state.inverse[arm]
        product = jnp.matmul(old, x, precision=lax.Precision.HIGHEST)
        inverse = old - jnp.outer(product, product / (1.0 + product @ x))
        return LinearState(state.inverse.at[arm].set(inverse), state.moment.at[arm].add(reward * x))

    return Bandit(
        init=init,
        values=values,
        select=lambda state, x, key: jnp.argmax(values(state, x).ucb),
        update=update,
        fit=lambda state, key: state,
        greedy=lambda state, x: jnp.argmax(values(state, x).mean),
    )
