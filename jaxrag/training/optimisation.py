"""Learning rates and optimisers of all trainings, and checks of their settings."""

from __future__ import annotations

from typing import Any, Literal

import optax

from jaxrag.core.checks import check_positive, check_range

Decay = Literal["linear", "cosine", "constant"]


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
    rate: float | optax.Schedule, *, weight_decay: float, clip: float
) -> optax.GradientTransformation:
    """AdamW (Loshchilov & Hutter, 2019), on a gradient clipped by its norm.

    Args:
      rate: learning rate.
      weight_decay: decoupled, times the rate, on all parameters.
      clip: largest global norm of the gradient; 0 does not clip.
    """
    inner = optax.adamw(rate, weight_decay=weight_decay)
    return optax.chain(optax.clip_by_global_norm(clip), inner) if clip else inner


def scheduled_optimiser(settings: Any, steps: int, *, decay: Decay) -> optax.GradientTransformation:
    """The optimiser of a training of ``steps`` steps.

    Args:
      settings: with ``learning_rate``, ``warmup``, ``weight_decay`` and ``clip``.
      steps: length of the schedule.
      decay: see `learning_rate`.
    """
    rate = learning_rate(settings.learning_rate, steps, warmup=settings.warmup, decay=decay)
    return make_optimiser(rate, weight_decay=settings.weight_decay, clip=settings.clip)


def check_length(steps: int, epochs: float, seed: int) -> None:
    """Checks length and seed of a training; InputError names a value out of range."""
    check_positive(epochs=epochs)
    check_range(steps=steps, seed=seed)


def check_optimiser(settings: Any, *names: str) -> None:
    """Checks ``learning_rate`` and the named settings, which may be 0.

    Raises:
      InputError: the learning rate is not above 0, another is below 0, or one is not finite.
    """
    check_positive(learning_rate=settings.learning_rate)
    check_range(**{name: getattr(settings, name) for name in names})
