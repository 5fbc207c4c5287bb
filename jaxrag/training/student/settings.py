"""Settings of a student's fine-tuning."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import optax

from jaxrag.training.optimisation import (
    Decay,
    Optimiser,
    check_length,
    check_optimiser,
    learning_rate,
    make_optimiser,
)
from jaxrag.types import InputError

Best = Literal["", "loss", "similarity", "accuracy", "exact", "downstream"]
"""Metric on held-out pairs that selects the best parameters; "" selects the last ones."""


@dataclasses.dataclass(frozen=True)
class StudentTraining:
    """Fine-tuning by teacher forcing.

    ERRR (docs/methods.md, "ERRR: frozen and trainable"): learning rate 1e-4, 3 epochs, batches of
    4. It names no optimiser and no schedule; these and all other settings are our choices.

    Attributes:
      steps: how many; 0 derives them from ``epochs``.
      epochs: passes over the pairs.
      batch: pairs of a step, over all devices.
      microbatch: pairs that pass through the network at a time, with accumulated gradients; a batch
        is 1, 2, 4, 8, ... microbatches. It decides memory, rounding and dropout, which do not
        depend on the number of devices.
      optimiser, learning_rate, warmup, decay, weight_decay, clip: see
        `jaxrag.training.optimisation.make_optimiser` and `learning_rate`.
      dropout: whether to apply dropout, at the rate of the student's config.
      remat: whether to recompute activations in the backward pass, which saves memory, see
        `jaxrag.training.student.network.target_logprobs`.
      best: metric on held-out pairs that selects the best parameters, lowest for "loss", highest
        for the others; "" selects the last ones.
      patience: evaluations without improvement after which training stops; 0 never stops early.
      seed: of the data order and of dropout.
      save_every, evaluate_every: steps between checkpoints, and between evaluations on held-out
        pairs; 0 never evaluates.
    """

    steps: int = 0
    epochs: float = 3.0
    batch: int = 4
    microbatch: int = 4
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
    evaluate_every: int = 100

    def __post_init__(self) -> None:
        check_length(self.steps, self.epochs, self.seed)
        check_optimiser(self, "warmup", "weight_decay", "clip", "patience", "evaluate_every")
        for name, kind in (("optimiser", Optimiser), ("decay", Decay), ("best", Best)):
            if getattr(self, name) not in get_args(kind):
                allowed = ", ".join(map(repr, get_args(kind)))
                raise InputError(f"{name} is {getattr(self, name)!r}; allowed are {allowed}.")

        if self.patience and not (self.best and self.evaluate_every):
            raise InputError(
                f"patience is {self.patience}: it needs a metric (best is {self.best!r}) and "
                f"evaluations (evaluate_every is {self.evaluate_every})."
            )

    def steps_over(self, pairs: int) -> int:
        """Steps of a training on ``pairs`` pairs."""
        return self.steps or max(1, round(self.epochs * pairs / self.batch))

    def optimiser_over(self, steps: int) -> optax.GradientTransformation:
        """The optimiser of a training of ``steps`` steps."""
        rate = learning_rate(self.learning_rate, steps, warmup=self.warmup, decay=self.decay)
        return make_optimiser(
            rate, weight_decay=self.weight_decay, clip=self.clip, algorithm=self.optimiser
        )


def is_better(metric: Best, one: float, than: float) -> bool:
    """Whether a metric's value ``one`` is better than ``than``: lower for "loss", else higher."""
    return one < than if metric == "loss" else one > than
