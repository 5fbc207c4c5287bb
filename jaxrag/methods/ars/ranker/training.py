"""Training ARS-RAG's ranker: RankNet over all pairs of each question's rewrites.

Each rewrite is encoded once a step: the 10 scores of a question's rewrites give all of its 90
ordered pairs. Microbatches pass through the network one after the other, so that results are
bit-identical on any number of devices (`jaxrag.training.grad_cache`). Dropout depends on the seed,
the step and the question's index in the batch alone, so it is the same after an interruption, too.

Source: docs/methods.md, "ARS-RAG: ranker".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from jaxrag.core.hashing import canonical, digest
from jaxrag.functional.ranking import ranknet_loss
from jaxrag.methods.ars.ranker.data import RankerBatch, RankingExample, batches, without_pair
from jaxrag.methods.ars.ranker.scorer import with_params
from jaxrag.methods.ars.ranker.settings import RankerTraining
from jaxrag.models.bert.rewrite_ranker import RankerNetwork, dropout_noise
from jaxrag.models.parameters import flatten
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.training import grad_cache, optimisation
from jaxrag.training.checkpoints import hashes
from jaxrag.training.loop import Evaluation, fit
from jaxrag.training.optimisation import TrainState, TrainStep


@functools.cache
def make_step(
    module: RankerNetwork, settings: RankerTraining, *, steps: int, mesh: Mesh
) -> TrainStep:
    """The step of a training of ``steps`` steps; the same one, compiled once, for equal arguments.

    Args:
      module: the network.
      settings: loss, dropout and optimiser.
      steps: over which the learning rate goes.
      mesh: as of `grad_cache.data_mesh`.
    """
    return optimisation.make_step(
        settings.optimiser(steps),
        _scores(module, settings),
        _loss(settings),
        microbatch=settings.microbatch,
        mesh=mesh,
        prepare=optimisation.with_step,
        metrics=lambda batch: {"without_pair": without_pair(batch, settings.ties)},
    )


def _scores(module: RankerNetwork, settings: RankerTraining) -> grad_cache.Embed:
    """Scores [q r] of a microbatch, with dropout."""

    def noise(microbatch: RankerBatch) -> Float[Array, "q r d"]:
        shape = (microbatch.ids.shape[1], module.config.hidden_size)

        def draw(step: jax.Array, place: jax.Array) -> Float[Array, "r d"]:
            key = jax.random.fold_in(jax.random.key(settings.seed), step)
            return dropout_noise(jax.random.fold_in(key, place), shape, settings.dropout)

        return jax.vmap(draw)(microbatch.step, microbatch.place)

    def scores(params: dict[str, Any], microbatch: RankerBatch) -> Float[Array, "q r"]:
        q, r, t = microbatch.ids.shape
        ids, segments = microbatch.ids.reshape(q * r, t), microbatch.segments.reshape(q * r, t)
        where = jnp.arange(t) < microbatch.lengths.reshape(-1, 1)
        dropped = noise(microbatch).reshape(q * r, -1) if settings.dropout else None
        found: Any = module.apply({"params": params}, ids, segments, where=where, noise=dropped)
        return found.reshape(q, r)

    return scores


def _loss(settings: RankerTraining) -> grad_cache.Loss:
    """Mean over the batch's questions; the loss of one without a pair is 0."""

    def loss(scores: Float[Array, "q r"], batch: RankerBatch) -> Float[Array, ""]:
        one = partial(ranknet_loss, ties=settings.ties)
        return jax.vmap(lambda s, y, w: one(s, y, where=w))(
            scores, batch.labels, batch.where
        ).mean()

    return loss


def train(
    examples: Sequence[RankingExample],
    ranker: CrossEncoderReranker,
    settings: RankerTraining,
    directory: Path,
    *,
    evaluate: Callable[[CrossEncoderReranker, int], Evaluation] | None = None,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    """Trains a ranker, or resumes an interrupted training bit-identically.

    Args:
      examples: questions with labelled rewrites.
      ranker: the starting point, see `jaxrag.methods.ars.ranker.scorer.begin`.
      settings: see `RankerTraining`.
      directory: for checkpoints and metrics.
      evaluate: (ranker with the parameters of that step, step) -> metrics of held-out questions.
      mesh: see `grad_cache.data_mesh`; by default all devices.

    Returns:
      The parameters, on this process's first device.

    Raises:
      InputError: settings, data and the content of ``directory`` do not fit, or the loss is NaN.
    """
    mesh = mesh or grad_cache.data_mesh()
    grad_cache.check_batch(settings.batch, settings.microbatch, mesh)
    steps = settings.steps_over(len(examples))
    module: Any = ranker.module
    step = make_step(module, settings, steps=steps, mesh=mesh)

    def evaluated(state: TrainState, number: int) -> Evaluation:
        assert evaluate is not None
        params = grad_cache.local_arrays(state.params, mesh)[0]
        name = digest(canonical(hashes(flatten(params))))
        return evaluate(with_params(ranker, params, name), number)

    state = fit(
        step.begin(ranker.params),
        batches(examples, ranker, settings),
        step.update,
        steps=steps,
        directory=directory,
        what="training the ranker",
        save_every=settings.save_every,
        evaluate=evaluated if evaluate else None,
        evaluate_every=settings.evaluate_every,
    )
    return grad_cache.local_arrays(state.params, mesh)[0]
