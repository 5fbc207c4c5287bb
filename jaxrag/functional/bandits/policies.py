"""The ends of every bandit's reward, and the policies that need no learning of their own.

`oracle` and `best_fixed_arm` know all rewards, `fixed_arm` and `uniform` none; `epsilon_greedy` and
`thompson` explore on top of any `Bandit`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.interaction import Bandit, Key, State, Values, won
from jaxrag.types import InputError


class Oracle(NamedTuple):
    """The best arm of each round and what it pays: the end of every policy's reward."""

    arms: Int[Array, " t"]
    rewards: Float[Array, " t"]


def oracle(rewards: Float[Array, "t a"]) -> Oracle:
    """Who knows all rewards plays this; the first of equal arms."""
    return Oracle(jnp.argmax(rewards, axis=1), jnp.max(rewards, axis=1))


def best_fixed_arm(rewards: Float[Array, "t a"]) -> Int[Array, ""]:
    """The arm with the highest mean reward over all rounds; the first of equal ones."""
    return jnp.argmax(jnp.mean(rewards, axis=0))


def regret(expected: Float[Array, "t a"], arms: Int[Array, " t"]) -> Float[Array, " t"]:
    """What the played arms fell short of the best ones, summed up to each round.

    Args:
      expected: the reward of every arm in every round, without noise where that is known.
      arms: the arms played.
    """
    return jnp.cumsum(jnp.max(expected, axis=1) - won(expected, arms))


def fixed_arm(arm: int, *, arms: int) -> Bandit:
    """Always plays the same arm, from 0; it has nothing to learn and no values (zeros)."""
    if not 0 <= arm < arms:
        raise InputError(f"arm {arm} of {arms}: arms count from 0 to {arms - 1}.")
    return _untaught(arms)._replace(
        select=lambda state, x, key: jnp.asarray(arm), greedy=lambda state, x: jnp.asarray(arm)
    )


def uniform(*, arms: int) -> Bandit:
    """Plays any arm with equal chance; ``greedy`` is arm 0, as it knows nothing."""
    return _untaught(arms)._replace(
        select=lambda state, x, key: jax.random.randint(key, (), 0, arms)
    )


def _untaught(arms: int) -> Bandit:
    if arms < 1:
        raise InputError(f"{arms} arms: a bandit needs at least one.")
    nothing = Values(jnp.zeros(arms), jnp.zeros(arms), jnp.zeros(arms))
    return Bandit(
        init=lambda key: (),
        values=lambda state, x: nothing,
        select=lambda state, x, key: jnp.asarray(0),
        update=lambda state, x, arm, reward: state,
        fit=lambda state, key: state,
        greedy=lambda state, x: jnp.asarray(0),
        update_batch=lambda state, contexts, arms, rewards: state,
    )


def epsilon_greedy(bandit: Bandit, epsilon: float | Float[Array, ""]) -> Bandit:
    """``bandit`` that plays its greedy arm, and with probability ``epsilon`` any arm.

    Any arm includes the greedy one. Widths play no part: give `neural_ucb` no confidence matrix.
    """
    if not isinstance(epsilon, Tracer) and not 0 <= float(epsilon) <= 1:
        raise InputError(f"epsilon is {epsilon}: a probability lies between 0 and 1.")

    def select(state: State, x: Float[Array, " d"], key: Key) -> Int[Array, ""]:
        explore, which = jax.random.split(key)
        mean = bandit.values(state, x).mean
        anything = jax.random.randint(which, (), 0, mean.shape[0])
        return jnp.where(jax.random.uniform(explore) < epsilon, anything, jnp.argmax(mean))

    return bandit._replace(select=select, rounds=None)


def thompson(bandit: Bandit) -> Bandit:
    """``bandit`` that draws each arm's reward and plays the highest draw (NeuralTS, LinTS).

    Draws are normal around the mean; their standard deviation is what ``bandit`` would add for
    exploration, so with a beta of nu they are N(f, (nu sigma)^2) (Zhang et al. 2021).
    """

    def select(state: State, x: Float[Array, " d"], key: Key) -> Int[Array, ""]:
        values = bandit.values(state, x)
        noise = jax.random.normal(key, values.mean.shape)
        return jnp.argmax(values.mean + (values.ucb - values.mean) * noise)

    return bandit._replace(select=select, rounds=None)
