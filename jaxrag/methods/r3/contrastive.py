"""Training of a retriever's towers, SiDR's or DPR's: batches, losses, the step, and the loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from jaxrag.functional.losses import (
    Embedded,
    distillation,
    in_batch_negatives,
    sidr_loss,
    symmetric_contrastive,
)
from jaxrag.methods.r3.settings import RetrieverTraining, Update
from jaxrag.models.bert.dpr import DprNetwork
from jaxrag.models.bert.sidr import SidrNetwork, bag_of_tokens, keep_top
from jaxrag.models.bert.towers import Side, Towers, tower
from jaxrag.retrieval import buckets
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.dpr import DprEncoder
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.training import step as training
from jaxrag.training import trainer
from jaxrag.training.checkpoints import values_name
from jaxrag.training.loop import Data, Evaluation
from jaxrag.training.step import TrainState, TrainStep, grad_cache
from jaxrag.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Network = SidrNetwork | DprNetwork
"""A network that gives one vector of a text."""

TowersEncoder = SidrEncoder | DprEncoder
"""Embeds questions and passages with parameters that change."""

Evaluate = Callable[[Any, int], Evaluation]
"""(`TowersEncoder` with the parameters of that step, step) -> metrics of each question, such as
recall."""

Keep = Callable[[Towers, float], None]
"""(parameters, share of the training that is done) -> None; writes a checkpoint of its own."""

Loss = Callable[[tuple[Array, Array], "ContrastiveBatch"], Float[Array, ""]]
"""(vectors of questions [n v] and passages [n m v], batch) -> loss."""


class Text(NamedTuple):
    """Right-padded token ids."""

    ids: Int[Any, "n t"]
    lengths: Int[Any, " n"]


class ContrastiveBatch(NamedTuple):
    """Tokenised questions and passages of a step.

    Attributes:
      passages: m passages of each question, the positive first.
      targets: log P(y|q,d) of each passage of each question, for the objective "kl".
    """

    queries: Text
    passages: Text
    targets: Float[Any, "n m"]


@functools.cache
def make_step(
    module: Network, settings: Update, *, steps: int, microbatch: int, mesh: Mesh, seed: int = 0
) -> TrainStep:
    """The training step; cached, so that equal arguments compile once.

    ``steps`` is the length of the learning-rate schedule, ``microbatch`` counts questions that are
    embedded at a time, with their passages, on all devices; ``seed`` is of dropout.
    """
    trained, loss = module.clone(dropout=settings.dropout), _loss(module, settings)
    gradient = grad_cache(functools.partial(_vectors, trained), loss)
    optimiser = settings.optimiser(steps)
    return training.make_step(gradient, optimiser, microbatch=microbatch, mesh=mesh, seed=seed)


def _vectors(
    module: Network, params: Towers, part: ContrastiveBatch, key: jax.Array
) -> tuple[Float[Array, "n v"], Float[Array, "n m v"]]:
    """Vectors of a microbatch's questions and passages, with dropout if the module has any."""

    def vectors(side: Side, text: Text, key: jax.Array) -> Float[Array, "n v"]:
        segments, variables = jnp.zeros_like(text.ids), {"params": tower(params, side)}
        applied: Any = module.apply(
            variables, text.ids, segments, where=_mask(text), rngs={"dropout": key}
        )
        return applied

    keys = jax.random.split(key)
    passages = vectors("passage", _flat(part.passages), keys[1])
    queries = vectors("query", part.queries, keys[0])
    return queries, passages.reshape(*part.passages.lengths.shape, -1)


def _flat(text: Text) -> Text:
    """[n m ...] as [nm ...]."""
    return Text(*(array.reshape(-1, *array.shape[2:]) for array in text))


def _mask(text: Text) -> Array:
    return jnp.arange(text.ids.shape[-1]) < text.lengths[..., None]


_DENSE_FORMS = {"dpr": in_batch_negatives, "paper": symmetric_contrastive}
"""Contrastive losses of DPR's vectors, which have no sparse and no token channel."""


