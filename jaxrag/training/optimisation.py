"""Shared parts of all training: learning rate, optimiser, training step, checks of settings.

One device and eight give the same bits (see `jaxrag.training.grad_cache`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxrag.training import grad_cache
from jaxrag.types import InputError

Decay = Literal["linear", "cosine", "constant"]
Optimiser = Literal["adamw", "adafactor"]


def learning_rate(peak: float, steps: int, *, warmup: int, decay: Decay) -> optax.Schedule:
    """The learning rate of each step.

    It rises linearly over ``warmup`` steps, from peak / (warmup + 1) at step 0 (so that no step has
    rate 0) to the peak. Then it falls to 0 at step ``steps``, linearly or along half a cosine, or
    stays.
    """
    rest = max(steps - warmup, 1)
    if decay == "linear":
        after = optax.linear_schedule(peak, 0.0, rest)
    elif decay == "cosine":
        after = optax.cosine_decay_schedule(peak, rest)
    else:
        after = optax.constant_schedule(peak)
    rise = optax.linear_schedule(peak / (warmup + 1), peak, warmup)
    return optax.join_schedules([rise, after], [warmup]) if warmup else after


def make_optimiser(
    rate: float | optax.Schedule,
    *,
    weight_decay: float,
    clip: float,
    algorithm: Optimiser = "adamw",
) -> optax.GradientTransformation:
    """AdamW or Adafactor, on a gradient clipped by its norm.

    AdamW is Loshchilov & Hutter (2019). Adafactor is Shazeer & Stern (2018): second moments of
    matrices factored, no momentum, updates clipped to a root mean square of 1; steps do not scale
    with the parameters, so that ``rate`` is the step size.

    Args:
      rate: learning rate.
      weight_decay: decoupled, times the rate, on all parameters.
      clip: largest global norm of the gradient; 0 does not clip.
      algorithm: which of the two.
    """
    if algorithm == "adamw":
        inner = optax.adamw(rate, weight_decay=weight_decay)
    else:
        decayed = [optax.add_decayed_weights(weight_decay)] if weight_decay else []
        inner = optax.chain(
            optax.scale_by_factored_rms(),
            optax.clip_by_block_rms(1.0),
            *decayed,
            optax.scale_by_learning_rate(rate),
        )
    return optax.chain(optax.clip_by_global_norm(clip), inner) if clip else inner


def check_length(steps: int, epochs: float, seed: int) -> None:
    """Checks length and seed of a training; InputError names a value out of range."""
    if steps < 0 or not 0 < epochs < math.inf or seed < 0:
        raise InputError(
            f"steps is {steps}, epochs {epochs} and seed {seed}: epochs must be above 0, the "
            "others 0 or more."
        )


def check_optimiser(settings: Any, *names: str) -> None:
    """Checks ``learning_rate`` and the named settings, which may be 0.

    Raises:
      InputError: the learning rate is not above 0, another is below 0, or one is not finite.
    """
    if not 0 < settings.learning_rate < math.inf:
        raise InputError(f"learning_rate is {settings.learning_rate}; it must be above 0.")
    for name in names:
        if not 0 <= getattr(settings, name) < math.inf:
            raise InputError(f"{name} is {getattr(settings, name)}; it must be 0 or more.")


class TrainState(NamedTuple):
    """State of a training: parameters and the optimiser's state."""

    params: Any
    optimiser: Any


class TrainStep(NamedTuple):
    """The functions of one training step.

    Attributes:
      begin: parameters -> initial state, replicated over all devices.
      update: (state, batch of NumPy arrays, number of the step) -> (state, metrics); donates the
        given state.
      programs: compiled functions that ``update`` calls for the gradients.
      apply: the last of them, (state, gradients) -> (state, norm of the gradient), on one device;
        donates the given state.
    """

    begin: Callable[[Any], TrainState]
    update: Callable[[TrainState, Any, int], tuple[TrainState, dict[str, Any]]]
    programs: grad_cache.Programs
    apply: Callable[[TrainState, Any], tuple[TrainState, jax.Array]]


def make_step(
    optimiser: optax.GradientTransformation,
    embed: grad_cache.Embed,
    loss: grad_cache.Loss,
    *,
    microbatch: int,
    mesh: Mesh,
    prepare: Callable[[Any, int], Any],
    metrics: Callable[[Any], Mapping[str, Any]] = lambda batch: {},
) -> TrainStep:
    """A step whose metrics are "loss", "norm" (of the gradient) and those of the batch.

    Args:
      optimiser: optax transformation, including the learning rate.
      embed: see `grad_cache.Embed`.
      loss: see `grad_cache.Loss`.
      microbatch: rows that pass through the network at a time.
      mesh: see `grad_cache.data_mesh`.
      prepare: (batch, number of the step) -> the batch for ``embed`` and ``loss``; the first axis
        of every array is the batch's rows. See `with_step`.
      metrics: further metrics, from the prepared batch.
    """
    programs = grad_cache.make_programs(embed, loss, mesh)
    gradient = grad_cache.make_gradient(programs, mesh)

    @partial(jax.jit, donate_argnums=0)
    def apply(state: TrainState, gradients: Any) -> tuple[TrainState, jax.Array]:
        updates, inner = optimiser.update(gradients, state.optimiser, state.params)
        params: Any = optax.apply_updates(state.params, updates)
        return TrainState(params, inner), optax.tree.norm(gradients)

    def begin(params: Any) -> TrainState:
        return grad_cache.replicate(TrainState(params, optimiser.init(params)), mesh)

    def update(state: TrainState, batch: Any, number: int) -> tuple[TrainState, dict[str, Any]]:
        batch = prepare(batch, number)
        rows = len(jax.tree.leaves(batch)[0])
        grad_cache.check_batch(rows, microbatch, mesh)
        local = grad_cache.local_arrays(state, mesh)
        parts = grad_cache.shard_microbatches(batch, microbatch, mesh)
        found = gradient([one.params for one in local], parts, rows)
        applied = grad_cache.on_each_device(apply, local, found.gradients)
        state = grad_cache.global_arrays([one for one, _ in applied], mesh, P())
        return state, {"loss": found.loss[0], "norm": applied[0][1], **metrics(batch)}

    return TrainStep(begin, update, programs, apply)


def with_step(batch: Any, number: int) -> Any:
    """The batch with the number of the step in its field ``step``, which seeds dropout."""
    return batch._replace(step=np.full_like(batch.step, number))


def mask_generator(mesh: Mesh) -> str | None:
    """The implementation of `jax.random` that draws dropout's masks; None is JAX's default.

    On TPUs it is the chip's own, "rbg". The default, threefry, computes on a TPU's vector units,
    and its operations, repeated for each of a network's masks, make compiling slow.
    """
    return "rbg" if mesh.devices.flat[0].platform == "tpu" else None


def dropout_key(seed: int, step: jax.Array, place: jax.Array, mesh: Mesh) -> jax.Array:
    """The key of a microbatch's dropout, for `mask_generator`: TPUs draw other masks than CPUs.

    Args:
      seed: of the training.
      step: its step's number.
      place: of the microbatch's first row in the batch.
      mesh: of the training's devices.
    """
    key = jax.random.key(seed, impl=mask_generator(mesh))
    return jax.random.fold_in(jax.random.fold_in(key, step), place)
