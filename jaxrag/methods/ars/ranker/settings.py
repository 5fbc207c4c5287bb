"""Settings of the ranker's training: length, batches, loss and optimiser."""

from __future__ import annotations

import dataclasses
from typing import get_args

import optax

from jaxrag.functional.ranking import Ties
from jaxrag.training.optimisation import (
    check_length,
    check_optimiser,
    learning_rate,
    make_optimiser,
)
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class RankerTraining:
    """The training of ARS-RAG's ranker (docs/methods.md, "ARS-RAG: ranker").

    The paper: batches of 64 questions, 100 epochs, AdamW at 5e-5 with weight decay 0.01, a cosine
    schedule, dropout 0.1, BCE-with-logits. It does not mention ties, warm-up and clipping; weight
    decay applies to all parameters, as in PyTorch's AdamW.

    Attributes:
      steps: number of steps; 0: as many as ``epochs`` need.
      epochs: passes over the questions.
      batch: questions per step, on all devices together.
      microbatch: questions, with all their rewrites, that pass through the network at a time; a
        batch is 1, 2, 4, 8, ... of these. It changes memory and the last bits of results; the
        number of devices does not change results.
      ties: treatment of pairs of equal labels, see `jaxrag.functional.ranking.Ties`.
      dropout: of the pooled state, see `jaxrag.models.bert.rewrite_ranker`.
      learning_rate: the maximum; it decays to 0 along a half cosine.
      warmup: steps of linear increase before the decay.
      weight_decay: AdamW's.
      clip: maximum norm of a gradient; 0: no clipping.
      seed: of the order of questions and of dropout.
      save_every, evaluate_every: steps between checkpoints, and between evaluations on held-out
        questions; 0 never evaluates.
    """

    steps: int = 0
    epochs: float = 100.0
    batch: int = 64
    microbatch: int = 8
    ties: Ties = "half"
    dropout: float = 0.1
    learning_rate: float = 5e-5
    warmup: int = 0
    weight_decay: float = 0.01
    clip: float = 0.0
    seed: int = 0
    save_every: int = 100
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        check_length(self.steps, self.epochs, self.seed)
        check_optimiser(self, "warmup", "weight_decay", "clip")
        if self.ties not in get_args(Ties):
            raise InputError(f"ties is {self.ties!r}; allowed are 'half' and 'drop'.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}; it must be from 0 to below 1.")

    def steps_over(self, questions: int) -> int:
        """Steps of a training on a number of questions."""
        return self.steps or max(1, round(self.epochs * questions / self.batch))

    def optimiser(self, steps: int) -> optax.GradientTransformation:
        """AdamW for a training of ``steps`` steps."""
        rate = learning_rate(self.learning_rate, steps, warmup=self.warmup, decay="cosine")
        return make_optimiser(rate, weight_decay=self.weight_decay, clip=self.clip)
