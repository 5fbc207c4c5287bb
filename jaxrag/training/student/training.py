"""Fine-tuning of a student on pairs of input and target, such as queries written by a teacher.

docs/methods.md, "ERRR: frozen and trainable" (trainable ERRR is distilled from the frozen one). The
loss is the mean negative log-probability over all target tokens of the batch, end tokens included,
so a long target weighs more than a short one. Gradients are accumulated over microbatches; one
device and eight give the same bits (`jaxrag.training.grad_cache`). Dropout is seeded by the seed,
the step and a microbatch's position in its batch, so it does not depend on devices or
interruptions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from jaxrag.training import grad_cache, optimisation
from jaxrag.training.loop import Evaluation, History, fit
from jaxrag.training.optimisation import TrainState, TrainStep
from jaxrag.training.student.data import StudentBatch, TextPair, batches, tokenised
from jaxrag.training.student.settings import StudentTraining, is_better
from jaxrag.training.student.students import Student, target_logprobs
from jaxrag.types import InputError


@functools.cache
def make_step(module: Any, settings: StudentTraining, *, steps: int, mesh: Mesh) -> TrainStep:
    """The step of a training of ``steps`` steps; equal arguments give the same compiled one.

    Args:
      module: a `Student`'s network.
      settings: dropout and optimiser.
      steps: length of the learning-rate schedule.
      mesh: see `grad_cache.data_mesh`.
    """
    return optimisation.make_step(
        settings.optimiser_over(steps),
        _logprobs(module, settings),
        token_loss,
        microbatch=settings.microbatch,
        mesh=mesh,
        prepare=optimisation.with_step,
        metrics=lambda batch: {"tokens": int(batch.pairs.target_length.sum())},
    )


def _logprobs(module: Any, settings: StudentTraining) -> grad_cache.Embed:
    """Log-probabilities [b t] of a microbatch's targets, with dropout."""

    def logprobs(params: dict[str, Any], microbatch: StudentBatch) -> Float[Array, "b t"]:
        key = None
        if settings.dropout:
            key = jax.random.fold_in(jax.random.key(settings.seed), microbatch.step[0])
            key = jax.random.fold_in(key, microbatch.place[0])
        return target_logprobs(module, params, microbatch.pairs, key=key, remat=settings.remat)[0]

    return logprobs


def token_loss(logprobs: Float[Array, "b t"], batch: StudentBatch) -> Float[Array, ""]:
    """Mean of -log p over all tokens of all targets, without padding."""
    lengths = batch.pairs.target_length
    where = jnp.arange(logprobs.shape[1]) < lengths[:, None]
    return -jnp.where(where, logprobs, 0.0).sum() / lengths.sum()


def train(
    pairs: Sequence[TextPair],
    student: Student,
    settings: StudentTraining,
    directory: Path,
    *,
    keep: Callable[[dict[str, Any], int], None],
    evaluate: Callable[[dict[str, Any], int], Evaluation] | None = None,
    mesh: Mesh | None = None,
) -> None:
    """Trains a student; resumes an earlier call in ``directory``, with the same bits.

    Args:
      pairs: training data.
      student: the initial network.
      settings: the training's settings.
      directory: for checkpoints and metrics.
      keep: (parameters, step); called whenever the parameters are the best so far, and repeated
        after an interruption; the last call has the parameters that training returns. Without
        evaluations, or with ``settings.best`` "", those are the last ones.
      evaluate: (parameters, step) -> metrics of held-out pairs, including ``settings.best``.
      mesh: see `grad_cache.data_mesh`; by default all devices.

    Raises:
      InputError: settings or data are invalid, ``directory`` is of another training, or the loss is
        not finite.
    """
    mesh = mesh or grad_cache.data_mesh()
    grad_cache.check_batch(settings.batch, settings.microbatch, mesh)
    steps = settings.steps_over(len(pairs))
    step = make_step(student.module, settings, steps=steps, mesh=mesh)
    selects = bool(settings.best and settings.evaluate_every and evaluate)

    def params_of(state: TrainState) -> dict[str, Any]:
        return grad_cache.local_arrays(state.params, mesh)[0]

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
