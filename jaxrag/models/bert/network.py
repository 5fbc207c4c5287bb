"""BERT and XLM-RoBERTa encoders, and the cross-encoder rerankers made from them.

Devlin et al. (2019); Conneau et al. (2020). Modules are nested and named as in Hugging Face's
checkpoints, and matrices keep their [out, in] layout: a parameter tree flattened with dots has
exactly the names of the file. Dropout is absent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.precision import linear, matmul_precision

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}
_NORMAL = nn.initializers.normal(0.02)


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The shape of an encoder.

    ``family`` is "bert" or "roberta"; the second counts positions from ``pad_token_id`` + 1 and
    has its own classification head.
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


class BertLinear(nn.Module):
    """x W^T + b, with W as [out, in]."""

    features: int
    dtype: Any

    @nn.compact
    def __call__(self, x: Float[Array, "*n i"]) -> Float[Array, "*n o"]:
        weight = self.param("weight", _NORMAL, (self.features, x.shape[-1]))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        weight, bias = weight.astype(self.dtype), bias.astype(self.dtype)
        if self.features == 1:
            # On a CPU, a matrix times a vector rounds according to where in the matrix a row is;
            # a reranker's score may not depend on that.
            return jnp.sum(x * weight[0], axis=-1, keepdims=True) + bias
        return linear(x, weight) + bias


class LayerNorm(nn.Module):
    """Layer normalisation over the last axis, computed in float32."""

    eps: float
    dtype: Any

    @nn.compact
    def __call__(self, x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        weight = self.param("weight", nn.initializers.ones, (x.shape[-1],))
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
        x = x.astype(jnp.float32)
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + self.eps)
        return (centred * scale * weight + bias).astype(self.dtype)


class BertEmbedding(nn.Module):
    """Rows of a table."""

    rows: int
    features: int
    dtype: Any

    @nn.compact
    def __call__(self, ids: Int[Array, "*n"]) -> Float[Array, "*n d"]:
        weight = self.param("weight", _NORMAL, (self.rows, self.features))
        return weight[ids].astype(self.dtype)


class BertEmbeddings(nn.Module):
    """Word, position and segment embeddings, summed and normalised."""

    config: BertConfig
    dtype: Any

    @nn.compact
    def __call__(
        self, ids: Int[Array, "b t"], segments: Int[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        c, d = self.config, self.dtype
        words = BertEmbedding(c.vocab_size, c.hidden_size, d, name="word_embeddings")(ids)
        positions = BertEmbedding(
            c.max_position_embeddings, c.hidden_size, d, name="position_embeddings"
        )(_positions(ids, c))
        kinds = BertEmbedding(c.type_vocab_size, c.hidden_size, d, name="token_type_embeddings")
        summed = words + positions + kinds(segments)
        return LayerNorm(c.layer_norm_eps, d, name="LayerNorm")(summed)


def _positions(ids: Int[Array, "b t"], config: BertConfig) -> Int[Array, "b t"]:
    if config.family == "bert":
        return jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    real = ids != config.pad_token_id
    return jnp.where(real, jnp.cumsum(real, axis=1), 0) + config.pad_token_id


class BertSelfAttention(nn.Module):
    """Multi-head attention of every token to the tokens that ``where`` marks."""

    config: BertConfig
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        heads = self.config.num_attention_heads

        def project(name: str) -> Float[Array, "b t h f"]:
            y = BertLinear(self.config.hidden_size, self.dtype, name=name)(x)
            return y.reshape(*y.shape[:2], heads, -1)

        query, key, value = project("query"), project("key"), project("value")
        query = query * query.shape[-1] ** -0.5
        # Keys before queries, and the division after the sum: on a CPU the reductions then run
        # along whole vectors, which makes attention twice as fast; elsewhere it is all the same.
        sums = jnp.float32
        logits = jnp.einsum("bkhf,bqhf->bhkq", key, query, preferred_element_type=sums)
        # Finite, so that a row of padding alone gives numbers that can be thrown away, not NaN.
        logits = jnp.where(where[:, None, :, None], logits, jnp.finfo(jnp.float32).min)
        weights = jnp.exp(logits - logits.max(axis=2, keepdims=True))
        rounded = weights.astype(self.dtype)
        summed = jnp.einsum("bkhf,bhkq->bhfq", value, rounded, preferred_element_type=sums)
        mean = summed / weights.sum(axis=2)[:, :, None, :]
        return mean.transpose(0, 3, 1, 2).reshape(x.shape).astype(self.dtype)


class BertResidual(nn.Module):
    """LayerNorm(x + dense(y)), the end of both halves of a layer."""

    config: BertConfig
    dtype: Any

    @nn.compact
    def __call__(self, y: Float[Array, "b t f"], x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        y = BertLinear(self.config.hidden_size, self.dtype, name="dense")(y)
        return LayerNorm(self.config.layer_norm_eps, self.dtype, name="LayerNorm")(x + y)


class BertAttention(nn.Module):
    """The attention half of a layer."""

    config: BertConfig
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        y = BertSelfAttention(self.config, self.dtype, name="self")(x, where=where)
        return BertResidual(self.config, self.dtype, name="output")(y, x)


class BertIntermediate(nn.Module):
    """The widening step of the feed-forward half."""

    config: BertConfig
    dtype: Any

    @nn.compact
    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t f"]:
        y = BertLinear(self.config.intermediate_size, self.dtype, name="dense")(x)
        return ACTIVATIONS[self.config.hidden_act](y)


class BertLayer(nn.Module):
    """Attention, then feed-forward; both post-normalised."""

    config: BertConfig
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        x = BertAttention(self.config, self.dtype, name="attention")(x, where=where)
        y = BertIntermediate(self.config, self.dtype, name="intermediate")(x)
        return BertResidual(self.config, self.dtype, name="output")(y, x)


class BertLayers(nn.Module):
    """The layers, named by number."""

    config: BertConfig
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        for i in range(self.config.num_hidden_layers):
            x = BertLayer(self.config, self.dtype, name=str(i))(x, where=where)
        return x


class BertLayerStack(nn.Module):
    """Holds the layers under the name that checkpoints give them, encoder.layer."""

    config: BertConfig
    dtype: Any

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        return BertLayers(self.config, self.dtype, name="layer")(x, where=where)


class BertPooler(nn.Module):
    """tanh(dense(first token))."""

    config: BertConfig
    dtype: Any

    @nn.compact
    def __call__(self, hidden: Float[Array, "b t d"]) -> Float[Array, "b d"]:
        return jnp.tanh(BertLinear(self.config.hidden_size, self.dtype, name="dense")(hidden[:, 0]))


class BertEncoder(nn.Module):
    """Hidden states of the last layer; with ``pooled``, BERT's pooler on top instead."""

    config: BertConfig
    dtype: Any = jnp.float32
    pooled: bool = False

    @nn.compact
    def __call__(
        self,
        ids: Int[Array, "b t"],
        segments: Int[Array, "b t"],
        *,
        where: Bool[Array, "b t"],
    ) -> Float[Array, "b t d"] | Float[Array, "b d"]:
        with matmul_precision(self.dtype):
            x = BertEmbeddings(self.config, self.dtype, name="embeddings")(ids, segments)
            x = BertLayerStack(self.config, self.dtype, name="encoder")(x, where=where)
            return BertPooler(self.config, self.dtype, name="pooler")(x) if self.pooled else x


