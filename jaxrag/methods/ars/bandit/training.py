"""Training a bandit from a table of stored rewards, without a language model.

ARS-RAG's protocol (docs/methods, "ARS-RAG: bandit (NeuralUCB)"). The table holds the reward of
every question under every arm, but the bandit is shown only that of the arm it plays. A seed
determines initial weights, order and random draws; it means the same under all reward schemes, and
one compiled program serves all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.interaction import Bandit, interact, rewards_of
from jaxrag.methods.ars.bandit.reward_table import RewardTable
from jaxrag.methods.ars.bandit.settings import (
    BanditTraining,
    NeuralUcb,
    Policy,
    ReleasedNeuralUcb,
    RewardScheme,
)
from jaxrag.methods.ars.bandit.trained import TrainedBandit, normalized, principal_axes
from jaxrag.types import InputError

Key = jax.Array


class Replay(NamedTuple):
    """Questions of one part (training or test) with the reward of every arm."""

    contexts: Float[Array, "q d"]
    rewards: Float[Array, "q a"]


class BanditResult(NamedTuple):
    """Result of one training.

    Attributes:
      played: mean reward while learning, by epoch.
      train, test: mean reward of the greedy policy after each epoch, by part.
      chosen: K of every test question after the last epoch, from 1.
      bandit: the trained networks, None for a policy without them; of `program`, the policy's
        state.
    """

    played: Float[Array, " e"] | Float[np.ndarray, " e"]
    train: Float[Array, " e"] | Float[np.ndarray, " e"]
    test: Float[Array, " e"] | Float[np.ndarray, " e"]
    chosen: Int[Array, " q"] | Int[np.ndarray, " q"]
    bandit: Any


class Contexts(NamedTuple):
    """A table's contexts as networks take them, and the axes that they were projected onto."""

    rows: Float[Array, "q r"]
    axes: Float[Array, "d r"] | None


def contexts_of(table: RewardTable, dimensions: int) -> Contexts:
    """The contexts of all questions, projected onto ``dimensions`` principal axes of the training
    questions alone; 0 does not project. InputError where these are too few.
    """
    axes = None
    if dimensions:
        axes = jnp.asarray(principal_axes(table.contexts[table.train], dimensions))
    return Contexts(normalized(jnp.asarray(table.contexts), axes), axes)


def train(
    table: RewardTable,
    contexts: Contexts,
    scheme: RewardScheme,
    policy: Policy,
    training: BanditTraining,
    *,
    seed: int,
) -> BanditResult:
    """Trains once; equal arguments give bit-identical results. InputError if table and settings do
    not fit, or the networks diverged.
    """
    rewards = scheme.rewards(table.base)
    parts = [
        Replay(contexts.rows[rows], jnp.asarray(rewards[rows]))
        for rows in (table.train, ~table.train)
    ]
    shapes = tuple(part.contexts.shape for part in parts)
    with _COMPILING:  # so that parallel threads compile a program once
        learn = _compiled(policy, dataclasses.replace(training, dimensions=0), table.arms, shapes)
    *curves, chosen, state = learn(jax.random.key(seed), *parts)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state)):
        raise InputError(
            f"{policy.name} diverged on {table.name}, {scheme.name}, seed {seed}: its weights are "
            f"no longer finite after {training.epochs} epochs. Lower the learning rate."
        )
    played, train, test = (np.asarray(curve, np.float64) for curve in curves)
    bandit = None
    if isinstance(policy, NeuralUcb | ReleasedNeuralUcb):
        size, encoder = table.contexts.shape[1], table.config["encoder"]
        shared = isinstance(policy, ReleasedNeuralUcb)
        bandit = TrainedBandit(table.arms, size, (policy.width,), state.params, contexts.axes,
                               encoder, table.source, shared)  # fmt: skip
    return BanditResult(played, train, test, np.asarray(chosen), bandit)


_COMPILING = threading.Lock()


@functools.lru_cache(maxsize=16)
def _compiled(
    policy: Policy, training: BanditTraining, arms: int, shapes: tuple[tuple[int, ...], ...]
) -> Callable[..., BanditResult]:
    learn = program(
        policy.bandit(shapes[0][1], arms, training.batch),
        epochs=training.epochs,
        batch=training.batch,
    )
    like = [Replay(jnp.zeros((q, d)), jnp.zeros((q, arms))) for q, d in shapes]
    return jax.jit(learn).lower(jax.random.key(0), *like).compile()


def program(
    bandit: Bandit, *, epochs: int, batch: int
) -> Callable[[Key, Replay, Replay], BanditResult]:
    """The training as a pure function of key, training part and test part; jit it once.

    Every epoch plays the training questions once in a new random order; a remainder after whole
    batches is one smaller batch.
    """

    def greedy(state: Any, part: Replay) -> Int[Array, " q"]:
        return jax.vmap(bandit.greedy, (None, 0))(state, part.contexts)

    def learn(key: Key, train: Replay, test: Replay) -> BanditResult:
        def epoch(state: Any, key: Key) -> tuple[Any, tuple[Array, Array, Array]]:
            order, play = jax.random.split(key)
            turn = jax.random.permutation(order, len(train.contexts))
            shuffled = Replay(train.contexts[turn], train.rewards[turn])
            state, won = _play(bandit, state, shuffled, play, batch)
            means = [rewards_of(part.rewards, greedy(state, part)).mean() for part in (train, test)]
            return state, (won, means[0], means[1])

        first, rest = jax.random.split(key)
        keys = jax.random.split(rest, epochs)
        state, curves = lax.scan(epoch, bandit.init(first), keys)
        return BanditResult(*curves, 1 + greedy(state, test), state)

    return learn


def _play(
    bandit: Bandit, state: Any, part: Replay, key: Key, batch: int
) -> tuple[Any, Float[Array, ""]]:
    """One pass over the questions in their order; the new state and the mean reward."""
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
