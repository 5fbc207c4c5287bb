"""Fine-tuning a student on pairs: queries that a teacher wrote, labels, or any other text.

METHODS section 4.4 (trainable ERRR is distilled from the frozen one). The loss is the mean of the
negative log-probability over the target tokens of the whole batch, end tokens included, so that a
long target weighs more than a short one. Pieces of a batch go through the network one after the
other and their gradients are accumulated; one device and eight end in the same bits
(`jaxrag.training.pieces`). Dropout is drawn from the seed, the step and a piece's place in its
batch, so that it does not know of devices or of interruptions.
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

from jaxrag.training import pieces, updates
from jaxrag.training.loop import History, Watched, fit
from jaxrag.training.query_optimizer_data import Batch, Pair, batches, tokenised
from jaxrag.training.query_optimizer_settings import Training, better
from jaxrag.training.students import Student, target_logprobs
from jaxrag.training.updates import State, Step
from jaxrag.types import InputError


@functools.cache
def make_step(module: Any, settings: Training, *, steps: int, mesh: Mesh) -> Step:
    """The step of a training of ``steps`` steps; the same one, compiled once, for equal arguments.

    Args:
      module: a `Student`'s network.
      settings: loss, dropout and optimiser.
      steps: over which the learning rate goes.
      mesh: as of `pieces.data_mesh`.
    """
    return updates.make_step(
        settings.optimiser_over(steps),
        _logprobs(module, settings),
        token_loss,
        piece=settings.piece,
        mesh=mesh,
        told=lambda batch: {"tokens": int(batch.pairs.target_length.sum())},
    )


def _logprobs(module: Any, settings: Training) -> pieces.Embed:
    """Log-probabilities [b t] of a piece's targets, with dropout."""

    def logprobs(params: dict[str, Any], piece: Batch) -> Float[Array, "b t"]:
        key = None
        if settings.dropout:
            key = jax.random.fold_in(jax.random.key(settings.seed), piece.step[0])
            key = jax.random.fold_in(key, piece.place[0])
        return target_logprobs(module, params, piece.pairs, key=key, remat=settings.remat)[0]

    return logprobs


def token_loss(logprobs: Float[Array, "b t"], batch: Batch) -> Float[Array, ""]:
    """Mean of -log p over all tokens of all targets; what stands at padding does not count."""
    lengths = batch.pairs.target_length
    where = jnp.arange(logprobs.shape[1]) < lengths[:, None]
    return -jnp.where(where, logprobs, 0.0).sum() / lengths.sum()


def train(
    pairs: Sequence[Pair],
    student: Student,
    settings: Training,
    directory: Path,
    *,
    keep: Callable[[dict[str, Any], int], None],
    watch: Callable[[dict[str, Any], int], Watched] | None = None,
    mesh: Mesh | None = None,
) -> None:
    """Trains a student; goes on where an earlier call in ``directory`` stopped, to the bit.

    Args:
      pairs: to train on.
      student: what training begins with.
      settings: how.
      directory: for checkpoints and figures.
      keep: (parameters, step); called with the best parameters so far whenever they are found,
        with the same ones again after an interruption, and last with those that training is for.
        Where nothing is watched, or ``settings.best`` is "", these are the last ones.
      watch: (parameters, step) -> figures of the pairs held out, ``settings.best`` among them.
      mesh: as of `pieces.data_mesh`; by default all devices.

    Raises:
      InputError: settings, data or what is in ``directory`` do not fit; or the loss is NaN.
    """
    mesh = mesh or pieces.data_mesh()
    pieces.check_batch(settings.batch, settings.piece, mesh)
    steps = settings.steps_over(len(pairs))
    step = make_step(student.module, settings, steps=steps, mesh=mesh)
    chosen = bool(settings.best and settings.watch_every and watch)

    def of(state: State) -> dict[str, Any]:
        return pieces.apart(state.params, mesh)[0]

    state = fit(
        step.begin(student.params),
        batches(tokenised(pairs, student), settings),
        step.update,
        steps=steps,
        directory=directory,
        what="fine-tuning",
        save_every=settings.save_every,
        watch=(lambda state, number: watch(of(state), number)) if watch else None,
        watch_every=settings.watch_every,
        enough=_keeping(keep, of, settings) if chosen else None,
    )
    if not chosen:
        keep(of(state), steps)


def _keeping(
    keep: Callable[[dict[str, Any], int], None],
    of: Callable[[State], dict[str, Any]],
    settings: Training,
) -> Callable[[State, History], bool]:
    """Keeps the parameters of the best step when they come by; tells when to stop waiting."""

    def enough(state: State, history: History) -> bool:
        best, newest = best_step(history, settings.best), max(history)
        if best is None:
            known = [name for name, mean in history[newest].items() if mean is not None]
            raise InputError(
                f"best is {settings.best!r}, which is not known of these pairs; known are "
                f"{', '.join(known)}."
            )
        if best == newest:
            keep(of(state), newest)
        return 0 < settings.patience <= waited(history, best)

    return enough


def best_step(history: History, best: Any) -> int | None:
    """The first step at which a figure was best, or None where it is never known."""
    found: int | None = None
    for step in sorted(history):
        one = history[step].get(best)
        than = None if found is None else history[found][best]
        if one is not None and (than is None or better(best, one, than)):
            found = step
    return found


def waited(history: History, best: int) -> int:
    """How many evaluations came after the best one."""
    return sum(step > best for step in history)