class RobertaHead(nn.Module):
    """out_proj(tanh(dense(first token)))."""

    config: BertConfig
    dtype: Any

    @nn.compact
    def __call__(self, hidden: Float[Array, "b t d"]) -> Float[Array, "b l"]:
        x = BertLinear(self.config.hidden_size, self.dtype, name="dense")(hidden[:, 0])
        return BertLinear(self.config.num_labels, self.dtype, name="out_proj")(jnp.tanh(x))


class BertClassifier(nn.Module):
    """Logits [b, num_labels] in float32: with one label, a cross-encoder's relevance score."""

    config: BertConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self,
        ids: Int[Array, "b t"],
        segments: Int[Array, "b t"],
        *,
        where: Bool[Array, "b t"],
    ) -> Float[Array, "b l"]:
        c, d = self.config, self.dtype
        body = BertEncoder(c, d, pooled=c.family == "bert", name=c.family)
        if c.family == "bert":
            head = BertLinear(c.num_labels, d, name="classifier")
        else:
            head = RobertaHead(c, d, name="classifier")
        with matmul_precision(d):
            return head(body(ids, segments, where=where)).astype(jnp.float32)


def mean_pool(hidden: Float[Array, "b t d"], *, where: Bool[Array, "b t"]) -> Float[Array, "b d"]:
    """Mean of the hidden states that ``where`` marks, in float32; zero where it marks none."""
    kept = jnp.where(where[..., None], hidden.astype(jnp.float32), 0.0).sum(axis=1)
    return kept / jnp.maximum(where.sum(axis=1, keepdims=True), 1)


def cls_pool(hidden: Float[Array, "b t d"]) -> Float[Array, "b d"]:
    """The first token's hidden state, in float32."""
    return hidden[:, 0].astype(jnp.float32)
