"""One step of training SiDR: questions, their passages, and a loss between the two.

What SiDR itself (`jaxrag.methods.r3.sidr_training`) and R3 (`jaxrag.methods.r3.training`) have in
common. They differ in where a batch comes from.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from jaxrag.functional.losses import Embedded, Form, distillation, sidr_loss
from jaxrag.models.bert.sidr import SidrNetwork, Towers, bag_of_tokens, keep_top, tower
from jaxrag.retrieval import buckets
from jaxrag.training import grad_cache, optimisation
from jaxrag.training.optimisation import TrainStep, learning_rate, make_optimiser
from jaxrag.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Objective = Literal["contrastive", "kl"]


class Text(NamedTuple):
    """Right-padded token ids."""

    ids: Int[Any, "n t"]
    lengths: Int[Any, " n"]


class Batch(NamedTuple):
    """Questions and what is trained on.

    Attributes:
      queries: n questions.
      passages: the m passages of the first question, the positive first, then of the second, ...
      targets: log P(y|q,d) of each passage of each question, what the "kl" objective imitates.
    """

    queries: Text
    passages: Text
    targets: Float[Any, "n m"]


@dataclasses.dataclass(frozen=True)
class Update:
    """How the parameters are changed.

    Attributes:
      objective: "contrastive", SiDR's and R3's; "kl", RePlug's and R3's ablation.
      form: of the contrastive loss, see `jaxrag.functional.losses.sidr_loss`.
      temperature: of E(q) . E(d) in the loss; vectors are divided by its root, so that it acts on
        E . T by its root. Search, which orders, is the same at any. The paper's is 1, from a BERT
        that took thousands of steps to fit it; where inner products begin in the hundreds, a
        passage that is wrong costs hundreds of nats, and a few noisy ones undo the network.
      target_temperature: of the targets of "kl".
      top: entries, besides those of the text's own tokens, that sparsified vectors keep; 0
        sparsifies nothing.
      learning_rate: the highest.
      warmup: steps over which it rises from 0.
      decay: whether it then falls to 0, along a line, over the rest of the steps.
      weight_decay: AdamW's.
      clip: largest norm of a gradient; 0 clips nothing.
      mean: whether the paper's loss, a sum over the batch, is divided by the batch's size. AdamW
        hardly notices, but the clip does.
    """

    objective: Objective = "contrastive"
    form: Form = "paper"
    temperature: float = 1.0
    target_temperature: float = 1.0
    top: int = 768
    learning_rate: float = 2e-5
    warmup: int = 0
    decay: bool = True
    weight_decay: float = 0.0
    clip: float = 2.0
    mean: bool = True

    def __post_init__(self) -> None:
        if self.objective not in ("contrastive", "kl"):
            raise InputError(f"objective is {self.objective!r}; allowed are contrastive and kl.")
        if self.form not in ("paper", "released"):
            raise InputError(f"form is {self.form!r}; allowed are 'paper' and 'released'.")
        for name in ("temperature", "target_temperature", "learning_rate"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; it is to be above 0.")
        for name in ("top", "warmup", "weight_decay", "clip"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} is {getattr(self, name)}; it is to be 0 or more.")

    def optimiser(self, steps: int) -> optax.GradientTransformation:
        """AdamW for a training of ``steps`` steps."""
        decay = "linear" if self.decay else "constant"
        rate = learning_rate(self.learning_rate, steps, warmup=self.warmup, decay=decay)
        return make_optimiser(rate, weight_decay=self.weight_decay, clip=self.clip)


@functools.cache
def make_step(
    module: SidrNetwork, settings: Update, *, steps: int, microbatch: int, mesh: Mesh
) -> TrainStep:
    """The step of a training of ``steps`` steps; equal arguments give the same compiled one.

    Args:
      module: the tower, or both of them.
      settings: loss and optimiser.
      steps: over which the learning rate goes.
      microbatch: questions that are embedded at a time, with their passages.
      mesh: as of `grad_cache.data_mesh`.
    """
    return optimisation.make_step(
        settings.optimiser(steps),
        _embed(module),
        _loss(module, settings),
        microbatch=microbatch,
        mesh=mesh,
        prepare=_per_question,
    )


def _per_question(batch: Batch, _: int) -> Batch:
    """The batch with passages as [n m ...], so that every array has a row for each question."""
    n = len(batch.queries.ids)
    passages = Text(*(array.reshape(n, -1, *array.shape[1:]) for array in batch.passages))
    return batch._replace(passages=passages)


def _flat(text: Text) -> Text:
    """[n m ...] as [nm ...]."""
    return Text(*(array.reshape(-1, *array.shape[2:]) for array in text))


def _where(text: Text) -> Array:
    return jnp.arange(text.ids.shape[-1]) < text.lengths[..., None]


def _embed(module: SidrNetwork) -> grad_cache.Embed:
    def vectors(params: Any, text: Text) -> Float[Array, "n v"]:
        found: Any = module.apply(
            {"params": params}, text.ids, jnp.zeros_like(text.ids), where=_where(text)
        )
        return found

    def embed(params: Towers, microbatch: Batch) -> tuple[Array, Array]:
        passages = vectors(tower(params, "passage"), _flat(microbatch.passages))
        queries = vectors(tower(params, "query"), microbatch.queries)
        return queries, passages.reshape(*microbatch.passages.lengths.shape, -1)

    return embed


def _loss(module: SidrNetwork, settings: Update) -> grad_cache.Loss:
    def tokens(text: Text) -> Float[Array, "n v"]:
        return bag_of_tokens(
            text.ids,
            where=_where(text),
            vocabulary=module.config.vocab_size,
            first=module.first,
        )

    def sparsified(dense: Float[Array, "n v"], text: Text) -> Float[Array, "n v"]:
        return keep_top(dense, settings.top, tokens=tokens(text)) if settings.top else dense

    def embedded(dense: Float[Array, "n v"], text: Text) -> Embedded:
        return Embedded(dense, sparsified(dense, text), tokens(text))

    def softened(vectors: tuple[Array, Array]) -> tuple[Array, Array]:
        queries, passages = vectors
        return queries * settings.temperature**-0.5, passages * settings.temperature**-0.5

    def contrastive(vectors: tuple[Array, Array], batch: Batch) -> jax.Array:
        queries, passages = softened(vectors)
        every = Text(*map(_positives_first, batch.passages))
        loss = sidr_loss(
            embedded(queries, batch.queries),
            embedded(_positives_first(passages), every),
            form=settings.form,
        )
        return loss / len(queries) if settings.mean and not released else loss

    def imitation(vectors: tuple[Array, Array], batch: Batch) -> jax.Array:
        queries, passages = softened(vectors)
        q = sparsified(queries, batch.queries)
        d = sparsified(passages.reshape(-1, q.shape[1]), _flat(batch.passages))
        d = d.reshape(passages.shape)
        scores = jnp.einsum("nv,nmv->nm", q, d, precision=jax.lax.Precision.HIGHEST)
        return distillation(scores, batch.targets, temperature=settings.target_temperature)

    released = settings.form == "released"
    return contrastive if settings.objective == "contrastive" else imitation


def _positives_first(array: Array) -> Array:
    """[n m ...] as [nm ...]: the positives of all questions, then the negatives."""
    return jnp.concatenate([array[:, 0], array[:, 1:].reshape(-1, *array.shape[2:])])


def tokenize(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], *, limit: int, pad_id: int
) -> Text:
    """Token ids of texts, all as wide as the bucket of the longest.

    Args:
      tokenizer: adds the special tokens.
      texts: of a whole batch, since the width is theirs.
      limit: tokens that a text is cut to.
      pad_id: fills up.
    """
    found = buckets.tokenize(tokenizer, texts, limit=limit)
    lengths = np.array([len(tokens.ids) for tokens in found], np.int32)
    ids = np.full((len(found), buckets.bucket_width(int(lengths.max()), limit=limit)), pad_id)
    for row, tokens in enumerate(found):
        ids[row, : len(tokens.ids)] = tokens.ids
    return Text(ids.astype(np.int32), lengths)
