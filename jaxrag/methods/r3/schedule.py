"""What the trainings of retrievers have in common: how long, in which batches, how they learn."""

from __future__ import annotations

import dataclasses

from jaxrag.methods.r3.contrastive import Update
from jaxrag.training.optimisation import check_length


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long a retriever is trained, and in which steps.

    Attributes:
      steps: how many; 0 takes ``epochs``.
      epochs: how often each question comes up.
      batch: questions of a step, on all devices together.
      microbatch: questions that go through the network at a time, with their passages; a batch is
        1, 2, 4, 8, ... of these. Memory goes with it, and so do the last bits, but not the number
        of devices.
      update: loss and optimiser.
      seed: of the order and of the draws.
      save_every, evaluate_every: steps between checkpoints, and between evaluations; 0 never
        evaluates.
    """

    steps: int = 0
    epochs: float = 40.0
    batch: int = 128
    microbatch: int = 8
    update: Update = Update()
    seed: int = 0
    save_every: int = 100
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        check_length(self.steps, self.epochs, self.seed)

    def steps_over(self, questions: int) -> int:
        """Steps of a training on so many questions."""
        return self.steps or max(1, round(self.epochs * questions / self.batch))
