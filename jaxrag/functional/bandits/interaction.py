"""Contextual bandits as pure functions over a state: the interface, and interaction with a table.

In each round the policy sees a context x, plays one of a arms, and observes only that arm's reward.
A policy is a `Bandit`, functions over a state pytree; `interact` plays it against a table of
rewards, of every arm in every round, under one `lax.scan`. The caller jits it and vmaps it over
seeds, states or settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxrag.types import InputError

_AHEAD = 8
"""Rounds of one pass over the weights between fits, see `Bandit.rounds`."""

Key = jax.Array
State = Any
"""A pytree of arrays; each policy has its own."""


class Values(NamedTuple):
    """A policy's values of the arms in one context.

    Attributes:
      mean: f, the expected reward.
      width: sigma, its uncertainty, before any exploration factor (eq 10: sqrt(g' Z^-1 g)).
      ucb: upper confidence bound f + beta sigma (eq 11).
    """

    mean: Float[Array, " a"]
    width: Float[Array, " a"]
    ucb: Float[Array, " a"]


class Bandit(NamedTuple):
    """A policy as pure functions over a state; jit, vmap and scan are the caller's.

    Attributes:
      init: key -> state.
      values: state, context [d] -> `Values` of all arms.
      select: state, context [d], key -> the arm to play, from 0; ties go to the first.
        Deterministic policies ignore the key.
      update: state, context [d], arm, reward -> state after one round.
      fit: state, key -> state: trains the networks; the identity for policies without networks.
      greedy: state, context [d] -> the arm of the highest mean, for evaluation.
      update_batch: state, contexts [b d], arms [b], rewards [b] -> state; equals ``update`` round
        by round, but faster. None if it would not be faster: the rounds of a batch are then
        selected and updated one by one.
      rounds: state, contexts [b d], rewards [b a], keys [b] -> state and arms [b]; equals
        ``select`` and ``update`` round by round, but faster, as all contexts are known. None if
        there is no such implementation.
    """

    init: Callable[[Key], State]
    values: Callable[[State, Array], Values]
    select: Callable[[State, Array, Key], Array]
    update: Callable[[State, Array, Array, Array], State]
    fit: Callable[[State, Key], State]
    greedy: Callable[[State, Array], Array]
    update_batch: Callable[[State, Array, Array, Array], State] | None = None
    rounds: Callable[[State, Array, Array, Key], tuple[State, Array]] | None = None


class Played(NamedTuple):
    """Result of `interact`: the last state, and arm and reward of each round."""

    state: State
    arms: Int[Array, " t"]
    rewards: Float[Array, " t"]


def interact(
    bandit: Bandit,
    state: State,
    contexts: Float[Array, "t d"],
    rewards: Float[Array, "t a"],
    key: Key,
    *,
    batch: int = 1,
    fit_every: int | None = None,
) -> Played:
    """Plays t rounds against a table of rewards: select, update, fit.

    The arms of a batch are all selected with the state at its beginning; then its rounds are
    learned in order. A batch of 1 is the algorithm of the papers, 32 is how ARS trains. InputError
    if ``batch`` or ``fit_every`` do not divide, or the tables differ in length.

    Args:
      bandit: the policy.
      state: of the policy, at first ``bandit.init(key)``.
      contexts: of each round.
      rewards: of every arm in every round; the policy observes only that of the arm it plays.
      key: of random policies and fits.
      batch: rounds of a batch; must divide t.
      fit_every: rounds from one fit to the next, by default one batch; a multiple of ``batch``
        that divides t.
    """
    rounds, every = len(contexts), batch if fit_every is None else fit_every
    if len(rewards) != rounds:
        raise InputError(
            f"{rounds} contexts but {len(rewards)} rows of rewards: one per round each."
        )
    if batch < 1 or rounds % batch:
        raise InputError(
            f"{rounds} rounds do not divide into batches of {batch}: leave some out or repeat some."
        )
    if every < 1 or rounds % every or every % batch:
        raise InputError(
            f"a fit every {every} rounds: it must divide the {rounds} rounds, and be a multiple of "
            f"the batch of {batch}."
        )
    ahead = math.gcd(every, _AHEAD) if batch == 1 and bandit.rounds is not None else 1
    size = max(batch, ahead)

    def play(state: State, xs: tuple[Array, Array, Key]) -> tuple[State, Array]:
        contexts, rewards, keys = xs
        if ahead > 1 and bandit.rounds is not None:
            return bandit.rounds(state, contexts, rewards, keys)
        arms = _choose(bandit, state, contexts, keys)
        return _learn(bandit, state, contexts, arms, rewards_of(rewards, arms)), arms

    def until_fit(state: State, xs: tuple[Any, Key]) -> tuple[State, Array]:
        if every == size:  # no loop of one step: XLA copies what such a loop would update in place
            state, arms = play(state, jax.tree.map(lambda leaf: leaf[0], xs[0]))
        else:
            state, arms = lax.scan(play, state, xs[0])
        return bandit.fit(state, xs[1]), arms

    lead = (rounds // every, every // size, size)
    for_select, for_fit = jax.random.split(key)
    table = (contexts.reshape(*lead, -1), rewards.reshape(*lead, -1))
    xs = ((*table, jax.random.split(for_select, lead)), jax.random.split(for_fit, lead[0]))
    state, arms = lax.scan(until_fit, state, xs)
    arms = arms.reshape(-1)
    return Played(state, arms, rewards_of(rewards, arms))


def rewards_of(rewards: Float[Array, "t a"], arms: Int[Array, " t"]) -> Float[Array, " t"]:
    """The reward of each round's arm."""
    return jnp.take_along_axis(rewards, arms[:, None], axis=1)[:, 0]


def _choose(bandit: Bandit, state: State, contexts: Array, keys: Key) -> Int[Array, " b"]:
    if len(contexts) == 1:  # XLA runs it faster without a batch axis
        return bandit.select(state, contexts[0], keys[0])[None]
    if bandit.update_batch is not None:
        return jax.vmap(bandit.select, (None, 0, 0))(state, contexts, keys)
    return lax.map(lambda xs: bandit.select(state, *xs), (contexts, keys))


def _learn(bandit: Bandit, state: State, contexts: Array, arms: Array, rewards: Array) -> State:
    if len(contexts) == 1:
        return bandit.update(state, contexts[0], arms[0], rewards[0])
    if bandit.update_batch is not None:
        return bandit.update_batch(state, contexts, arms, rewards)
    step = lambda state, seen: (bandit.update(state, *seen), None)  # noqa: E731
    return lax.scan(step, state, (contexts, arms, rewards))[0]
