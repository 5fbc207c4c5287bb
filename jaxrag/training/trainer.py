"""What all trainings over a mesh do alike: length, order of the data, the loop, what comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grain
from jax.sharding import Mesh

from jaxrag.training.loop import Data, Evaluation, History, Step, fit
from jaxrag.training.optimisation import check_length
from jaxrag.training.step import TrainStep, Tree, training_mesh
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """Length, batches and devices of a training.

    Attributes:
      steps: number of steps; 0 derives it from ``epochs``.
      epochs: passes over the training examples.
      batch: examples of a step, on all devices together.
      microbatch: examples that pass through the network at a time, on all devices together: divides
        the batch, and as many devices as divide it are used. Memory depends on it.
      fsdp: devices that share one copy of the parameters and of the optimiser's state, see
        `jaxrag.training.step.make_mesh`.
      seed: of the order of the examples and of all random draws.
      save_every, evaluate_every: steps between checkpoints, and between evaluations; 0 never
        evaluates.
    """

    steps: int = 0
    epochs: float = 1.0
    batch: int = 64
    microbatch: int = 8
    fsdp: int = 1
    seed: int = 0
    save_every: int = 100
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        check_length(self.steps, self.epochs, self.seed)

    def steps_over(self, examples: int) -> int:
        """Number of steps of a training on so many examples."""
        return self.steps or max(1, round(self.epochs * examples / self.batch))

    def steps_between_evaluations(self, steps: int) -> int:
        """Steps between evaluations in a training of ``steps`` steps; 0 never evaluates."""
        return self.evaluate_every

    def mesh(self, devices: Sequence[Any] | None = None) -> Mesh:
        """The mesh of a training, see `jaxrag.training.step.training_mesh`."""
        return training_mesh(self.batch, self.microbatch, fsdp=self.fsdp, devices=devices)


def shuffled_batches(
    examples: Sequence[Any],
    size: int,
    *,
    seed: int,
    name: str,
    draw: Callable[..., Any] | None = None,
    collate: Callable[[Sequence[Any]], Any] | None = None,
) -> Data:
    """Endless batches of ``size``, in an order determined by the seed; each example once an epoch.

    The next batch is made in a thread, during the training step. Every process makes the same
    whole batches, of which its devices take their rows. ``draw`` is (example, NumPy generator of
    its use) -> what the batch gets of it; ``collate`` makes the batch, else examples are stacked.
    InputError, which calls the examples ``name``, if there are fewer than in a batch.
    """
    if len(examples) < size:
        raise InputError(
            f"There are {len(examples)} {name} to train on, fewer than a batch of {size}: lower "
            "batch (and microbatch), or take more."
        )
    dataset = grain.MapDataset.source(examples).seed(seed).shuffle().repeat()
    dataset = dataset.random_map(draw) if draw else dataset
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    return iter(dataset.batch(size, batch_fn=collate).to_iter_dataset(reading))


def train(
    step: TrainStep,
    params: Tree,
    data: Data,
    settings: TrainingSettings,
    directory: Path,
    *,
    steps: int,
    name: str,
    update: Step | None = None,
    evaluate: Callable[[Tree, int], Evaluation] | None = None,
    should_stop: Callable[[Tree, History], bool] | None = None,
) -> Tree:
    """Trains from ``params``, resuming from the newest checkpoint in ``directory``.

    Returns the last parameters, on this process's devices. InputError if the loss is not finite, or
    ``directory`` is of another training.

    Args:
      step: the step; its mesh is that of the training.
      params: the initial parameters.
      data: endless items.
      settings: of the training.
      directory: for checkpoints and metrics.
      steps: see `TrainingSettings.steps_over`.
      name: label of the progress line.
      update: makes a step of an item; by default ``step.update``, whose items are batches.
      evaluate: as in `jaxrag.training.loop.fit`, of the parameters on this process's devices.
      should_stop: likewise.
    """
    state = fit(
        step.begin(params),
        data,
        update or step.update,
        steps=steps,
        directory=directory,
        what=name,
        save_every=settings.save_every,
        evaluate=(lambda state, at: evaluate(step.params(state), at)) if evaluate else None,
        evaluate_every=settings.steps_between_evaluations(steps),
        should_stop=(
            (lambda state, history: should_stop(step.params(state), history))
            if should_stop
            else None
        ),
    )
    return step.params(state)
