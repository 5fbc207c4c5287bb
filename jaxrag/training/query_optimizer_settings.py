"""How a student is fine-tuned: how long, in which batches, with which optimiser, until when."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, get_args

import optax

from jaxrag.types import InputError

Optimiser = Literal["adamw", "adafactor"]
Decay = Literal["linear", "constant"]
Best = Literal["", "loss", "similarity", "accuracy", "exact", "downstream"]
"""A figure of the pairs held out by which the best parameters are told; "" takes the last ones."""


@dataclasses.dataclass(frozen=True)
class Training:
    """Fine-tuning by teacher forcing.

    ERRR (METHODS section 4.4): learning rate 1e-4, 3 epochs, batches of 4. It names no optimiser
    and no schedule; these, and all else here, are our choices.

    Attributes:
      steps: how many; 0 takes ``epochs``.
      epochs: how often each pair comes up.
      batch: pairs of a step, on all devices together.
      piece: pairs that go through the network at a time; a batch is 1, 2, 4, 8, ... of these, whose
        gradients are accumulated. Memory goes with it, and so do the last bits and what is dropped,
        but not the number of devices.
      optimiser: "adamw" (Loshchilov & Hutter, 2019) or "adafactor" (Shazeer & Stern, 2018; second
        moments of matrices factored, no momentum, updates clipped to a root mean square of 1, and
        steps that do not scale with the parameters, so that the rate means what it says).
      learning_rate: the highest.
      decay: "linear" to 0 at the last step, or "constant".
      warmup: steps over which the rate rises before that.
      weight_decay: decoupled, times the rate, on all parameters.
      clip: largest norm of a gradient; 0 clips nothing.
      dropout: whether activations are dropped, at the rate that the student's config names.
      remat: whether all but matrix products is computed again for the derivative, which saves
        memory, see `students.target_logprobs`.
      best: by which figure the best parameters are told: "loss" is best where it is lowest, the
        others where they are highest.
      patience: evaluations without a better one after which training stops; 0 never stops early.
      seed: of the order and of the dropout.
      save_every, watch_every: steps between checkpoints, and between evaluations on the pairs held
        out; 0 never evaluates.
    """

    steps: int = 0
    epochs: float = 3.0
    batch: int = 4
    piece: int = 4
    optimiser: Optimiser = "adamw"
    learning_rate: float = 1e-4
    decay: Decay = "linear"
    warmup: int = 0
    weight_decay: float = 0.0
    clip: float = 1.0
    dropout: bool = True
    remat: bool = False
    best: Best = "loss"
    patience: int = 0
    seed: int = 0
    save_every: int = 100
    watch_every: int = 100

    def __post_init__(self) -> None:
        if self.steps < 0 or not 0 < self.epochs < math.inf or self.seed < 0:
            raise InputError(
                f"steps is {self.steps}, epochs {self.epochs} and seed {self.seed}: epochs is to "
                "be above 0, the others 0 or more."
            )
        for name, kind in (("optimiser", Optimiser), ("decay", Decay), ("best", Best)):
            if getattr(self, name) not in get_args(kind):
                allowed = ", ".join(map(repr, get_args(kind)))
                raise InputError(f"{name} is {getattr(self, name)!r}; allowed are {allowed}.")
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"learning_rate is {self.learning_rate}; it is to be above 0.")
        for name in ("warmup", "weight_decay", "clip", "patience", "watch_every"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it is to be 0 or more.")
        if self.patience and not (self.best and self.watch_every):
            raise InputError(
                f"patience is {self.patience}, which needs a figure (best is {self.best!r}) that "
                f"is looked at on the way (watch_every is {self.watch_every})."
            )

    def steps_over(self, pairs: int) -> int:
        """Steps of a training on so many pairs."""
        return self.steps or max(1, round(self.epochs * pairs / self.batch))

    def schedule(self, steps: int) -> optax.Schedule:
        """The learning rate of each of ``steps`` steps."""
        peak, warmup = self.learning_rate, self.warmup
        after = optax.constant_schedule(peak)
        if self.decay == "linear":
            after = optax.linear_schedule(peak, 0.0, max(steps - warmup, 1))
        # the first step has a rate above 0, too
        rise = optax.linear_schedule(peak / (warmup + 1), peak, warmup)
        return optax.join_schedules([rise, after], [warmup]) if warmup else after

    def optimiser_over(self, steps: int) -> optax.GradientTransformation:
        """The optimiser, on a clipped gradient where that is wanted."""
        if self.optimiser == "adamw":
            scaled = [optax.scale_by_adam()]
        else:
            scaled = [optax.scale_by_factored_rms(), optax.clip_by_block_rms(1.0)]
        decayed = [optax.add_decayed_weights(self.weight_decay)] if self.weight_decay else []
        clipped = [optax.clip_by_global_norm(self.clip)] if self.clip else []
        rate = optax.scale_by_learning_rate(self.schedule(steps))
        return optax.chain(*clipped, *scaled, *decayed, rate)


def better(best: Best, one: float, than: float) -> bool:
    """Whether a figure beats another."""
    return one < than if best == "loss" else one > than
