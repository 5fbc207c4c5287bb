"""Contextual bandits as pure functions over a state: the interface, the interaction, and the ends.

Every round a context x is shown, one of a arms is played, and only its reward is seen. A policy is
a `Bandit`, six functions over a state pytree; `interact` plays it against a table of rewards under
one `lax.scan`, and the caller jits it and vmaps it over seeds, states or settings. A table holds
the reward of every arm in every round, so what could have been won is known, too.

Policies: `neural_ucb.neural_ucb` with its presets, `linear_ucb.linear_ucb`, and those of
`jaxrag.functional.bandits.policies`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxrag.types import InputError

_AHEAD = 8
"""Rounds played at once between fits: enough to share a pass over the weights, few to correct."""

Key = jax.Array
State = Any
"""A pytree of arrays; each policy has its own."""


class Values(NamedTuple):
    """What a policy thinks of each arm in one context.

    Attributes:
      mean: f, the expected reward.
      width: sigma, how unsure it is (eq 10: sqrt(g' Z^-1 g)), before any exploration factor.
      ucb: f + beta sigma (eq 11); `ucb - mean` is what exploration adds.
    """

    mean: Float[Array, " a"]
    width: Float[Array, " a"]
    ucb: Float[Array, " a"]


class Bandit(NamedTuple):
    """A policy as pure functions over a state; jit, vmap and scan are the caller's.

    Attributes:
      init: key -> state.
      values: state, context [d] -> `Values` of all arms.
      select: state, context [d], key -> the arm to play, from 0. Deterministic policies ignore the
        key; of equal arms the first is played.
      update: state, context [d], arm, reward -> state after one round.
      fit: state, key -> state: trains the networks on what was played; the identity without any.
      greedy: state, context [d] -> the arm of the highest mean: for evaluation, no exploration.
      update_batch: state, contexts [b d], arms [b], rewards [b] -> state; what ``update`` gives one
        round after the other, faster. None where batches are no faster: then the rounds of a batch
        are chosen and learnt one by one.
      rounds: state, contexts [b d], rewards [b a], keys [b] -> state and arms [b]; what ``select``
        and ``update`` give round after round, each seeing the one before, faster: it may look at
        the contexts ahead. None where there is no such way.
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
    """What `interact` returns: the last state, and each round's arm and reward in order."""

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

    A batch chooses all its arms with the state at its beginning, then learns its rounds in order.
    With a batch of 1 that is the algorithm of the papers; 32 is how ARS trains.

    Args:
      bandit: the policy.
      state: where it stands, at first ``bandit.init(key)``.
      contexts: one a round.
      rewards: of every arm in every round; only the played arm's is shown to the policy.
      key: for policies and fits that draw.
      batch: rounds to a batch; t must be a multiple of it.
      fit_every: rounds from one fit to the next, by default one batch; a multiple of ``batch``
        that divides t. Rounds between fits that are not in batches are played 8 at a time where
        the policy can (`Bandit.rounds`): the same arms, sooner.

    Raises:
      InputError: the rounds do not divide into batches, or the two tables disagree on them.
    """
    rounds, every = len(contexts), batch if fit_every is None else fit_every
    if len(rewards) != rounds:
        raise InputError(f"{rounds} contexts but rewards for {len(rewards)}: one row a round each.")
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
        return _learn(bandit, state, contexts, arms, won(rewards, arms)), arms

    def stretch(state: State, xs: tuple[Any, Key]) -> tuple[State, Array]:
        if every == size:  # no loop of one step: XLA copies what such a loop would update in place
            state, arms = play(state, jax.tree.map(lambda leaf: leaf[0], xs[0]))
        else:
            state, arms = lax.scan(play, state, xs[0])
        return bandit.fit(state, xs[1]), arms

    lead = (rounds // every, every // size, size)
    for_select, for_fit = jax.random.split(key)
    seen = (contexts.reshape(*lead, -1), rewards.reshape(*lead, -1))
    xs = ((*seen, jax.random.split(for_select, lead)), jax.random.split(for_fit, lead[0]))
    state, arms = lax.scan(stretch, state, xs)
    arms = arms.reshape(-1)
    return Played(state, arms, won(rewards, arms))


def won(rewards: Float[Array, "t a"], arms: Int[Array, " t"]) -> Float[Array, " t"]:
    """What the played arms paid in each round."""
    return jnp.take_along_axis(rewards, arms[:, None], axis=1)[:, 0]


def _choose(bandit: Bandit, state: State, contexts: Array, keys: Key) -> Int[Array, " b"]:
    if len(contexts) == 1:  # one alone is not batched, which XLA runs faster
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


def check_table(contexts: Any, rewards: Any, arms: int) -> None:
    """Refuses a table of rewards that no bandit can learn from.

    Args:
      contexts: [q d], finite.
      rewards: [q a], finite: an arm that was not tried has no place in the table.
      arms: how many the policy has.

    Raises:
      InputError: naming the first thing wrong.
    """
    contexts, rewards = np.asarray(contexts), np.asarray(rewards)
    if contexts.ndim != 2 or rewards.ndim != 2:
        raise InputError(
            f"contexts of shape {contexts.shape} and rewards of {rewards.shape}: needed are "
            "[questions, features] and [questions, arms]."
        )
    if len(contexts) != len(rewards):
        raise InputError(
            f"{len(contexts)} contexts but {len(rewards)} rows of rewards: give one row a context."
        )
    if rewards.shape[1] != arms:
        raise InputError(
            f"the rewards have {rewards.shape[1]} arms, the bandit {arms}: make the bandit for "
            "the table's arms (one for each number of rewrites)."
        )
    for name, table in (("contexts", contexts), ("rewards", rewards)):
        if not np.isfinite(table).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(table))[0])
            raise InputError(
                f"{name}{list(at)} is {table[at]}: every entry must be finite; leave that row out "
                "or compute it again."
            )
