"""The decoder of Llama, Qwen2, Qwen2.5 and Qwen3, with a key-value cache.

Touvron et al. (2023); Qwen team (2024, 2025). Modules are nested and named as in Hugging Face's
checkpoints, and matrices keep their [out, in] layout: a parameter tree flattened with dots has
exactly the names of the file.

The network knows nothing of padding: each token has a position (for rotation), a slot of the cache
that its key and value go to, and a row of ``where`` that tells which slots it looks at. Any way of
padding is a choice of these three.

Axes besides those of jaxrag.types: ``h`` head; and of the cache (see
:mod:`jaxrag.models.decoder.cache`).
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.decoder.cache import Cache, LayerCache, put
from jaxrag.models.decoder.config import DecoderConfig
from jaxrag.models.decoder.rope import rotate
from jaxrag.models.precision import linear, matmul_precision

_NORMAL = nn.initializers.normal(0.02)


class Linear(nn.Module):
    """x W^T (+ b), with W as [out, in]."""

    features: int
    bias: bool

    @nn.compact
    def __call__(self, x: Float[Array, "*n i"]) -> Float[Array, "*n o"]:
        weight = self.param("weight", _NORMAL, (self.features, x.shape[-1]))
        y = linear(x, weight)
        if self.bias:
            y += self.param("bias", nn.initializers.zeros, (self.features,)).astype(x.dtype)
        return y


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis; the division in float32. Zhang, Sennrich (2019)."""

    eps: float

    @nn.compact
    def __call__(self, x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        weight = self.param("weight", nn.initializers.ones, (x.shape[-1],))
        y = x.astype(jnp.float32)
        y *= jax.lax.rsqrt(jnp.square(y).mean(-1, keepdims=True) + self.eps)
        return y.astype(x.dtype) * weight.astype(x.dtype)


class DecoderAttention(nn.Module):
    """Grouped-query attention over the cache (Ainslie et al., 2023), with rotated positions."""

    config: DecoderConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "b t d"],
        positions: Int[Array, "b t"],
        *,
        where: Bool[Array, "b t c"],
        cache: LayerCache,
        slot: Int[Array, "*b"],
    ) -> tuple[Float[Array, "b t d"], LayerCache]:
        c = self.config
        (b, t, _), g = x.shape, c.num_key_value_heads

        def heads(name: str, count: int) -> Float[Array, "b t h e"]:
            y = Linear(count * c.head_dim, c.qkv_bias, name=f"{name}_proj")(x)
            return y.reshape(b, t, count, c.head_dim)

        q, k, v = heads("q", c.num_attention_heads), heads("k", g), heads("v", g)
        if c.qk_norm:
            q = RMSNorm(c.rms_norm_eps, name="q_norm")(q)
            k = RMSNorm(c.rms_norm_eps, name="k_norm")(k)
        q, k = rotate(q, positions, c.rope), rotate(k, positions, c.rope)
        keys, values = cache = put(cache, k, v, slot)
        weights = attention_weights(q, keys, where=where)
        self.sow("intermediates", "weights", weights)  # for jaxrag.models.decoder.inspection alone
        y = weighted_values(weights, values).reshape(b, t, -1)
        return Linear(c.hidden_size, c.o_bias, name="o_proj")(y), cache


