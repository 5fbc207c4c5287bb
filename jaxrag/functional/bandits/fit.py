"""Training of a neural bandit's networks: a replay buffer, and gradient steps on it.

The buffer is a ring: once full, the newest play replaces the oldest. `replay_fit` takes a bounded
number of steps of any optax optimiser on the squared error of the arms that were played. A
`Sampler` chooses the plays of each step: the newest, or all in shuffled passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxrag.functional.bandits.networks import Network, Params
from jaxrag.types import InputError


class Buffer(NamedTuple):
    """Plays in a ring of fixed capacity; play i of all ``count`` is at i modulo the capacity."""

    contexts: Float[Array, "n d"]
    arms: Int[Array, " n"]
    rewards: Float[Array, " n"]
    count: Int[Array, ""]

    @property
    def held(self) -> Int[Array, ""]:
        """Number of plays held."""
        return jnp.minimum(self.count, len(self.arms))


def empty(capacity: int, d: int) -> Buffer:
    """A buffer for ``capacity`` plays with contexts of d features."""
    zero = jnp.zeros((), jnp.int32)
    return Buffer(
        jnp.zeros((capacity, d)), jnp.zeros(capacity, jnp.int32), jnp.zeros(capacity), zero
    )


def append(
    buffer: Buffer,
    contexts: Float[Array, "b d"],
    arms: Int[Array, " b"],
    rewards: Float[Array, " b"],
    *,
    where: Bool[Array, " b"] | None = None,
) -> Buffer:
    """Appends the plays of ``where`` (by default all) in order; InputError if b > capacity."""
    capacity = len(buffer.arms)
    if len(arms) > capacity:
        raise InputError(
            f"a batch of {len(arms)} rounds does not fit the replay buffer's {capacity}: "
            "raise its capacity to the batch at least."
        )
    where = jnp.ones(len(arms), bool) if where is None else where
    at = (buffer.count + jnp.cumsum(where) - 1) % capacity
    at = jnp.where(where, at, capacity)  # beyond the end: dropped
    return Buffer(
        buffer.contexts.at[at].set(contexts, mode="drop"),
        buffer.arms.at[at].set(arms.astype(jnp.int32), mode="drop"),
        buffer.rewards.at[at].set(rewards, mode="drop"),
        buffer.count + jnp.sum(where, dtype=jnp.int32),
    )


class Minibatches(NamedTuple):
    """Order in which a fit goes through the buffer.

    Attributes:
      rows: step -> rows of the buffer that it trains on [m], and which of them count [m].
      steps: steps of one pass.
    """

    rows: Callable[[Array], tuple[Int[Array, " m"], Bool[Array, " m"]]]
    steps: Int[Array, ""]


Sampler = Callable[[Buffer, jax.Array], Minibatches]


def newest(m: int) -> Sampler:
    """Each step trains on the newest m plays: ARS trains on the batch just played."""

    def sample(buffer: Buffer, key: jax.Array) -> Minibatches:
        back = buffer.count - 1 - jnp.arange(min(m, len(buffer.arms)))
        rows = back % len(buffer.arms), back >= jnp.maximum(buffer.count - len(buffer.arms), 0)
        return Minibatches(lambda step: rows, jnp.ones((), jnp.int32))

    return sample


def shuffled(m: int) -> Sampler:
    """Passes over all plays held, m per step, in one random order for the whole fit."""

    def sample(buffer: Buffer, key: jax.Array) -> Minibatches:
        rows = jnp.arange(len(buffer.arms))
        draws = jnp.where(rows < buffer.held, jax.random.uniform(key, rows.shape), jnp.inf)
        order, steps = jnp.argsort(draws), jnp.maximum(-(-buffer.held // m), 1)

        def at(step: Array) -> tuple[Array, Array]:
            places = (step % steps) * m + jnp.arange(m)
            return order[jnp.minimum(places, len(order) - 1)], places < buffer.held

        return Minibatches(at, steps)

    return sample


class Fit(NamedTuple):
    """Training as pure functions.

    Attributes:
      capacity: of the replay buffer.
      init: parameters -> state of the optimiser.
      run: state, parameters, buffer, key -> state, parameters, and number of steps.
    """

    capacity: int
    init: Callable[[Params], Any]
    run: Callable[[Any, Params, Buffer, jax.Array], tuple[Any, Params, Array]]


class _Loop(NamedTuple):
    params: Params
    optimizer: Any
    step: Int[Array, ""]
    error: Float[Array, ""]  # sum over the pass so far
    done: Bool[Array, ""]


def replay_fit(
    network: Network,
    optimizer: optax.GradientTransformation,
    *,
    capacity: int,
    sampler: Sampler,
    steps: int = 1,
    tolerance: float | Float[Array, ""] = 0.0,
) -> Fit:
    """Gradient steps on the mean squared error of played arms, from the last fit's weights.

    InputError if capacity or steps are below 1.

    Args:
      optimizer: of optax; for weight decay add `optax.add_decayed_weights`.
      capacity: plays that the buffer holds.
      sampler: chooses the plays of each step.
      steps: the most that a fit takes.
      tolerance: a fit ends after a pass whose mean squared error is at most this.
    """
    if capacity < 1 or steps < 1:
        raise InputError(f"capacity {capacity} and {steps} steps: both must be at least 1.")

    def objective(params: Params, buffer: Buffer, rows: Array, where: Array) -> tuple[Array, Array]:
        predicted = _predicted(network, params, buffer.contexts[rows], buffer.arms[rows])
        total = jnp.sum(jnp.where(where, predicted - buffer.rewards[rows], 0.0) ** 2)
        return total / jnp.maximum(jnp.sum(where), 1), total

    def run(
        state: Any, params: Params, buffer: Buffer, key: jax.Array
    ) -> tuple[Any, Params, Array]:
        batches = sampler(buffer, key)

        def step(loop: _Loop) -> _Loop:
            rows, where = batches.rows(loop.step)
            gradient, error = jax.grad(objective, has_aux=True)(loop.params, buffer, rows, where)
            change, state = optimizer.update(gradient, loop.optimizer, loop.params)
            error, ends = loop.error + error, (loop.step + 1) % batches.steps == 0
            size = jnp.maximum(jnp.where(batches.steps > 1, buffer.held, jnp.sum(where)), 1)
            return _Loop(
                optax.apply_updates(loop.params, change),
                state,
                loop.step + 1,
                jnp.where(ends, 0.0, error),
                ends & (error / size <= tolerance),
            )

        zero = jnp.zeros((), jnp.int32)
        loop = _Loop(params, state, zero, jnp.zeros(()), jnp.zeros((), bool))
        if steps == 1:
            loop = step(loop)
        else:
            loop = lax.while_loop(lambda loop: (loop.step < steps) & ~loop.done, step, loop)
        return loop.optimizer, loop.params, loop.step

    return Fit(capacity, optimizer.init, run)


def _predicted(
    network: Network, params: Params, contexts: Array, arms: Array
) -> Float[Array, " m"]:
    """Rewards of the played arms. One play reads its arm's weights, several those of all arms."""
    if len(arms) == 1:
        return network.apply(network.view(params, arms[0]), contexts[0])[None]
    rewards = jax.vmap(network.rewards, (None, 0))(params, contexts)
    return jnp.take_along_axis(rewards, arms[:, None], axis=1)[:, 0]
