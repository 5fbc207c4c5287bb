"""Fine-tuning of a student on pairs of input and target, such as queries written by a teacher.

The loss is the mean negative log-probability over all target tokens of the batch, end tokens
included, so a long target weighs more than a short one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from jaxrag.core.checks import check_choices
from jaxrag.training import step as training
from jaxrag.training import trainer
from jaxrag.training.loop import Data, Evaluation, History
from jaxrag.training.optimisation import Decay, Optimiser, check_optimiser, scheduled_optimiser
from jaxrag.training.step import TrainStep, first_copy
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.student import Student, TokenPairs, encode
from jaxrag.training.trainer import TrainingSettings, shuffled_batches
from jaxrag.types import InputError

_MULTIPLE = 8  # padded lengths are multiples of it


Best = Literal["", "loss", "similarity", "accuracy", "exact", "downstream"]
"""Metric on held-out pairs that selects the best parameters; "" selects the last ones."""


@dataclasses.dataclass(frozen=True)
class StudentTraining(TrainingSettings):
    """Fine-tuning by teacher forcing, on pairs with accumulated gradients.

    ERRR (docs/methods, "ERRR: frozen and trainable"): learning rate 1e-4, 3 epochs, batches of
    4. The paper names no optimiser and no schedule; these and all other settings are our choices.

    Attributes:
      optimiser, learning_rate, warmup, decay, weight_decay, clip: see
        `jaxrag.training.optimisation.make_optimiser` and `learning_rate`.
      dropout: whether to apply dropout, at the rate of the student's config.
      remat: whether to recompute activations in the backward pass, which saves memory, see
        `jaxrag.training.student.network.target_logprobs`.
      best: metric on held-out pairs that selects the best parameters, lowest for "loss", highest
        for the others; "" selects the last ones.
      patience: evaluations without improvement after which training stops; 0 never stops early.
    """

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
    evaluate_every: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optimiser(self, "warmup", "weight_decay", "clip", "patience", "evaluate_every")
        check_choices(self, optimiser=Optimiser, decay=Decay, best=Best)
        if self.patience and not (self.best and self.evaluate_every):
            raise InputError(
                f"patience is {self.patience}: it needs a metric (best is {self.best!r}) and "
                f"evaluations (evaluate_every is {self.evaluate_every})."
            )


class TextPair(NamedTuple):
    """An input and its target, with the id of their question, and its text if it is known."""

    question_id: str
    input: str
    target: str
    question: str = ""


def tokenised(pairs: Sequence[TextPair], student: Student) -> TokenPairs:
    """All pairs, padded to the longest, so that every batch has one shape."""
    encoded = encode(student, [pair.input for pair in pairs], [pair.target for pair in pairs])

    def wide(lengths: np.ndarray, limit: int) -> int:
        return min(-(-int(lengths.max()) // _MULTIPLE) * _MULTIPLE, limit)

    s = wide(encoded.source_length, student.max_source)
    t = wide(encoded.target_length, student.max_target)
    return encoded._replace(source=encoded.source[:, :s], target=encoded.target[:, :t])


def batches(pairs: TokenPairs, settings: StudentTraining) -> Data:
    """Endless batches of pairs, see `shuffled_batches`."""

    def collate(rows: Sequence[int]) -> TokenPairs:
        return jax.tree.map(lambda array: array[np.asarray(rows)], pairs)

    rows = range(len(pairs.source))
    return shuffled_batches(rows, settings.batch, seed=settings.seed, name="pairs", collate=collate)


@functools.cache
def make_step(module: Any, settings: StudentTraining, *, steps: int, mesh: Mesh) -> TrainStep:
    """The step of a training of ``steps`` steps; cached, so equal arguments compile once.

    ``module`` is a `Student`'s network; for ``mesh`` see `jaxrag.training.step.training_mesh`.
    """

    def loss(params: dict[str, Any], part: TokenPairs, key: jax.Array) -> Float[Array, ""]:
        dropout = key if settings.dropout else None
        return token_loss(
            target_logprobs(module, params, part, key=dropout, remat=settings.remat)[0], part
        )

    return training.make_step(
        training.summed(loss, lambda parts: parts.target_length.sum()),
        scheduled_optimiser(settings, steps, decay=settings.decay, algorithm=settings.optimiser),
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

    InputError if settings or data are invalid, ``directory`` is of another training, or the loss is
    not finite.

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
    """
    steps = settings.steps_over(len(pairs))
    selects = bool(settings.best and settings.evaluate_every and evaluate)

    def should_stop(params: dict[str, Any], history: History) -> bool:
        """Keeps the parameters of the best step; stops after ``patience`` others in a row."""
        best, newest = best_step(history, settings.best), max(history)
        if best is None:
            defined = [name for name, mean in history[newest].items() if mean is not None]
            raise InputError(
                f"best is {settings.best!r}, which is undefined for these pairs; defined are "
                f"{', '.join(defined)}."
            )
        if best == newest:
            keep(first_copy(params), newest)
        return 0 < settings.patience <= sum(step > best for step in history)

    params = trainer.train(
        make_step(student.module, settings, steps=steps, mesh=settings.mesh(devices)),
        student.params,
        batches(tokenised(pairs, student), settings),
        settings,
        directory,
        steps=steps,
        name="fine-tuning",
        evaluate=(lambda params, at: evaluate(first_copy(params), at)) if evaluate else None,
        should_stop=should_stop if selects else None,
    )
    if not selects:
        keep(first_copy(params), steps)


def best_step(history: History, metric: Any) -> int | None:
    """The first step at which a metric was best, or None where it is always undefined."""
    sign = 1 if metric == "loss" else -1
    means = {step: history[step].get(metric) for step in sorted(history)}
    defined = {step: sign * mean for step, mean in means.items() if mean is not None}
    return min(defined, key=defined.__getitem__, default=None)
