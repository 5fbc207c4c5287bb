"""How a ranker is trained: how long, in which batches, with which loss and optimiser."""

from __future__ import annotations

import dataclasses
import math
from typing import get_args

import optax

from jaxrag.functional.ranking import Ties
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class Training:
    """The training of ARS-RAG's ranker (METHODS section 5.3).

    The paper: batches of 64 questions, 100 epochs, AdamW at 5e-5 with weight decay 0.01, a cosine
    schedule, dropout 0.1, BCE-with-logits. It says nothing of ties, warm-up and clipping; weight
    decay is on all parameters, as PyTorch's AdamW has it.

    Attributes:
      steps: how many; 0 takes ``epochs``.
      epochs: how often each question comes up.
      batch: questions of a step, on all devices together.
      piece: questions that go through the network at a time, with all their rewrites; a batch is
        1, 2, 4, 8, ... of these. Memory goes with it, and so do the last bits, but not the number
        of devices.
      ties: what pairs of equal labels do, see `jaxrag.functional.ranking.Ties`.
      dropout: share of the pooled state's entries that are dropped, see `jaxrag.models.ranker`.
      learning_rate: the highest; it falls to 0 along a half cosine.
      warmup: steps over which it rises before that.
      weight_decay: AdamW's.
      clip: largest norm of a gradient; 0 clips nothing.
      seed: of the order and of the dropout.
      save_every, watch_every: steps between checkpoints, and between evaluations on the questions
        held out; 0 never evaluates on the way.
    """

    steps: int = 0
    epochs: float = 100.0
    batch: int = 64
    piece: int = 8
    ties: Ties = "half"
    dropout: float = 0.1
    learning_rate: float = 5e-5
    warmup: int = 0
    weight_decay: float = 0.01
    clip: float = 0.0
    seed: int = 0
    save_every: int = 100
    watch_every: int = 0

    def __post_init__(self) -> None:
        if self.steps < 0 or not 0 < self.epochs < math.inf or self.seed < 0:
            raise InputError(
                f"steps is {self.steps}, epochs {self.epochs} and seed {self.seed}: epochs is to "
                "be above 0, the others 0 or more."
            )
        if self.ties not in get_args(Ties):
            raise InputError(f"ties is {self.ties!r}; allowed are 'half' and 'drop'.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}; it is to be from 0 to below 1.")
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"learning_rate is {self.learning_rate}; it is to be above 0.")
        for name in ("warmup", "weight_decay", "clip"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it is to be 0 or more.")

    def steps_over(self, questions: int) -> int:
        """Steps of a training on so many questions."""
        return self.steps or max(1, round(self.epochs * questions / self.batch))

    def schedule(self, steps: int) -> optax.Schedule:
        """The learning rate of each of ``steps`` steps."""
        peak, warmup = self.learning_rate, self.warmup
        after = optax.cosine_decay_schedule(peak, max(steps - warmup, 1))
        # the first step has a rate above 0, too
        rise = optax.linear_schedule(peak / (warmup + 1), peak, warmup)
        return optax.join_schedules([rise, after], [warmup]) if warmup else after

    def optimiser(self, steps: int) -> optax.GradientTransformation:
        """AdamW, on a clipped gradient where that is wanted."""
        adamw = optax.adamw(self.schedule(steps), weight_decay=self.weight_decay)
        return optax.chain(optax.clip_by_global_norm(self.clip), adamw) if self.clip else adamw
