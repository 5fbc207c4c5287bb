"""Learning rates and optimisers of all trainings, and checks of their settings."""

from __future__ import annotations

from typing import Any, Literal

import optax

from jaxrag.core.checks import check_positive, check_range

Decay = Literal["linear", "cosine", "constant"]
Optimiser = Literal["adamw", "adafactor"]


def learning_rate(peak: float, steps: int, *, warmup: int, decay: Decay) -> optax.Schedule:
    """The learning rate of each step.

    It rises linearly over ``warmup`` steps from peak / (warmup + 1) at step 0 to the peak, then
    falls to 0 at step ``steps``, linearly or along half a cosine, or stays.
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


def scheduled_optimiser(
    settings: Any, steps: int, *, decay: Decay, algorithm: Optimiser = "adamw"
) -> optax.GradientTransformation:
    """The optimiser of a training of ``steps`` steps; see `learning_rate` and `make_optimiser`.

    ``settings`` has ``learning_rate``, ``warmup``, ``weight_decay`` and ``clip``.
    """
    rate = learning_rate(settings.learning_rate, steps, warmup=settings.warmup, decay=decay)
    how = {"weight_decay": settings.weight_decay, "clip": settings.clip}
    return make_optimiser(rate, **how, algorithm=algorithm)


def check_length(steps: int, epochs: float, seed: int) -> None:
    """Checks length and seed of a training; InputError names a value out of range."""
    check_positive(epochs=epochs)
    check_range(steps=steps, seed=seed)


def check_optimiser(settings: Any, *names: str) -> None:
    """Checks that ``learning_rate`` > 0 and named settings >= 0, all finite; else InputError."""
    check_positive(learning_rate=settings.learning_rate)
    check_range(**{name: getattr(settings, name) for name in names})
