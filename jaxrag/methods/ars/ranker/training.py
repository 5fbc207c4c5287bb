"""Training ARS-RAG's ranker: RankNet over all pairs of each question's rewrites.

METHODS section 5.3. Each rewrite is encoded once a step: 10 pairs (question, rewrite) of a question
give 10 scores, and these all of its 90 ordered pairs. Pieces of a batch go through the network one
after the other, so that one device and eight end in the same bits (`jaxrag.training.pieces`);
dropout is drawn from the seed, the step and a question's place in its batch, so that it does not
know of devices or of interruptions either.
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

from jaxrag.engines.store import canonical, digest
from jaxrag.functional.ranking import ranknet_loss
from jaxrag.models.ranker import Ranker, dropout_noise
from jaxrag.retrieval.ranker import with_params
from jaxrag.retrieval.rerank import CrossEncoder
from jaxrag.training import pieces, updates
from jaxrag.training.checkpoints import flatten, hashes
from jaxrag.training.loop import Watched, fit
from jaxrag.training.ranker_data import Batch, Example, batches, without_pair
from jaxrag.training.ranker_settings import Training
from jaxrag.training.updates import State, Step


@functools.cache
def make_step(module: Ranker, settings: Training, *, steps: int, mesh: Mesh) -> Step:
    """The step of a training of ``steps`` steps; the same one, compiled once, for equal arguments.

    Args:
      module: the network.
      settings: loss, dropout and optimiser.
      steps: over which the learning rate goes.
      mesh: as of `pieces.data_mesh`.
    """
    return updates.make_step(
        settings.optimiser(steps),
        _scores(module, settings),
        _loss(settings),
        piece=settings.piece,
        mesh=mesh,
        told=lambda batch: {"without_pair": without_pair(batch, settings.ties)},
    )


def _scores(module: Ranker, settings: Training) -> pieces.Embed:
    """Scores [q r] of a piece, with dropout."""

    def noise(piece: Batch) -> Float[Array, "q r d"]:
        shape = (piece.ids.shape[1], module.config.hidden_size)

        def draw(step: jax.Array, place: jax.Array) -> Float[Array, "r d"]:
            key = jax.random.fold_in(jax.random.key(settings.seed), step)
            return dropout_noise(jax.random.fold_in(key, place), shape, settings.dropout)

        return jax.vmap(draw)(piece.step, piece.place)

    def scores(params: dict[str, Any], piece: Batch) -> Float[Array, "q r"]:
        q, r, t = piece.ids.shape
        ids, segments = piece.ids.reshape(q * r, t), piece.segments.reshape(q * r, t)
        where = jnp.arange(t) < piece.lengths.reshape(-1, 1)
        dropped = noise(piece).reshape(q * r, -1) if settings.dropout else None
        found: Any = module.apply({"params": params}, ids, segments, where=where, noise=dropped)
        return found.reshape(q, r)

    return scores


def _loss(settings: Training) -> pieces.Loss:
    """Mean over the batch's questions; one without a pair counts as 0."""

    def loss(scores: Float[Array, "q r"], batch: Batch) -> Float[Array, ""]:
        one = partial(ranknet_loss, ties=settings.ties)
        return jax.vmap(lambda s, y, w: one(s, y, where=w))(
            scores, batch.labels, batch.where
        ).mean()

    return loss


def train(
    examples: Sequence[Example],
    ranker: CrossEncoder,
    settings: Training,
    directory: Path,
    *,
    watch: Callable[[CrossEncoder, int], Watched] | None = None,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    """Trains a ranker; goes on where an earlier call in ``directory`` stopped, to the bit.

    Args:
      examples: questions with labelled rewrites.
      ranker: what training begins with, see `jaxrag.retrieval.ranker.begin`.
      settings: how.
      directory: for checkpoints and figures.
      watch: (ranker with the parameters of that step, step) -> figures of the questions held out.
      mesh: as of `pieces.data_mesh`; by default all devices.

    Returns:
      The parameters, on this process's first device.

    Raises:
      InputError: settings, data or what is in ``directory`` do not fit; or the loss is NaN.
    """
    mesh = mesh or pieces.data_mesh()
    pieces.check_batch(settings.batch, settings.piece, mesh)
    steps = settings.steps_over(len(examples))
    module: Any = ranker.module
    step = make_step(module, settings, steps=steps, mesh=mesh)

    def watched(state: State, number: int) -> Watched:
        assert watch is not None
        params = pieces.apart(state.params, mesh)[0]
        told = digest(canonical(hashes(flatten(params))))
        return watch(with_params(ranker, params, told), number)

    state = fit(
        step.begin(ranker.params),
        batches(examples, ranker, settings),
        step.update,
        steps=steps,
        directory=directory,
        what="training the ranker",
        save_every=settings.save_every,
        watch=watched if watch else None,
        watch_every=settings.watch_every,
    )
    return pieces.apart(state.params, mesh)[0]
