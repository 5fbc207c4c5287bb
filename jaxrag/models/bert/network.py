"""BERT and XLM-RoBERTa encoders, and the cross-encoder rerankers made from them.

Devlin et al. (2019); Conneau et al. (2020). Modules are named as in Hugging Face's checkpoints. In
training, ``dropout`` applies where BERT's first release has it: embeddings, attention weights, and
both sums of a layer before the residual. It needs the random stream "dropout".
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.layers import ACTIVATIONS, Embedding, LayerNorm, Linear
from jaxrag.models.precision import matmul_precision


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Architecture of an encoder.

    ``family`` is "bert" or "roberta"; RoBERTa counts positions from ``pad_token_id`` + 1 and has
    another classification head.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    hidden_act: str
    pad_token_id: int
    num_labels: int
    family: str

    @property
    def max_tokens(self) -> int:
        """The longest input that has positions."""
        taken = self.pad_token_id + 1 if self.family == "roberta" else 0
        return self.max_position_embeddings - taken


class BertEmbeddings(nn.Module):
    """Word, position and segment embeddings, summed and normalised."""

    config: BertConfig
    dtype: Any
    dropout: float = 0.0

    @nn.compact
    def __call__(
        self, ids: Int[Array, "b t"], segments: Int[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        c, shape = self.config, ids.shape

        def embed(name: str, rows: int, ids: Int[Array, "_ t"]) -> Float[Array, "_ t d"]:
            vectors = Embedding(rows, c.hidden_size, name=f"{name}_embeddings")(ids)
            # all rows before they are rounded, so that derivatives are summed in float32
            return jnp.broadcast_to(vectors, (*shape, c.hidden_size)).astype(self.dtype)

        words = embed("word", c.vocab_size, ids)
        positions = embed("position", c.max_position_embeddings, _positions(ids, c))
        summed = words + positions + embed("token_type", c.type_vocab_size, segments)
        return _dropped(LayerNorm(c.layer_norm_eps, name="LayerNorm")(summed), self.dropout)


def _dropped(x: Float[Array, "*n"], rate: float) -> Float[Array, "*n"]:
    """Inverted dropout (Srivastava et al. 2014) from the stream "dropout" of the module around."""
    return nn.Dropout(rate, deterministic=False)(x) if rate else x


def _positions(ids: Int[Array, "b t"], config: BertConfig) -> Int[Array, "_ t"]:
    """The row of each token's position; those of BERT are the same for all texts."""
    if config.family == "bert":
        return jnp.arange(ids.shape[1])[None]
    real = ids != config.pad_token_id
    return jnp.where(real, jnp.cumsum(real, axis=1), 0) + config.pad_token_id


class BertSelfAttention(nn.Module):
    """Multi-head attention of every token to the tokens that ``where`` marks."""

    config: BertConfig
    dropout: float = 0.0

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        heads = self.config.num_attention_heads

        def project(name: str) -> Float[Array, "b t h f"]:
            y = Linear(self.config.hidden_size, name=name)(x)
            return y.reshape(*y.shape[:2], heads, -1)

        drop = functools.partial(_dropped, rate=self.dropout) if self.dropout else None
        return attend(project("query"), project("key"), project("value"), where=where, drop=drop)


def attend(
    query: Float[Array, "b t h f"],
    key: Float[Array, "b t h f"],
    value: Float[Array, "b t h f"],
    *,
    where: Bool[Array, "b t"],
    drop: Callable[[Array], Array] | None = None,
) -> Float[Array, "b t h*f"]:
    """Scaled dot-product attention of every token to the tokens that ``where`` marks.

    ``drop`` is applied to the weights. Without it, an NVIDIA GPU computes 16-bit attention by
    cuDNN's kernel, if it has one for these sizes.
    """
    if drop is None and has_fused_attention(query):
        return fused_attention(query, key, value, where, implementation="cudnn")
    query = query * query.shape[-1] ** -0.5
    # With keys before queries and the division after the sum, a CPU's reductions run along
    # contiguous vectors, which makes attention twice as fast; accelerators do not care.
    sums = jnp.float32
    logits = jnp.einsum("bkhf,bqhf->bhkq", key, query, preferred_element_type=sums)
    # finite, so that a row of padding alone does not become NaN
    logits = jnp.where(where[:, None, :, None], logits, jnp.finfo(jnp.float32).min)
    weights = jnp.exp(logits - logits.max(axis=2, keepdims=True))
    rounded = weights.astype(value.dtype)
    rounded = rounded if drop is None else drop(rounded)
    summed = jnp.einsum("bkhf,bhkq->bhfq", value, rounded, preferred_element_type=sums)
    mean = summed / weights.sum(axis=2)[:, :, None, :]
    return mean.transpose(0, 3, 1, 2).reshape(*value.shape[:2], -1).astype(value.dtype)


def has_fused_attention(query: Float[Array, "b t h f"]) -> bool:
    """Whether cuDNN has a kernel of attention for these queries, and for its derivative."""
    device = jax.devices()[0]
    if device.platform != "gpu" or "cuda" not in device.client.platform_version:
        return False
    (_, t, _, f), capability = query.shape, float(device.compute_capability)
    sizes = t % 2 == 0 and f % 8 == 0 and f <= (256 if capability >= 9 else 128)
    return sizes and capability >= 8 and query.dtype in (jnp.bfloat16, jnp.float16)