def attention_weights(
    q: Float[Array, "b t h e"], keys: Float[Array, "b g e c"], *, where: Bool[Array, "b t c"]
) -> Float[Array, "b g m t c"]:
    """How much each query looks at each slot; m = h/g neighbouring query heads share a key head.

    Scores and softmax are float32. A query with nothing to look at looks at all slots alike, so
    that its values are finite; such queries are padding.
    """
    (b, t, h, e), (g, c) = q.shape, (keys.shape[1], keys.shape[3])
    # one matrix product for each row and key-value head: queries of a group side by side
    q = q.reshape(b, t, g, h // g, e).transpose(0, 2, 3, 1, 4).reshape(b, g, -1, e)
    scores = jnp.einsum("bgqe,bgec->bgqc", q, keys, preferred_element_type=jnp.float32)
    scores = scores.reshape(b, g, h // g, t, c) * e**-0.5
    scores = jnp.where(where[:, None, None], scores, jnp.finfo(jnp.float32).min)
    return jax.nn.softmax(scores, axis=-1)


def weighted_values(
    weights: Float[Array, "b g m t c"], values: Float[Array, "b g c e"]
) -> Float[Array, "b t h e"]:
    """The values that each query looks at, by `attention_weights`; h = g * m query heads."""
    (b, g, m, t, c), e = weights.shape, values.shape[-1]
    weights = weights.astype(values.dtype).reshape(b, g, -1, c)
    y = jnp.einsum("bgqc,bgce->bgqe", weights, values, preferred_element_type=jnp.float32)
    y = y.astype(values.dtype)
    return y.reshape(b, g, m, t, e).transpose(0, 3, 1, 2, 4).reshape(b, t, g * m, e)


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x)); Shazeer (2020)."""

    config: DecoderConfig

    @nn.compact
    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        c = self.config
        gate = Linear(c.intermediate_size, c.mlp_bias, name="gate_proj")(x)
        up = Linear(c.intermediate_size, c.mlp_bias, name="up_proj")(x)
        return Linear(c.hidden_size, c.mlp_bias, name="down_proj")(nn.silu(gate) * up)


class DecoderLayer(nn.Module):
    """Attention, then the MLP; both pre-normalised."""

    config: DecoderConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "b t d"],
        cache: LayerCache,
        positions: Int[Array, "b t"],
        where: Bool[Array, "b t c"],
        slot: Int[Array, "*b"],
    ) -> tuple[Float[Array, "b t d"], LayerCache]:
        eps = self.config.rms_norm_eps
        y = RMSNorm(eps, name="input_layernorm")(x)
        attention = DecoderAttention(self.config, name="self_attn")
        y, cache = attention(y, positions, where=where, cache=cache, slot=slot)
        x += y
        y = RMSNorm(eps, name="post_attention_layernorm")(x)
        return x + MLP(self.config, name="mlp")(y), cache


class DecoderLayers(nn.Module):
    """The layers: named by number, or stacked.

    Stacked, each parameter holds all layers along a first axis and one layer is compiled, whatever
    the depth. CPUs then copy a layer's weights before they use them, so there the layers are apart.
    """

    config: DecoderConfig
    stacked: bool

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], cache: Cache, *context: Any
    ) -> tuple[Float[Array, "b t d"], Cache]:
        if self.stacked:
            layer = nn.scan(
                DecoderLayer,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                in_axes=(0, nn.broadcast, nn.broadcast, nn.broadcast),  # pyright: ignore[reportArgumentType]
                length=self.config.num_hidden_layers,
            )(self.config, name="stack")
            x, new = layer(x, cache[0], *context)
            return x, (new,)
        caches = []
        for i in range(self.config.num_hidden_layers):
            x, new = DecoderLayer(self.config, name=str(i))(x, cache[i], *context)
            caches.append(new)
        return x, tuple(caches)


class TokenEmbedding(nn.Module):
    """A table of token vectors, which also serves as the output layer of tied models."""

    rows: int
    features: int

    def setup(self) -> None:
        self.weight = self.param("weight", _NORMAL, (self.rows, self.features))

    def __call__(self, tokens: Int[Array, "b t"]) -> Float[Array, "b t d"]:
        return self.weight[tokens]

    def logits(self, hidden: Float[Array, "b d"]) -> Float[Array, "b v"]:
        """Inner products with all rows, in float32."""
        weight = self.weight.astype(hidden.dtype)
        return jnp.einsum("bd,vd->bv", hidden, weight, preferred_element_type=jnp.float32)


class DecoderBody(nn.Module):
    """All but the output layer."""

    config: DecoderConfig
    dtype: Any
    stacked: bool

    def setup(self) -> None:
        c = self.config
        self.embed_tokens = TokenEmbedding(c.vocab_size, c.hidden_size)
        self.layers = DecoderLayers(c, self.stacked)
        self.norm = RMSNorm(c.rms_norm_eps)

    def __call__(
        self, tokens: Int[Array, "b t"], cache: Cache, *context: Any
    ) -> tuple[Float[Array, "b t d"], Cache]:
        x = self.embed_tokens(tokens).astype(self.dtype)
        x, cache = self.layers(x, cache, *context)
        return self.norm(x), cache


class Decoder(nn.Module):
    """Hidden states of the last layer, and from them logits.

    Attributes:
      config: the shape.
      dtype: what is computed in; norms, rotations, softmax and logits are float32 regardless.
      stacked: whether parameters and cache hold all layers in one array, see `DecoderLayers`.
    """

    config: DecoderConfig
    dtype: Any = jnp.float32
    stacked: bool = False

    def setup(self) -> None:
        self.model = DecoderBody(self.config, self.dtype, self.stacked)
        if not self.config.tied:
            self.lm_head = TokenEmbedding(self.config.vocab_size, self.config.hidden_size)

    def __call__(
        self,
        tokens: Int[Array, "b t"],
        positions: Int[Array, "b t"],
        *,
        where: Bool[Array, "b t c"],
        cache: Cache,
        slot: int | Int[Array, "*b"] = 0,
    ) -> tuple[Float[Array, "b t d"], Cache]:
        """Runs tokens whose keys and values go to the cache's slots from ``slot`` on.

        Args:
          tokens: ids.
          positions: of each token in its text, from 0.
          where: which slots each token attends to; its own is to be among them.
          cache: of the tokens before.
          slot: of the first token; an array has one for each row.

        Returns:
          Normalised hidden states, the input of `logits`; and the cache with the tokens in it.
        """
        with matmul_precision(self.dtype):
            return self.model(tokens, cache, positions, where, jnp.asarray(slot))

    def logits(self, hidden: Float[Array, "b d"]) -> Float[Array, "b v"]:
        """Logits of the next token, float32."""
        table = self.model.embed_tokens if self.config.tied else self.lm_head
        with matmul_precision(self.dtype):
            return table.logits(hidden)

    def everything(self, *args: Any, **context: Any) -> Float[Array, "b v"]:
        """Touches every parameter; for initialisation."""
        hidden, _ = self(*args, **context)
        return self.logits(hidden[:, -1])
