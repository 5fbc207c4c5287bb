"""Training ARS-RAG's ranker: RankNet over all pairs of each question's rewrites.

A batch has pairs, as in the paper, or questions: then each rewrite is encoded once a step, and the
10 scores of a question's rewrites give all of its 90 ordered pairs.

Source: docs/methods, "ARS-RAG: ranker".
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
from jaxrag.training import step as training
from jaxrag.training import trainer
from jaxrag.training.checkpoints import values_name
from jaxrag.training.loop import Evaluation
from jaxrag.training.optimisation import check_optimiser, scheduled_optimiser
from jaxrag.training.step import TrainStep
from jaxrag.training.trainer import TrainingSettings


@dataclasses.dataclass(frozen=True)
class RankerTraining(TrainingSettings):
    """The training of ARS-RAG's ranker (docs/methods, "ARS-RAG: ranker").

    The paper: batches of 64 pairs, 100 epochs, AdamW at 5e-5 with weight decay 0.01, a cosine
    schedule, dropout 0.1, BCE-with-logits. It does not mention ties, warm-up and clipping; weight
    decay applies to all parameters, as in PyTorch's AdamW.

    Attributes:
      unit: the examples of a batch. "pairs", as in the paper: two rewrites of a question, which are
        encoded for that pair. "questions": all pairs of a question at once, whose rewrites are
        encoded once; an epoch of ten rewrites a question then costs a ninth.
      ties: treatment of pairs of equal labels, see `jaxrag.functional.ranking.Ties`.
      dropout: of the pooled state, before the head.
      encoder_dropout: inside the BERT, see `jaxrag.models.bert.network`; BERT's own rate. Whether
        the paper's 0.1 means both is not stated. Off in evaluations, as ``dropout``.
      learning_rate: the maximum; it decays to 0 along a half cosine.
      warmup: steps of linear increase before the decay.
      clip: maximum norm of a gradient; 0: no clipping.
    """

    epochs: float = 100.0
    unit: Unit = "pairs"
    ties: Ties = "half"
    dropout: float = 0.1
    encoder_dropout: float = 0.1
    learning_rate: float = 5e-5
    warmup: int = 0
    weight_decay: float = 0.01
    clip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optimiser(self, "warmup", "weight_decay", "clip")
        check_choices(self, ties=Ties, unit=Unit)
        check_share(dropout=self.dropout, encoder_dropout=self.encoder_dropout)

    def optimiser(self, steps: int) -> optax.GradientTransformation:
        """AdamW for a training of ``steps`` steps."""
        return scheduled_optimiser(self, steps, decay="cosine")


@functools.cache
def make_step(
    module: RankerNetwork, settings: RankerTraining, *, steps: int, mesh: Mesh
) -> TrainStep:
    """The step of a training of ``steps`` steps; cached, so equal arguments compile once."""
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
    scores: Any = module.apply(
        {"params": params}, ids, segments, where=where, noise=noise, rngs={"dropout": keys[1]}
    )
    return scores.reshape(q, r)


def train(
    examples: Sequence[RankingExample],
    ranker: CrossEncoderReranker,
    settings: RankerTraining,
    directory: Path,
    *,
    evaluate: Callable[[CrossEncoderReranker, int], Evaluation] | None = None,
    devices: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Trains a ranker, or resumes a training; its parameters on this process's devices.

    Args:
      ranker: the starting point, see `jaxrag.methods.ars.ranker.scorer.begin`.
      evaluate: (ranker with the parameters of that step, step) -> metrics of held-out questions.

    InputError if settings, data and the content of ``directory`` do not fit, or the loss is NaN.
    """
    unit, ties = settings.unit, settings.ties
    steps = settings.steps_over(number_of(examples, unit, ties))
    module: Any = ranker.module

    def with_values(params: dict[str, Any]) -> CrossEncoderReranker:
        return with_params(ranker, params, values_name(params))

    return trainer.train(
        make_step(module, settings, steps=steps, mesh=settings.mesh(devices)),
        ranker.params,
        batches(examples, ranker, settings.batch, seed=settings.seed, unit=unit, ties=ties),
        settings,
        directory,
        steps=steps,
        name="training the ranker",
        evaluate=(lambda params, at: evaluate(with_values(params), at)) if evaluate else None,
    )
