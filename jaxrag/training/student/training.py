"""Fine-tuning of a student on pairs of input and target, such as queries written by a teacher.

docs/methods.md, "ERRR: frozen and trainable" (trainable ERRR is distilled from the frozen one). The
loss is the mean negative log-probability over all target tokens of the batch, end tokens included,
so a long target weighs more than a short one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from jaxrag.core.checks import check_choices
from jaxrag.training import step as training
from jaxrag.training.loop import Data, Evaluation, History, fit
from jaxrag.training.optimisation import (
    Decay,
    Optimiser,
    check_length,
    check_optimiser,
    learning_rate,
    make_optimiser,
)
from jaxrag.training.step import TrainState, TrainStep
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.student import Student, TokenPairs, encode
from jaxrag.types import InputError

_MULTIPLE = 8  # padded lengths are multiples of it


Best = Literal["", "loss", "similarity", "accuracy", "exact", "downstream"]
"""Metric on held-out pairs that selects the best parameters; "" selects the last ones."""


@dataclasses.dataclass(frozen=True)
class StudentTraining:
    """Fine-tuning by teacher forcing.

    ERRR (docs/methods.md, "ERRR: frozen and trainable"): learning rate 1e-4, 3 epochs, batches of
    4. The paper names no optimiser and no schedule; these and all other settings are our choices.

    Attributes:
      steps: number of steps; 0 derives it from ``epochs``.
      epochs: passes over the pairs.
      batch: pairs of a step, over all devices.
      microbatch: pairs that pass through the network at a time, on all devices together, with
        accumulated gradients: divides the batch, and as many devices as divide it are used.
      fsdp: devices that share one copy of the parameters and of the optimiser's state.
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
    fsdp: int = 1
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
        check_choices(self, optimiser=Optimiser, decay=Decay, best=Best)
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
    """Whether metric value ``one`` is better than ``than``: lower for "loss", else higher."""
    return one < than if metric == "loss" else one > than


class TextPair(NamedTuple):
    """An input and its target, with the id of their question, and its text if it is known."""

    question_id: str
    input: str
    target: str
    question: str = ""


def tokenised(pairs: Sequence[TextPair], student: Student) -> TokenPairs:
    """All pairs, padded to the longest, so that every batch has one shape."""
    found = encode(student, [one.input for one in pairs], [one.target for one in pairs])

    def wide(lengths: np.ndarray, limit: int) -> int:
        return min(-(-int(lengths.max()) // _MULTIPLE) * _MULTIPLE, limit)

    s = wide(found.source_length, student.max_source)
    t = wide(found.target_length, student.max_target)
    return found._replace(source=found.source[:, :s], target=found.target[:, :t])


def batches(pairs: TokenPairs, settings: StudentTraining) -> Data:
    """Endless shuffled batches as `TokenPairs`, each pair once an epoch.

    Every process makes the same whole batches; its devices take their rows of them.

    Raises:
      InputError: there are fewer pairs than in a batch.
    """
    count = len(pairs.source)
    if count < settings.batch:
        raise InputError(
            f"There are {count} pairs to train on, fewer than a batch of {settings.batch}: lower "
            "batch (and microbatch), or make more pairs."
        )

    def collate(rows: Sequence[int]) -> TokenPairs:
        return jax.tree.map(lambda array: array[np.asarray(rows)], pairs)

    dataset = grain.MapDataset.range(count).seed(settings.seed).shuffle().repeat()
    dataset = dataset.batch(settings.batch, batch_fn=collate)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))


