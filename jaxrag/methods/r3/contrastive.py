"""One step of training SiDR: questions, their passages, and a loss between the two.

What SiDR itself (`jaxrag.training.sidr`) and R3 (`jaxrag.training.r3`) have in common. They differ
in where a batch comes from.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from jaxrag.functional.losses import Embedded, Form, distillation, sidr_loss
from jaxrag.models.sidr import Sidr, Towers, bag_of_tokens, keep_top, tower
from jaxrag.retrieval import buckets
from jaxrag.training import pieces
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


class State(NamedTuple):
    """What training changes."""

    params: Towers
    optimiser: Any


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

    def schedule(self, steps: int) -> optax.Schedule:
        """The learning rate of each of ``steps`` steps."""
        peak, warmup = self.learning_rate, self.warmup
        after = (
            optax.linear_schedule(peak, 0.0, max(steps - warmup, 1))
            if self.decay
            else optax.constant_schedule(peak)
        )
        # the first step has a rate above 0, too
        rise = optax.linear_schedule(peak / (warmup + 1), peak, warmup)
        return optax.join_schedules([rise, after], [warmup]) if warmup else after

    def optimiser(self, steps: int) -> optax.GradientTransformation:
        """AdamW with a clipped gradient."""
        adamw = optax.adamw(self.schedule(steps), weight_decay=self.weight_decay)
        return optax.chain(optax.clip_by_global_norm(self.clip), adamw) if self.clip else adamw


class Step(NamedTuple):
    """The functions of one training step.

    Attributes:
      begin: parameters -> the state that training begins with, on all devices.
      update: (state, batch of NumPy arrays) -> (state, {"loss", "norm", "rate"}); the state that
        it is given is used up.
    """

    begin: Callable[[Towers], State]
    update: Callable[[State, Batch], tuple[State, dict[str, jax.Array]]]


@functools.cache
def make_step(module: Sidr, settings: Update, *, steps: int, piece: int, mesh: Mesh) -> Step:
    """The step of a training of ``steps`` steps; the same one, compiled once, for equal arguments.

    Args:
      module: the tower, or both of them.
      settings: loss and optimiser.
      steps: over which the learning rate goes.
      piece: questions that are embedded at a time, with their passages.
      mesh: as of `pieces.data_mesh`.
    """
    optimiser = settings.optimiser(steps)
    gradient = pieces.make_gradient(_embed(module), _loss(module, settings), mesh)

    @partial(jax.jit, donate_argnums=0)
    def change(state: State, slopes: Towers) -> tuple[State, jax.Array]:
        updates, inner = optimiser.update(slopes, state.optimiser, state.params)
        params: Any = optax.apply_updates(state.params, updates)  # pyright: ignore
        return State(params, inner), optax.tree.norm(slopes)

    def begin(params: Towers) -> State:
        return pieces.replicate(State(params, optimiser.init(params)), mesh)

    def update(state: State, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        pieces.check_batch(len(batch.queries.ids), piece, mesh)
        held = pieces.apart(state, mesh)
        parts = pieces.place(_per_question(batch), piece, mesh)
        found = gradient([one.params for one in held], parts)
        changed = pieces.on_each(change, held, found.slopes)
        state = pieces.together([one for one, _ in changed], mesh, P())
        return state, {"loss": found.loss[0], "norm": changed[0][1]}

    return Step(begin, update)


def _per_question(batch: Batch) -> Batch:
    """The same batch with passages as [n m ...], so that pieces cut it by questions."""
    n = len(batch.queries.ids)
    passages = Text(*(array.reshape(n, -1, *array.shape[1:]) for array in batch.passages))
    return batch._replace(passages=passages)


def _flat(text: Text) -> Text:
    """[n m ...] as [nm ...]."""
    return Text(*(array.reshape(-1, *array.shape[2:]) for array in text))


def _where(text: Text) -> Array:
    return jnp.arange(text.ids.shape[-1]) < text.lengths[..., None]


def _embed(module: Sidr) -> pieces.Embed:
    def vectors(params: Any, text: Text) -> Float[Array, "n v"]:
        found: Any = module.apply(
            {"params": params}, text.ids, jnp.zeros_like(text.ids), where=_where(text)
        )
        return found

    def embed(params: Towers, piece: Batch) -> tuple[Array, Array]:
        passages = vectors(tower(params, "passage"), _flat(piece.passages))
        queries = vectors(tower(params, "query"), piece.queries)
        return queries, passages.reshape(*piece.passages.lengths.shape, -1)

    return embed


def _loss(module: Sidr, settings: Update) -> pieces.Loss:
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