def _loss(module: Network, settings: Update) -> Loss:
    """The loss of `Update` over the vectors of a batch."""
    sidr = module if isinstance(module, SidrNetwork) else None
    if sidr is None and settings.form not in _DENSE_FORMS:
        raise InputError(f"form is {settings.form!r}; for DPR it is 'dpr' or 'paper'.")

    def embedded(dense: Float[Array, "n v"], text: Text) -> Embedded:
        if sidr is None:
            return Embedded(dense, dense, dense)
        size, first = sidr.config.vocab_size, sidr.first
        tokens = bag_of_tokens(text.ids, where=_mask(text), vocabulary=size, first=first)
        sparse = keep_top(dense, settings.top, tokens=tokens) if settings.top else dense
        return Embedded(dense, sparse, tokens)

    def contrastive(vectors: tuple[Array, Array], batch: ContrastiveBatch) -> jax.Array:
        queries, passages = vectors[0] * root, _positives_first(vectors[1] * root)
        if sidr is None:
            loss = _DENSE_FORMS[settings.form](queries, passages).sum()
        else:
            texts = Text(*map(_positives_first, batch.passages))
            both = embedded(queries, batch.queries), embedded(passages, texts)
            loss = sidr_loss(*both, form=settings.form)
        summed = settings.form != "released"  # which is a mean
        return loss / len(queries) if settings.mean and summed else loss

    def imitation(vectors: tuple[Array, Array], batch: ContrastiveBatch) -> jax.Array:
        q = embedded(vectors[0] * root, batch.queries).sparse
        d = (vectors[1] * root).reshape(-1, q.shape[1])
        d = embedded(d, _flat(batch.passages)).sparse.reshape(vectors[1].shape)
        scores = jnp.einsum("nv,nmv->nm", q, d, precision=jax.lax.Precision.HIGHEST)
        return distillation(scores, batch.targets, temperature=settings.target_temperature)

    root = settings.temperature**-0.5
    return contrastive if settings.objective == "contrastive" else imitation


def _positives_first(array: Array) -> Array:
    """[n m ...] as [nm ...]: the positives of all questions, then the negatives."""
    return jnp.concatenate([array[:, 0], array[:, 1:].reshape(-1, *array.shape[2:])])


def make_batch(
    questions: Sequence[str],
    rows: Sequence[Sequence[int]],
    passages: Passages,
    encoder: TowersEncoder,
    *,
    tokenizer: Any = None,
    targets: np.ndarray | None = None,
) -> ContrastiveBatch:
    """Tokenises questions and, for each of them, equally many passages of the corpus.

    ``tokenizer`` replaces the encoder's, for a thread that needs its own.
    """
    pad_id = encoder.module.config.pad_token_id
    texts = [encoder.passage_text(p) for p in passages.get([r for some in rows for r in some])]
    shape = len(questions), len(rows[0])
    tokenizer = tokenizer or encoder.tokenizer
    tokens = tokenize(tokenizer, texts, limit=encoder.passage_length, pad_id=pad_id)
    return ContrastiveBatch(
        tokenize(tokenizer, questions, limit=encoder.query_length, pad_id=pad_id),
        Text(*(array.reshape(*shape, *array.shape[1:]) for array in tokens)),
        np.zeros(shape, np.float32) if targets is None else np.asarray(targets, np.float32),
    )


def tokenize(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[buckets.Text], *, limit: int, pad_id: int
) -> Text:
    """Token ids of texts, truncated to ``limit`` and padded to the bucket of the longest."""
    rows = [tokens.ids for tokens in buckets.tokenize(tokenizer, texts, limit=limit)]
    lengths = np.array([len(row) for row in rows], np.int32)
    width = buckets.bucket_width(int(lengths.max()), limit=limit)
    ids = np.full((len(rows), width), pad_id, np.int32)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
    return Text(ids, lengths)


def train_towers(
    encoder: TowersEncoder,
    data: Data,
    settings: RetrieverTraining,
    directory: Path,
    *,
    questions: int,
    name: str,
    step: Callable[[TrainStep, TrainState, Any, int], tuple[TrainState, Any]] | None = None,
    evaluate: Evaluate | None = None,
    keep: Keep | None = None,
    devices: Sequence[Any] | None = None,
) -> Towers:
    """Trains an encoder's towers, resuming from the newest checkpoint in ``directory``.

    Args:
      encoder: with the initial parameters.
      questions: number of training questions, which ``settings.epochs`` refers to.
      step: (step of a batch, state, item, its number) -> (state, metrics); by default items are
        batches.
      evaluate: see `Evaluate`.
      keep: writes the parameters after the shares of ``settings.keep``.

    InputError if settings do not fit the devices or ``directory``, or the loss is NaN.
    """
    steps = settings.steps_over(questions)
    module: Any = encoder.module  # hashable, which the type checker cannot infer
    made = make_step(
        module,
        settings.update_over(questions),
        steps=steps,
        microbatch=settings.microbatch,
        mesh=settings.mesh(devices),
        seed=settings.seed,
    )
    marks = settings.kept_after(steps)

    def update_and_keep(state: TrainState, item: Any, at: int) -> tuple[TrainState, Any]:
        state, metrics = step(made, state, item, at) if step else made.update(state, item, at)
        for share, after in marks.items():
            if keep is not None and at + 1 == after:
                keep(made.params(state), share)
        return state, metrics

    def with_values(params: Towers) -> TowersEncoder:
        # named by content: the store outlives this training, and step n of another differs
        return encoder.with_params(params, values_name(params))

    return trainer.train(
        made,
        encoder.params,
        data,
        settings,
        directory,
        steps=steps,
        name=name,
        update=update_and_keep,
        evaluate=(lambda params, at: evaluate(with_values(params), at)) if evaluate else None,
    )
