"""The decoder of all families (`jaxrag.models.decoder.families`), with a key-value cache.

Touvron et al. (2023); Jiang et al. (2023); Qwen team (2024, 2025); Abdin et al. (2024); Riviere et
al. (2024). Modules are named as in Hugging Face's checkpoints, see `jaxrag.models.parameters`.

Each token has a position (for rotation), a cache slot for its key and value, and a row of
``where``, the mask of the slots that it attends to; the caller's choice of these three decides how
sequences are padded. In a layer with a window of w a token attends to the last w slots of its mask.

Axes besides those of jaxrag.types: ``h`` head, and those of `jaxrag.models.cache`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.cache import Cache, LayerCache, NewEntries, put, put_stacked
from jaxrag.models.decoder.config import DecoderConfig
from jaxrag.models.layers import ACTIVATIONS, Embedding, Linear, RMSNorm
from jaxrag.models.precision import matmul_precision
from jaxrag.models.rotary import Rotation, rotate, rotation_of

_LEAST = float(jnp.finfo(jnp.float32).min)
_WINDOW = 3  # place of ``window`` among the arguments of `DecoderLayer`
_BLOCK = 128  # slots that `attend_to_used` reads at once


class DecoderAttention(nn.Module):
    """Grouped-query attention over the cache (Ainslie et al., 2023), with rotary positions.

    With ``reads_only`` it returns keys and values of the new tokens in place of the updated cache,
    and reads them beside it; see `DecoderLayers`.
    """

    config: DecoderConfig
    reads_only: bool = False

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "b t d"],
        rotation: Rotation,
        *,
        where: Bool[Array, "b t c"],
        cache: LayerCache,
        slot: Int[Array, "*b"],
        used: Int[Array, ""] | None = None,
        rows: Int[Array, " b"] | None = None,
    ) -> tuple[Float[Array, "b t d"], LayerCache | NewEntries]:
        c = self.config
        (b, t, _), g = x.shape, c.num_key_value_heads

        def heads(name: str, count: int) -> Float[Array, "b t h e"]:
            y = Linear(count * c.head_dim, c.qkv_bias, name=f"{name}_proj")(x)
            return y.reshape(b, t, count, c.head_dim)

        q, k, v = heads("q", c.num_attention_heads), heads("k", g), heads("v", g)
        if c.qk_norm:
            q = RMSNorm(c.rms_norm_eps, name="q_norm")(q)
            k = RMSNorm(c.rms_norm_eps, name="k_norm")(k)
        q, k = rotate(q, rotation), rotate(k, rotation)
        project = Linear(c.hidden_size, c.o_bias, name="o_proj")
        scaling = {"scale": c.query_scale, "cap": c.score_cap}
        if self.reads_only:
            own, new = (k.transpose(0, 2, 3, 1), v.swapaxes(1, 2)), (k, v)
            old, among, before = cache, *split_mask(where, slot, t)
            scores = partial(attention_scores, by_key_head(q, g), **scaling)
            parts = scores(old[0], where=before), scores(own[0], where=among)
            weights, own_weights = softmax_parts(*parts)
            if self.is_mutable_collection("intermediates"):
                self.sow("intermediates", "weights", joined_weights(weights, own_weights, slot))
            y = weighted_values((weights, old[1]), (own_weights, own[1]))
            return project(y.reshape(b, t, -1)), new
        keys, values = cache = put(cache, k, v, slot, rows)
        if used is not None:
            y = attend_to_used(q, keys, values, where=where, used=used, rows=rows, **scaling)
            return project(y.reshape(b, t, -1)), cache
        weights = attention_weights(q, keys, where=where, **scaling)
        self.sow("intermediates", "weights", weights)  # for jaxrag.models.decoder.inspection
        y = weighted_values((weights, values)).reshape(b, t, -1)
        return project(y), cache


def recency(where: Bool[Array, "b t c"]) -> Int[Array, "b t c"]:
    """Rank of each slot among those that a token attends to, the last one being 1."""
    return jax.lax.cumsum(where.astype(jnp.int32), axis=2, reverse=True)


def within(ranks: Int[Array, "b t c"], window: int | Int[Array, ""]) -> Bool[Array, "b t c"]:
    """Mask of the slots whose rank (`recency`) is within the window; 0 means no window."""
    return (ranks <= window) | (jnp.asarray(window) == 0)


def soft_cap(x: Float[Array, "*n"], cap: float) -> Float[Array, "*n"]:
    """cap * tanh(x / cap), which lies within cap; x itself if ``cap`` is 0. Bello et al. (2016)."""
    return cap * jnp.tanh(x / cap) if cap else x


def attention_weights(
    q: Float[Array, "b t h e"],
    keys: Float[Array, "b g e c"],
    *,
    where: Bool[Array, "b t c"],
    scale: float,
    cap: float,
) -> Float[Array, "b g m t c"]:
    """Softmax attention weights, in float32; m = h/g neighbouring query heads share a key head.

    Inner products times ``scale`` get the soft cap ``cap``. A query whose mask is empty (padding)
    gets uniform weights, so that its output is finite.
    """
    grouped = by_key_head(q, keys.shape[1])
    scores = attention_scores(grouped, keys, where=where, scale=scale, cap=cap)
    return jax.nn.softmax(scores, axis=-1)


def by_key_head(q: Float[Array, "b t h e"], g: int) -> Float[Array, "b g m t e"]:
    """Queries by the key-value head that they share."""
    b, t, h, e = q.shape
    return q.reshape(b, t, g, h // g, e).transpose(0, 2, 3, 1, 4)


def attention_scores(
    q: Float[Array, "b g m t e"],
    keys: Float[Array, "b g e c"],
    *,
    where: Bool[Array, "b t c"],
    scale: float,
    cap: float,
) -> Float[Array, "b g m t c"]:
    """Scores of `attention_weights` before the softmax; the least float32 outside ``where``."""
    (b, g, m, t, e), c = q.shape, keys.shape[3]
    # one matrix product for each row and key-value head, over all queries of the group
    rows = q.reshape(b, g, m * t, e)
    scores = jnp.einsum("bgqe,bgec->bgqc", rows, keys, preferred_element_type=jnp.float32)
    scores = soft_cap(scores.reshape(b, g, m, t, c) * scale, cap)
    return jnp.where(where[:, None, None], scores, _LEAST)


def attend_to_used(
    q: Float[Array, "b t h e"],
    keys: Float[Array, "b g e c"],
    values: Float[Array, "b g c e"],
    *,
    where: Bool[Array, "b t c"],
    used: Int[Array, ""],
    scale: float,
    cap: float,
    rows: Int[Array, " b"] | None = None,
) -> Float[Array, "b t h e"]:
    """`weighted_values` of `attention_weights`, read only from the first ``used`` slots.

    The softmax is accumulated over blocks of slots (Milakov and Gimelshein, 2018). A block that a
    query does not attend to changes none of its bits, so neither ``used`` nor the number of slots
    does. It has no reverse-mode derivative.

    Args:
      where: mask of slots, of which each query attends to some before ``used`` and to none after.
      rows: the row of ``keys`` and ``values`` that each row of ``q`` attends to; None is its own.
    """
    (b, t, h, e), (g, c) = q.shape, (keys.shape[1], keys.shape[3])
    block, queries = _BLOCK if c % _BLOCK == 0 else c, by_key_head(q, g)

    def add(state: tuple[Array, ...]) -> tuple[Array, ...]:
        i, largest, total, sums = state
        cut = partial(jax.lax.dynamic_slice_in_dim, start_index=i * block, slice_size=block)
        part = cut(keys, axis=3), cut(values, axis=2)
        if rows is not None:
            part = part[0][rows], part[1][rows]
        mask = cut(where, axis=2)
        scores = attention_scores(queries, part[0], where=mask, scale=scale, cap=cap)
        new = jnp.maximum(largest, scores.max(axis=-1, keepdims=True))
        powers, before = jnp.exp(scores - new), jnp.exp(largest - new)
        total = total * before + powers.sum(axis=-1, keepdims=True)
        weights = powers.astype(values.dtype).reshape(b, g, -1, block)
        product = partial(jnp.einsum, preferred_element_type=jnp.float32)
        added = product("bgqc,bgce->bgqe", weights, part[1]).reshape(sums.shape)
        return i + 1, new, total, sums * before + added

    ones = jnp.ones((b, g, h // g, t, 1), jnp.float32)
    sums = jnp.zeros((b, g, h // g, t, e), jnp.float32)
    start = (jnp.int32(0), _LEAST * ones, 0 * ones, sums)
    _, _, total, sums = jax.lax.while_loop(lambda state: state[0] * block < used, add, start)
    y = (sums / total).astype(values.dtype)
    return y.transpose(0, 3, 1, 2, 4).reshape(b, t, h, e)


def split_mask(
    where: Bool[Array, "b t c"], slot: Int[Array, "*b"], t: int
) -> tuple[Bool[Array, "b t t"], Bool[Array, "b t c"]]:
    """The mask among the ``t`` new tokens, and the mask without the slots that they will take."""
    b, _, c = where.shape
    slots = jnp.broadcast_to(jnp.asarray(slot)[..., None] + jnp.arange(t), (b, t))
    among = jnp.take_along_axis(where, slots[:, None], axis=2, mode="clip")
    first, last = slots[:, :1, None], slots[:, -1:, None]
    return among, where & ((jnp.arange(c) < first) | (jnp.arange(c) > last))


def softmax_parts(
    *scores: Float[Array, "b g m t c"],
) -> tuple[Float[Array, "b g m t c"], ...]:
    """Softmax over the scores of several sets of keys together; a query has a key in some set."""
    largest = jnp.max(jnp.stack([part.max(axis=-1) for part in scores]), axis=0)[..., None]
    powers = [jnp.exp(part - largest) for part in scores]
    total = sum(part.sum(axis=-1, keepdims=True) for part in powers)
    return tuple(part / total for part in powers)


def joined_weights(
    weights: Float[Array, "b g m t c"], own: Float[Array, "b g m t t"], slot: Int[Array, "*b"]
) -> Float[Array, "b g m t c"]:
    """Weights of the slots, with those of the new tokens in the slots from ``slot`` on."""
    slots = jnp.broadcast_to(slot, (len(weights),))
    write = partial(jax.lax.dynamic_update_slice_in_dim, axis=-1)
    return jax.vmap(write)(weights, own, slots)


def weighted_values(
    *parts: tuple[Float[Array, "b g m t c"], Float[Array, "b g c e"]],
) -> Float[Array, "b t h e"]:
    """Values averaged with `attention_weights`, of one or several sets; h = g * m query heads."""
    (b, g, m, t, _), e = parts[0][0].shape, parts[0][1].shape[-1]

    def average(weights: Float[Array, "b g m t c"], values: Float[Array, "b g c e"]) -> Array:
        weights = weights.astype(values.dtype).reshape(b, g, m * t, -1)
        return jnp.einsum("bgqc,bgce->bgqe", weights, values, preferred_element_type=jnp.float32)

    first, *others = (average(*part) for part in parts)
    y = sum(others, first).astype(parts[0][1].dtype)
    return y.reshape(b, g, m, t, e).transpose(0, 3, 1, 2, 4).reshape(b, t, g * m, e)


class MLP(nn.Module):
    """down(activation(gate(x)) * up(x)); Shazeer (2020)."""

    config: DecoderConfig

    @nn.compact
    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        c = self.config
        gate = Linear(c.intermediate_size, c.mlp_bias, name="gate_proj")(x)
        up = Linear(c.intermediate_size, c.mlp_bias, name="up_proj")(x)
        return Linear(c.hidden_size, c.mlp_bias, name="down_proj")(
            ACTIVATIONS[c.activation](gate) * up
        )


class DecoderLayer(nn.Module):
    """Attention, then the MLP, both with pre-normalisation; with ``post_norms`` also after them."""

    config: DecoderConfig
    reads_only: bool = False

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "b t d"],
        cache: LayerCache,
        window: int | Int[Array, ""],
        rotation: Rotation,
        where: Bool[Array, "b t c"],
        ranks: Int[Array, "b t c"] | None,
        slot: Int[Array, "*b"],
        used: Int[Array, ""] | None = None,
        rows: Int[Array, " b"] | None = None,
    ) -> tuple[Float[Array, "b t d"], LayerCache | NewEntries]:
        c = self.config
        if ranks is not None:
            where &= within(ranks, window)

        dtype = cache[0].dtype  # equals that of x, except with float16: see `Decoder`

        def norm(name: str) -> Callable[[Array], Array]:
            module = RMSNorm(c.rms_norm_eps, c.norm_offset, name=name)
            return lambda x: module(x).astype(dtype)

        attention = DecoderAttention(c, self.reads_only, name="self_attn")
        y = norm("input_layernorm")(x)
        y, cache = attention(y, rotation, where=where, cache=cache, slot=slot, used=used, rows=rows)
        if not c.post_norms:
            x += y
            y = norm("post_attention_layernorm")(x)
            return x + MLP(c, name="mlp")(y), cache
        x += norm("post_attention_layernorm")(y)
        y = MLP(c, name="mlp")(norm("pre_feedforward_layernorm")(x))
        return x + norm("post_feedforward_layernorm")(y), cache


class DecoderLayers(nn.Module):
    """All layers: separate modules "0", "1", ..., or one module "stack".

    In the stack each parameter has the layers as first axis and a scan compiles one layer. (On CPUs
    a scan copies each layer's weights.) Its layers only read the cache, and attend to the new
    tokens beside it, since a scan that updates the cache would write back all of it in every step.
    """

    config: DecoderConfig
    stacked: bool

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "b t d"],
        cache: Cache,
        positions: Int[Array, "b t"],
        where: Bool[Array, "b t c"],
        slot: Int[Array, "*b"],
        used: Int[Array, ""] | None,
        rows: Int[Array, " b"] | None,
    ) -> tuple[Float[Array, "b t d"], Cache]:
        windows = self.config.windows or (0,) * self.config.num_hidden_layers
        ranks = recency(where) if self.config.windows else None
        context = (rotation_of(positions, *self.config.rope), where, ranks, slot)
        if self.stacked:
            assert rows is None, "stacked layers have a row of the cache for each row of tokens"
            layer = nn.scan(
                DecoderLayer,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                in_axes=(0, 0, *(nn.broadcast,) * 4),  # pyright: ignore[reportArgumentType]
                length=self.config.num_hidden_layers,
            )(self.config, reads_only=True, name="stack")
            x, new = layer(x, cache[0], jnp.array(windows), *context)
            return x, (put_stacked(cache[0], new, slot),)
        caches = []
        traced_once = nn.jit(DecoderLayer, static_argnums=_WINDOW)
        for i, window in enumerate(windows):
            layer = traced_once(self.config, name=str(i))
            x, new = layer(x, cache[i], window, *context, used, rows)
            caches.append(new)
        return x, tuple(caches)


class DecoderBody(nn.Module):
    """The network without its output layer."""

    config: DecoderConfig
    dtype: Any
    stacked: bool

    def setup(self) -> None:
        c = self.config
        self.embed_tokens = Embedding(c.vocab_size, c.hidden_size)
        self.layers = DecoderLayers(c, self.stacked)
        self.norm = RMSNorm(c.rms_norm_eps, c.norm_offset)

    def __call__(
        self, tokens: Int[Array, "b t"], cache: Cache, *context: Any
    ) -> tuple[Float[Array, "b t d"], Cache]:
        x, cache = self.layers(self.embeddings(tokens), cache, *context)
        return self.final_norm(x), cache

    def embeddings(self, tokens: Int[Array, "b t"]) -> Float[Array, "b t d"]:
        """Input of the first layer."""
        dtype = jnp.float32 if self.dtype == jnp.float16 else self.dtype
        x, scale = self.embed_tokens(tokens).astype(dtype), self.config.embedding_scale
        return x if scale == 1 else x * jnp.asarray(scale, dtype)

    def final_norm(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        """The hidden states that follow from the last layer's output."""
        return self.norm(x).astype(self.dtype)


class Decoder(nn.Module):
    """A decoder-only transformer: last hidden states, and logits from them.

    Attributes:
      dtype: of computation; norms, rotations, softmax and logits are always float32. With float16
        so is the residual stream, whose largest numbers exceed the range of float16 in many models.
      stacked: whether parameters and cache are stacked over layers, see `DecoderLayers`.
    """

    config: DecoderConfig
    dtype: Any = jnp.float32
    stacked: bool = False

    def setup(self) -> None:
        self.model = DecoderBody(self.config, self.dtype, self.stacked)
        if not self.config.tied:
            self.lm_head = Embedding(self.config.vocab_size, self.config.hidden_size)

    def __call__(
        self,
        tokens: Int[Array, "b t"],
        positions: Int[Array, "b t"],
        *,
        where: Bool[Array, "b t c"],
        cache: Cache,
        slot: int | Int[Array, "*b"] = 0,
        used: Int[Array, ""] | None = None,
        rows: Int[Array, " b"] | None = None,
    ) -> tuple[Float[Array, "b t d"], Cache]:
        """Runs tokens; returns normalised hidden states for `logits`, and the updated cache.

        Args:
          positions: of each token in its text, from 0.
          where: mask of the slots that each token attends to, including its own.
          slot: of the first token's key and value; a scalar, or one for each row.
          used: bound of the slots that any token attends to; only those are read, where the layers
            are not stacked. None reads all and can be differentiated.
          rows: the cache's row that each row of tokens belongs to; None is its own. Needs ``used``,
            a ``slot`` for each, and layers that are not stacked.
        """
        with matmul_precision(self.dtype):
            return self.model(tokens, cache, positions, where, jnp.asarray(slot), used, rows)

    def logits(self, hidden: Float[Array, "b d"]) -> Float[Array, "b v"]:
        """Logits of the next token, float32."""
        table = self.model.embed_tokens if self.config.tied else self.lm_head
        with matmul_precision(self.dtype):
            return soft_cap(table.logits(hidden), self.config.logit_cap)

    def for_long_texts(self) -> Decoder:
        """The decoder with the rotation of long texts, see `DecoderConfig.is_long`."""
        return self.clone(config=self.config.for_long_texts())

    def everything(self, *args: Any, **context: Any) -> Float[Array, "b v"]:
        """Last logits; uses every parameter, for initialisation."""
        hidden, _ = self(*args, **context)
        return self.logits(hidden[:, -1])
