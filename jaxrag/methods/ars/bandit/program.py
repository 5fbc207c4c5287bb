"""A selector's training as one program: epochs of replay under `lax.scan`, watched at every one.

Every training question's reward under every arm is known beforehand, but the bandit is shown only
that of the arm it plays, as if it asked the language model then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.interaction import Bandit, interact, rewards_of

Key = jax.Array


class Replay(NamedTuple):
    """Questions with what every arm pays for them: one part, train or test, of a table."""

    contexts: Float[Array, "q d"]
    rewards: Float[Array, "q a"]


class Learned(NamedTuple):
    """What a training came to.

    Attributes:
      state: of the bandit, after the last epoch.
      played: mean reward of what was played while learning, by epoch.
      train, test: mean reward of the watched policy after each epoch, by part.
      chosen: its arms for the test questions after the last epoch, from 0.
    """

    state: Any
    played: Float[Array, " e"]
    train: Float[Array, " e"]
    test: Float[Array, " e"]
    chosen: Int[Array, " q"]


def program(
    bandit: Bandit, *, epochs: int, batch: int, exploring: bool = False
) -> Callable[[Key, Replay, Replay], Learned]:
    """The training as a pure function of key, training part and test part; jit it once.

    Rewards are an argument, so that weights and penalties need no compiling. Every epoch plays the
    training questions once, in a fresh order; what is left over after whole batches is a last,
    smaller batch, so that no question is dropped or played twice.

    Args:
      bandit: the policy that learns.
      epochs: how often every question is played.
      batch: questions that are chosen for and learned from together.
      exploring: whether the watched policy is what the bandit would play, exploration included;
        by default it is the greedy one.
    """

    def watched(state: Any, part: Replay, key: Key) -> Int[Array, " q"]:
        if exploring:
            keys = jax.random.split(key, len(part.contexts))
            return jax.vmap(bandit.select, (None, 0, 0))(state, part.contexts, keys)
        return jax.vmap(bandit.greedy, (None, 0))(state, part.contexts)

    def learn(key: Key, train: Replay, test: Replay) -> Learned:
        first, rest = jax.random.split(key)

        def epoch(state: Any, key: Key) -> tuple[Any, tuple[Array, Array, Array]]:
            order, play, *looks = jax.random.split(key, 4)
            turn = jax.random.permutation(order, len(train.contexts))
            shuffled = Replay(train.contexts[turn], train.rewards[turn])
            state, won = _play(bandit, state, shuffled, play, batch)
            means = [
                rewards_of(part.rewards, watched(state, part, look)).mean()
                for part, look in zip((train, test), looks, strict=True)
            ]
            return state, (won, means[0], means[1])

        keys = jax.random.split(rest, epochs)
        state, curves = lax.scan(epoch, bandit.init(first), keys)
        # The very arms whose mean is the last point of the curve: the same draws as there.
        chosen = watched(state, test, jax.random.split(keys[-1], 4)[3])
        return Learned(state, *curves, chosen)

    return learn


def _play(
    bandit: Bandit, state: Any, part: Replay, key: Key, batch: int
) -> tuple[Any, Float[Array, ""]]:
    """One pass over the questions in their order; also the mean reward of what was played."""
    total, count = jnp.zeros(()), len(part.contexts)
    whole = count - count % batch
    for start, stop in ((0, whole), (whole, count)):
        if stop > start:
            played = interact(
                bandit,
                state,
                part.contexts[start:stop],
                part.rewards[start:stop],
                jax.random.fold_in(key, start),
                batch=min(batch, stop - start),
            )
            state, total = played.state, total + played.rewards.sum()
    return state, total / count
