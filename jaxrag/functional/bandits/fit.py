"""How a neural bandit's networks learn: a buffer of what was played, and gradient steps on it.

The buffer is a ring: once full, the newest play takes the oldest one's place. `replay_fit` takes
bounded steps of any optax optimiser on the squared error of the arms that were played, each step
on the plays that a `Sampler` gives it: the newest, all, or pass after pass in shuffled order.
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
    """What was played, in a ring of fixed capacity.

    Attributes:
      contexts, arms, rewards: of the rounds held.
      count: rounds ever appended; round i stands at i modulo the capacity.
    """

    contexts: Float[Array, "n d"]
    arms: Int[Array, " n"]
    rewards: Float[Array, " n"]
    count: Int[Array, ""]

    @property
    def held(self) -> Int[Array, ""]:
        """How many rounds are in it."""
        return jnp.minimum(self.count, len(self.arms))


def empty(capacity: int, d: int) -> Buffer:
    """A buffer for ``capacity`` rounds with contexts of d features."""
    return Buffer(
        jnp.zeros((capacity, d)),
        jnp.zeros(capacity, jnp.int32),
        jnp.zeros(capacity),
        jnp.zeros((), jnp.int32),
    )


def append(
    buffer: Buffer,
    contexts: Float[Array, "b d"],
    arms: Int[Array, " b"],
    rewards: Float[Array, " b"],
) -> Buffer:
    """The buffer with b more rounds, in order; b must not be more than it holds."""
    if len(arms) > len(buffer.arms):
        raise InputError(
            f"a batch of {len(arms)} rounds does not fit the replay buffer's {len(buffer.arms)}: "
            "raise its capacity to the batch at least."
        )
    at = (buffer.count + jnp.arange(len(arms))) % len(buffer.arms)
    return Buffer(
        buffer.contexts.at[at].set(contexts),
        buffer.arms.at[at].set(arms.astype(jnp.int32)),
        buffer.rewards.at[at].set(rewards),
        buffer.count + len(arms),
    )


class Draw(NamedTuple):
    """How a fit goes through the buffer.

    Attributes:
      rows: step -> the rows of the buffer that it learns from [m], and which of them count [m].
      steps: how many steps make one pass.
    """

    rows: Callable[[Array], tuple[Int[Array, " m"], Bool[Array, " m"]]]
    steps: Int[Array, ""]


Sampler = Callable[[Buffer, jax.Array], Draw]


def newest(m: int) -> Sampler:
    """Each step learns from the newest m plays: ARS trains on the batch just played."""

    def draw(buffer: Buffer, key: jax.Array) -> Draw:
        back = buffer.count - 1 - jnp.arange(min(m, len(buffer.arms)))
        rows = back % len(buffer.arms), back >= jnp.maximum(buffer.count - len(buffer.arms), 0)
        return Draw(lambda step: rows, jnp.ones((), jnp.int32))

    return draw


def everything() -> Sampler:
    """Each step learns from all plays held (gradient descent, Zhou et al.'s algorithm 2)."""

    def draw(buffer: Buffer, key: jax.Array) -> Draw:
        rows = jnp.arange(len(buffer.arms))
        return Draw(lambda step: (rows, rows < buffer.held), jnp.ones((), jnp.int32))

    return draw


def shuffled(m: int) -> Sampler:
    """Pass after pass over the plays held, m a step, in one random order a fit."""

    def draw(buffer: Buffer, key: jax.Array) -> Draw:
        rows = jnp.arange(len(buffer.arms))
        lots = jnp.where(rows < buffer.held, jax.random.uniform(key, rows.shape), jnp.inf)
        order, steps = jnp.argsort(lots), jnp.maximum(-(-buffer.held // m), 1)

        def at(step: Array) -> tuple[Array, Array]:
            places = (step % steps) * m + jnp.arange(m)
            return order[jnp.minimum(places, len(order) - 1)], places < buffer.held

        return Draw(at, steps)

    return draw


class Fit(NamedTuple):
    """Training as pure functions.

    Attributes:
      capacity: of the replay buffer.
      init: parameters -> what training keeps (moments of the optimiser, initial weights).
      run: kept, parameters, buffer, key -> kept, parameters, and the steps taken.
    """

    capacity: int
    init: Callable[[Params], Any]
    run: Callable[[Any, Params, Buffer, jax.Array], tuple[Any, Params, Array]]


class Kept(NamedTuple):
    """State of training: the optimiser's, and the initial weights where they are needed."""

    optimizer: Any
    initial: Params | None


class _Loop(NamedTuple):
    params: Params
    optimizer: Any
    step: Int[Array, ""]
    error: Float[Array, ""]  # summed over the pass so far
    done: Bool[Array, ""]


def replay_fit(
    network: Network,
    optimizer: optax.GradientTransformation,
    *,
    capacity: int,
    sampler: Sampler,
    steps: int = 1,
    tolerance: float | Float[Array, ""] = 0.0,
    anchor: float | Float[Array, ""] | None = None,
    restart: bool = False,
    loss: Callable[[Array, Array], Array] | None = None,
) -> Fit:
    """Gradient steps on what was played, until a pass's mean squared error is small or steps end.

    Args:
      network: whose weights are trained.
      optimizer: of optax; weight decay towards 0 is its `optax.add_decayed_weights`.
      capacity: plays that the buffer holds.
      sampler: which of them a step learns from.
      steps: the most that a fit takes.
      tolerance: a fit ends after a pass whose mean squared error is not above it.
      anchor: adds anchor / 2 |theta - theta_0|^2 to the loss, theta_0 the initial weights: m
        lambda in Zhou et al.
      restart: every fit starts from the initial weights and a fresh optimiser, as Zhou et al.
        write; otherwise from where the last one ended.
      loss: errors [m], which count [m] -> scalar; by default `mean_squared`.

    Raises:
      InputError: no room, no steps.
    """
    if capacity < 1 or steps < 1:
        raise InputError(f"capacity {capacity} and {steps} steps: both must be at least 1.")
    measure = loss or mean_squared

    def objective(params: Params, initial: Params, seen: tuple) -> tuple[Array, Array]:
        contexts, arms, rewards, where = seen
        errors = jnp.where(where, _predicted(network, params, contexts, arms) - rewards, 0.0)
        value = measure(errors, where)
        if anchor is not None:
            moved = jax.tree.map(lambda now, then: jnp.sum((now - then) ** 2), params, initial)
            value += anchor / 2 * sum(jax.tree.leaves(moved))
        return value, jnp.sum(errors**2)

    def run(
        kept: Kept, params: Params, buffer: Buffer, key: jax.Array
    ) -> tuple[Kept, Params, Array]:
        draw = sampler(buffer, key)

        def step(loop: _Loop) -> _Loop:
            rows, where = draw.rows(loop.step)
            seen = (buffer.contexts[rows], buffer.arms[rows], buffer.rewards[rows], where)
            slope, error = jax.grad(objective, has_aux=True)(loop.params, kept.initial, seen)
            change, state = optimizer.update(slope, loop.optimizer, loop.params)
            error, ends = loop.error + error, (loop.step + 1) % draw.steps == 0
            size = jnp.maximum(jnp.where(draw.steps > 1, buffer.held, jnp.sum(where)), 1)
            return _Loop(
                optax.apply_updates(loop.params, change),
                state,
                loop.step + 1,
                jnp.where(ends, 0.0, error),
                ends & (error / size <= tolerance),
            )

        if restart:
            params = kept.initial
            kept = kept._replace(optimizer=optimizer.init(params))
        zero = jnp.zeros((), jnp.int32)
        loop = _Loop(params, kept.optimizer, zero, jnp.zeros(()), jnp.zeros((), bool))
        if steps == 1:
            loop = step(loop)
        else:
            loop = lax.while_loop(lambda loop: (loop.step < steps) & ~loop.done, step, loop)
        return kept._replace(optimizer=loop.optimizer), loop.params, loop.step

    def init(params: Params) -> Kept:
        return Kept(optimizer.init(params), params if restart or anchor is not None else None)

    return Fit(capacity, init, run)


def mean_squared(errors: Float[Array, " m"], where: Bool[Array, " m"]) -> Float[Array, ""]:
    """Mean of the squared errors of the rows that count; 0 where none does."""
    return jnp.sum(errors**2) / jnp.maximum(jnp.sum(where), 1)


def half_sum_squared(errors: Float[Array, " m"], where: Bool[Array, " m"]) -> Float[Array, ""]:
    """Half the sum of the squared errors (Zhou et al. eq 2.1 without its second term)."""
    return jnp.sum(errors**2) / 2


def _predicted(
    network: Network, params: Params, contexts: Array, arms: Array
) -> Float[Array, " m"]:
    """Rewards of the arms played. One play reads its arm's weights; many, all arms at once."""
    if len(arms) == 1:
        return network.apply(network.view(params, arms[0]), contexts[0])[None]
    rewards = jax.vmap(network.rewards, (None, 0))(params, contexts)
    return jnp.take_along_axis(rewards, arms[:, None], axis=1)[:, 0]
