"""Training ARS-RAG's ranker: RankNet over all pairs of each question's rewrites.

A batch has pairs, as in the paper, or questions: then each rewrite is encoded once a step, and the
10 scores of a question's rewrites give all of its 90 ordered pairs.

Source: docs/methods.md, "ARS-RAG: ranker".
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from jaxrag.core.checks import check_choices, check_share
from jaxrag.functional.ranking import Ties, ranknet_loss
from jaxrag.methods.ars.ranker.data import (
    RankerBatch,
    RankingExample,
    Unit,
    batches,
    number_of,
    without_pair,
)
from jaxrag.methods.ars.ranker.scorer import with_params
from jaxrag.models.bert.rewrite_ranker import RankerNetwork, dropout_noise
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.training import optimisation
from jaxrag.training import step as training
from jaxrag.training.checkpoints import values_name
from jaxrag.training.loop import Evaluation, fit
from jaxrag.training.step import TrainState, TrainStep


@dataclasses.dataclass(frozen=True)
class RankerTraining:
    """The training of ARS-RAG's ranker (docs/methods.md, "ARS-RAG: ranker").

    The paper: batches of 64 pairs, 100 epochs, AdamW at 5e-5 with weight decay 0.01, a cosine
    schedule, dropout 0.1, BCE-with-logits. It does not mention ties, warm-up and clipping; weight
    decay applies to all parameters, as in PyTorch's AdamW.

    Attributes:
      steps: number of steps; 0: as many as ``epochs`` need.
      epochs: passes over the pairs, or the questions.
      unit: what ``batch`` counts. "pairs", as in the paper: two rewrites of a question, which are
        encoded for that pair. "questions": all pairs of a question at once, whose rewrites are
        encoded once; an epoch of ten rewrites a question then costs a ninth.
      batch: pairs or questions per step, on all devices together.
      microbatch: pairs, or questions with all their rewrites, that pass through the network at a
        time, on all devices together: divides the batch, and as many devices as divide it are used.
      fsdp: devices that share one copy of the parameters and of the optimiser's state.
      ties: treatment of pairs of equal labels, see `jaxrag.functional.ranking.Ties`.
      dropout: of the pooled state, before the head.
      encoder_dropout: inside the BERT, see `jaxrag.models.bert.network`; BERT's own rate. Whether
        the paper's 0.1 means both is not stated. Off in evaluations, as ``dropout``.
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
    unit: Unit = "pairs"
    batch: int = 64
    microbatch: int = 8
    fsdp: int = 1
    ties: Ties = "half"
    dropout: float = 0.1
    encoder_dropout: float = 0.1
    learning_rate: float = 5e-5
    warmup: int = 0
    weight_decay: float = 0.01
    clip: float = 0.0
    seed: int = 0
    save_every: int = 100
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        optimisation.check_length(self.steps, self.epochs, self.seed)
        optimisation.check_optimiser(self, "warmup", "weight_decay", "clip")
        check_choices(self, ties=Ties, unit=Unit)
        check_share(dropout=self.dropout, encoder_dropout=self.encoder_dropout)

    def steps_over(self, examples: Sequence[RankingExample]) -> int:
        """Steps of a training on some questions."""
        count = number_of(examples, self.unit, self.ties)
        return self.steps or max(1, round(self.epochs * count / self.batch))

    def optimiser(self, steps: int) -> optax.GradientTransformation:
        """AdamW for a training of ``steps`` steps."""
        rate = optimisation.learning_rate(
            self.learning_rate, steps, warmup=self.warmup, decay="cosine"
        )
        return optimisation.make_optimiser(rate, weight_decay=self.weight_decay, clip=self.clip)


@functools.cache
def make_step(
    module: RankerNetwork, settings: RankerTraining, *, steps: int, mesh: Mesh
) -> TrainStep:
    """The step of a training of ``steps`` steps; cached, so equal arguments compile once.

    Args:
      module: the network.
      settings: loss, dropout and optimiser.
      steps: over which the learning rate goes.
      mesh: see `jaxrag.training.step.training_mesh`.
    """
    trained = module.clone(dropout=settings.encoder_dropout)

    def loss(params: dict[str, Any], part: RankerBatch, key: jax.Array) -> Float[Array, ""]:
        scores = _scores(trained, params, part, key, dropout=settings.dropout)
        one = partial(ranknet_loss, ties=settings.ties)
        return jax.vmap(lambda s, y, w: one(s, y, where=w))(scores, part.labels, part.where).sum()

    return training.make_step(
        training.summed(loss, lambda parts: parts.labels[..., 0].size),
        settings.optimiser(steps),
        microbatch=settings.microbatch,
        mesh=mesh,
        seed=settings.seed,
        metrics=lambda batch: {"without_pair": without_pair(batch, settings.ties)},
    )


def _scores(
    module: RankerNetwork,
    params: dict[str, Any],
    part: RankerBatch,
    key: jax.Array,
    *,
    dropout: float,
) -> Float[Array, "q r"]:
    """Scores of a microbatch, with dropout of the pooled state and inside the encoder."""
    (q, r, t), keys = part.ids.shape, jax.random.split(key)
    ids, segments = part.ids.reshape(q * r, t), part.segments.reshape(q * r, t)
    where = jnp.arange(t) < part.lengths.reshape(-1, 1)
    shape = (q * r, module.config.hidden_size)
    noise = dropout_noise(keys[0], shape, dropout) if dropout else None
    found: Any = module.apply(
        {"params": params}, ids, segments, where=where, noise=noise, rngs={"dropout": keys[1]}
    )
    return found.reshape(q, r)


def train(
    examples: Sequence[RankingExample],
    ranker: CrossEncoderReranker,
    settings: RankerTraining,
    directory: Path,
    *,
    evaluate: Callable[[CrossEncoderReranker, int], Evaluation] | None = None,
    devices: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Trains a ranker, or resumes an interrupted training.

    Args:
      examples: questions with labelled rewrites.
      ranker: the starting point, see `jaxrag.methods.ars.ranker.scorer.begin`.
      settings: see `RankerTraining`.
      directory: for checkpoints and metrics.
      evaluate: (ranker with the parameters of that step, step) -> metrics of held-out questions.
      devices: see `jaxrag.training.step.training_mesh`.

    Returns:
      The parameters, on this process's devices.

    Raises:
      InputError: settings, data and the content of ``directory`` do not fit, or the loss is NaN.
    """
    mesh = training.training_mesh(
        settings.batch, settings.microbatch, fsdp=settings.fsdp, devices=devices
    )
    steps = settings.steps_over(examples)
    module: Any = ranker.module
    step = make_step(module, settings, steps=steps, mesh=mesh)

    def evaluated(state: TrainState, number: int) -> Evaluation:
        assert evaluate is not None
        params = training.local_copy(state.params, mesh)
        return evaluate(with_params(ranker, params, values_name(params)), number)

    state = fit(
        step.begin(ranker.params),
        batches(
            examples,
            ranker,
            settings.batch,
            seed=settings.seed,
            unit=settings.unit,
            ties=settings.ties,
        ),
        step.update,
        steps=steps,
        directory=directory,
        what="training the ranker",
        save_every=settings.save_every,
        evaluate=evaluated if evaluate else None,
        evaluate_every=settings.evaluate_every,
    )
    return training.local_copy(state.params, mesh)