def fused_attention(
    query: Float[Array, "b t h f"],
    key: Float[Array, "b t h f"],
    value: Float[Array, "b t h f"],
    where: Bool[Array, "b t"],
    *,
    implementation: Literal["cudnn", "xla"],
) -> Float[Array, "b t h*f"]:
    """`attend` by JAX's own function, which stores no weights in memory with "cudnn"."""
    b, t, *_ = query.shape
    mask = jnp.broadcast_to(where[:, None, None, :], (b, 1, t, t))
    attend = functools.partial(jax.nn.dot_product_attention, implementation=implementation)
    return attend(query, key, value, mask=mask).reshape(b, t, -1)


class BertResidual(nn.Module):
    """LayerNorm(x + dense(y)), the end of both halves of a layer."""

    config: BertConfig
    dropout: float = 0.0

    @nn.compact
    def __call__(self, y: Float[Array, "b t f"], x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        y = _dropped(Linear(self.config.hidden_size, name="dense")(y), self.dropout)
        return LayerNorm(self.config.layer_norm_eps, name="LayerNorm")(x + y)


class BertLayer(nn.Module):
    """Attention, then feed-forward, both with post-normalisation."""

    config: BertConfig
    dropout: float = 0.0

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        c, rate = self.config, self.dropout
        y = BertSelfAttention(c, rate, name="attention.self")(x, where=where)
        x = BertResidual(c, rate, name="attention.output")(y, x)
        y = Linear(c.intermediate_size, name="intermediate.dense")(x)
        return BertResidual(c, rate, name="output")(ACTIVATIONS[c.hidden_act](y), x)


class BertEncoder(nn.Module):
    """Hidden states of the last layer; with ``pooled``, tanh(dense(first token)) instead."""

    config: BertConfig
    dtype: Any = jnp.float32
    pooled: bool = False
    dropout: float = 0.0

    @nn.compact
    def __call__(
        self, ids: Int[Array, "b t"], segments: Int[Array, "b t"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b t d"] | Float[Array, "b d"]:
        c = self.config
        with matmul_precision(self.dtype):
            x = BertEmbeddings(c, self.dtype, self.dropout, name="embeddings")(ids, segments)
            # one trace serves all layers; not with dropout, whose random numbers might change
            layer = BertLayer if self.dropout else nn.jit(BertLayer)
            for i in range(c.num_hidden_layers):
                x = layer(c, self.dropout, name=f"encoder.layer.{i}")(x, where=where)
            if not self.pooled:
                return x
            return jnp.tanh(Linear(c.hidden_size, name="pooler.dense")(x[:, 0]))


class BertClassifier(nn.Module):
    """Logits [b, num_labels] in float32: with one label, a cross-encoder's relevance score."""

    config: BertConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, ids: Int[Array, "b t"], segments: Int[Array, "b t"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b l"]:
        c, bert = self.config, self.config.family == "bert"
        x: Any = BertEncoder(c, self.dtype, bert, name=c.family)(ids, segments, where=where)
        with matmul_precision(self.dtype):
            if not bert:  # RoBERTa's head: out_proj(tanh(dense(first token)))
                x = jnp.tanh(Linear(c.hidden_size, name="classifier.dense")(x[:, 0]))
            head = Linear(c.num_labels, name="classifier" if bert else "classifier.out_proj")
            return head(x).astype(jnp.float32)


def mean_pool(hidden: Float[Array, "b t d"], *, where: Bool[Array, "b t"]) -> Float[Array, "b d"]:
    """Mean of the hidden states that ``where`` marks, in float32; zero where it marks none."""
    sums = jnp.where(where[..., None], hidden.astype(jnp.float32), 0.0).sum(axis=1)
    return sums / jnp.maximum(where.sum(axis=1, keepdims=True), 1)


def cls_pool(hidden: Float[Array, "b t d"]) -> Float[Array, "b d"]:
    """The first token's hidden state, in float32."""
    return hidden[:, 0].astype(jnp.float32)


def _weighted_pool(hidden: Float[Array, "b t d"], where: Bool[Array, "b t"]) -> Float[Array, "b d"]:
    weights = where * jnp.arange(1.0, where.shape[1] + 1)  # a token's position, from 1
    weights /= jnp.maximum(weights.sum(axis=1, keepdims=True), 1)
    return (hidden.astype(jnp.float32) * weights[..., None]).sum(axis=1)


POOLINGS: dict[str, Callable[..., jax.Array]] = {
    "cls": lambda hidden, where: cls_pool(hidden),
    "max": lambda hidden, where: jnp.where(where[..., None], hidden, -jnp.inf).max(axis=1),
    "mean": lambda hidden, where: mean_pool(hidden, where=where),
    "mean_sqrt_len_tokens": lambda hidden, where: (
        mean_pool(hidden, where=where) * jnp.sqrt(where.sum(axis=1, keepdims=True))
    ),
    "weightedmean": _weighted_pool,
    "lasttoken": lambda hidden, where: hidden[jnp.arange(len(where)), where.sum(axis=1) - 1],
}
"""Vectors of right-padded texts by the names of sentence-transformers, in the order of joining."""


def pool(
    hidden: Float[Array, "b t d"], pooling: str, *, where: Bool[Array, "b t"]
) -> Float[Array, "b e"]:
    """A vector of `POOLINGS`, or several one after the other ("cls+mean"), in float32."""
    parts = [POOLINGS[kind](hidden, where) for kind in pooling.split("+")]
    return jnp.concatenate(parts, axis=1).astype(jnp.float32)