@functools.cache
def make_step(module: Any, settings: StudentTraining, *, steps: int, mesh: Mesh) -> TrainStep:
    """The step of a training of ``steps`` steps; cached, so equal arguments compile once.

    Args:
      module: a `Student`'s network.
      settings: dropout and optimiser.
      steps: length of the learning-rate schedule.
      mesh: see `jaxrag.training.step.training_mesh`.
    """

    def loss(params: dict[str, Any], part: TokenPairs, key: jax.Array) -> Float[Array, ""]:
        dropout = key if settings.dropout else None
        return token_loss(
            target_logprobs(module, params, part, key=dropout, remat=settings.remat)[0], part
        )

    return training.make_step(
        training.summed(loss, lambda parts: parts.target_length.sum()),
        settings.optimiser_over(steps),
        microbatch=settings.microbatch,
        mesh=mesh,
        seed=settings.seed,
        metrics=lambda batch: {"tokens": int(batch.target_length.sum())},
    )


def token_loss(logprobs: Float[Array, "b t"], pairs: TokenPairs) -> Float[Array, ""]:
    """Sum of -log p over all tokens of the targets, without padding."""
    where = jnp.arange(logprobs.shape[1]) < pairs.target_length[:, None]
    return -jnp.where(where, logprobs, 0.0).sum()


def train(
    pairs: Sequence[TextPair],
    student: Student,
    settings: StudentTraining,
    directory: Path,
    *,
    keep: Callable[[dict[str, Any], int], None],
    evaluate: Callable[[dict[str, Any], int], Evaluation] | None = None,
    devices: Sequence[Any] | None = None,
) -> None:
    """Trains a student; resumes an earlier call in ``directory``, with the same
    bytes on the same devices.

    Args:
      pairs: training data.
      student: the initial network.
      settings: the training's settings.
      directory: for checkpoints and metrics.
      keep: (parameters, step); called whenever the parameters are the best so far, and repeated
        after an interruption; the last call has the parameters that training returns. Without
        evaluations, or with ``settings.best`` "", those are the last ones.
      evaluate: (parameters, step) -> metrics of held-out pairs, including ``settings.best``.
      devices: see `jaxrag.training.step.training_mesh`.

    Raises:
      InputError: settings or data are invalid, ``directory`` is of another training, or the loss is
        not finite.
    """
    mesh = training.training_mesh(
        settings.batch, settings.microbatch, fsdp=settings.fsdp, devices=devices
    )
    steps = settings.steps_over(len(pairs))
    step = make_step(student.module, settings, steps=steps, mesh=mesh)
    selects = bool(settings.best and settings.evaluate_every and evaluate)

    def params_of(state: TrainState) -> dict[str, Any]:
        return training.first_copy(state.params, mesh)

    state = fit(
        step.begin(student.params),
        batches(tokenised(pairs, student), settings),
        step.update,
        steps=steps,
        directory=directory,
        what="fine-tuning",
        save_every=settings.save_every,
        evaluate=(lambda state, number: evaluate(params_of(state), number)) if evaluate else None,
        evaluate_every=settings.evaluate_every,
        should_stop=_early_stopping(keep, params_of, settings) if selects else None,
    )
    if not selects:
        keep(params_of(state), steps)


def _early_stopping(
    keep: Callable[[dict[str, Any], int], None],
    params_of: Callable[[TrainState], dict[str, Any]],
    settings: StudentTraining,
) -> Callable[[TrainState, History], bool]:
    """Keeps the parameters of the best step; stops after ``patience`` others in a row."""

    def should_stop(state: TrainState, history: History) -> bool:
        best, newest = best_step(history, settings.best), max(history)
        if best is None:
            known = [name for name, mean in history[newest].items() if mean is not None]
            raise InputError(
                f"best is {settings.best!r}, which is undefined for these pairs; defined are "
                f"{', '.join(known)}."
            )
        if best == newest:
            keep(params_of(state), newest)
        return 0 < settings.patience <= sum(step > best for step in history)

    return should_stop


def best_step(history: History, metric: Any) -> int | None:
    """The first step at which a metric was best, or None where it is always undefined."""
    found: int | None = None
    for step in sorted(history):
        one = history[step].get(metric)
        than = None if found is None else history[found][metric]
        if one is not None and (than is None or is_better(metric, one, than)):
            found = step
    return found
