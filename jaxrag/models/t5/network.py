"""T5: an encoder-decoder with relative positions, in its versions 1.0, 1.1 and Flan.

Raffel et al. (2020), "Exploring the limits of transfer learning"; 1.1 has the gated activations of
Shazeer (2020). Modules are named as in Hugging Face's checkpoints, see `jaxrag.models.parameters`.

Axes besides those of jaxrag.types: ``s`` token of the source, ``n`` row of the decoder, ``h`` head,
``e`` feature of a head, ``c`` slot of keys and values.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.cache import Cache, LayerCache, put
from jaxrag.models.layers import ACTIVATIONS, Embedding, Linear, RMSNorm
from jaxrag.models.precision import matmul_precision
from jaxrag.models.t5.config import T5Config
from jaxrag.types import InputError


class T5Context(NamedTuple):
    """Masks and positions that all layers share.

    Attributes:
      where: mask of the slots that each token attends to.
      bias: of the attention scores, from relative positions.
      memory_where: mask of the source's tokens, for the decoder.
      slot: of the cache, to which the first token's keys and values are written.
      deterministic: whether dropout is off.
    """

    where: Bool[Array, "#b #t c"]
    bias: Float[Array, "h t c"]
    memory_where: Bool[Array, "b 1 s"] | None = None
    slot: int | Int[Array, ""] = 0
    deterministic: bool = True


class T5Attention(nn.Module):
    """Multi-head attention without scaling; the first layer's also has the position bias."""

    config: T5Config
    biased: bool = False

    def setup(self) -> None:
        c = self.config
        self.q, self.k, self.v = (Linear(c.num_heads * c.d_kv, bias=False) for _ in range(3))
        self.o = Linear(c.d_model, bias=False)
        self.dropout = nn.Dropout(c.dropout_rate)
        if self.biased:
            self.relative_attention_bias = Embedding(c.relative_attention_num_buckets, c.num_heads)

    def _heads(self, y: Float[Array, "b t i"]) -> Float[Array, "b t h e"]:
        return y.reshape(*y.shape[:2], self.config.num_heads, self.config.d_kv)

    def keys_values(
        self, x: Float[Array, "b t d"]
    ) -> tuple[Float[Array, "b t h e"], Float[Array, "b t h e"]]:
        """Keys and values of tokens."""
        return self._heads(self.k(x)), self._heads(self.v(x))

    def bias(
        self, queries: Int[Array, " t"], keys: Int[Array, " c"], *, causal: bool
    ) -> Float[Array, "h t c"]:
        """Bias of the attention scores for each pair of positions, float32."""
        buckets = relative_buckets(
            keys - queries[:, None],
            buckets=self.config.relative_attention_num_buckets,
            max_distance=self.config.relative_attention_max_distance,
            causal=causal,
        )
        return self.relative_attention_bias(buckets).astype(jnp.float32).transpose(2, 0, 1)

    def __call__(
        self,
        x: Float[Array, "n t d"],
        cache: LayerCache,
        *,
        where: Bool[Array, "#b #t c"],
        bias: Float[Array, "h t c"] | None,
        deterministic: bool,
    ) -> Float[Array, "n t d"]:
        """Attends to a cache, of which a row may serve several neighbouring rows of x.

        Scores and softmax are float32.
        """
        keys, values = cache
        q = self._heads(self.q(x)).reshape(len(values), -1, self.config.num_heads, keys.shape[2])
        scores = jnp.einsum("bthe,bhec->bhtc", q, keys, preferred_element_type=jnp.float32)
        scores = scores if bias is None else scores + bias
        # finite, so that a row of padding alone does not become NaN
        scores = jnp.where(where[:, None], scores, jnp.finfo(jnp.float32).min)
        weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype)
        weights = self.dropout(weights, deterministic=deterministic)
        y = jnp.einsum("bhtc,bhce->bthe", weights, values, preferred_element_type=jnp.float32)
        return self.o(y.astype(x.dtype).reshape(*x.shape[:2], -1))


def _cache_layout(k: Float[Array, "b t h e"], v: Float[Array, "b t h e"]) -> LayerCache:
    return k.transpose(0, 2, 3, 1), v.swapaxes(1, 2)


class T5FeedForward(nn.Module):
    """wo(f(wi(x))), or gated wo(f(wi_0(x)) * wi_1(x))."""

    config: T5Config

    @nn.compact
    def __call__(self, x: Float[Array, "b t d"], *, deterministic: bool) -> Float[Array, "b t d"]:
        c = self.config
        name = "wi_0" if c.gated else "wi"
        y = ACTIVATIONS[c.activation](Linear(c.d_ff, bias=False, name=name)(x))
        if c.gated:
            y *= Linear(c.d_ff, bias=False, name="wi_1")(x)
        y = nn.Dropout(c.dropout_rate)(y, deterministic=deterministic)
        return Linear(c.d_model, bias=False, name="wo")(y)


class T5Layer(nn.Module):
    """Self-attention, cross-attention in a decoder, feed-forward; all with pre-normalisation."""

    config: T5Config
    first: bool
    decodes: bool

    def setup(self) -> None:
        c, last = self.config, 2 if self.decodes else 1
        self.attention = T5Attention(c, self.first, name="layer.0.SelfAttention")
        if self.decodes:
            self.cross_attention = T5Attention(c, name="layer.1.EncDecAttention")
        self.feed_forward = T5FeedForward(c, name=f"layer.{last}.DenseReluDense")
        self.norms = [
            RMSNorm(c.layer_norm_epsilon, name=f"layer.{i}.layer_norm") for i in range(last + 1)
        ]
        self.dropout = nn.Dropout(c.dropout_rate)

    def memory(self, encoded: Float[Array, "b s d"]) -> LayerCache:
        """Keys and values of the source."""
        return _cache_layout(*self.cross_attention.keys_values(encoded))

    def __call__(
        self,
        x: Float[Array, "n t d"],
        cache: LayerCache | None,
        memory: LayerCache | None,
        context: T5Context,
    ) -> tuple[Float[Array, "n t d"], LayerCache | None]:
        off = context.deterministic
        y = self.norms[0](x)
        k, v = self.attention.keys_values(y)
        if cache is not None:
            cache = put(cache, k, v, jnp.asarray(context.slot))
        y = self.attention(
            y,
            _cache_layout(k, v) if cache is None else cache,
            where=context.where,
            bias=context.bias,
            deterministic=off,
        )
        x += self.dropout(y, deterministic=off)
        if memory is not None:
            assert context.memory_where is not None
            y, where = self.norms[1](x), context.memory_where
            y = self.cross_attention(y, memory, where=where, bias=None, deterministic=off)
            x += self.dropout(y, deterministic=off)
        y = self.feed_forward(self.norms[-1](x), deterministic=off)
        return x + self.dropout(y, deterministic=off), cache


class T5Stack(nn.Module):
    """The encoder or the decoder, without embedding and output layer."""

    config: T5Config
    count: int
    decodes: bool

    def setup(self) -> None:
        self.layers = [
            T5Layer(self.config, i == 0, self.decodes, name=f"block.{i}") for i in range(self.count)
        ]
        self.final_layer_norm = RMSNorm(self.config.layer_norm_epsilon)
        self.dropout = nn.Dropout(self.config.dropout_rate)

    def bias(self, queries: Int[Array, " t"], keys: Int[Array, " c"]) -> Float[Array, "h t c"]:
        """The position bias, whose parameters are in the first layer."""
        return self.layers[0].attention.bias(queries, keys, causal=self.decodes)

    def memory(self, encoded: Float[Array, "b s d"]) -> Cache:
        """The source's keys and values in each layer of a decoder."""
        return tuple(layer.memory(encoded) for layer in self.layers)

    def __call__(
        self,
        x: Float[Array, "n t d"],
        cache: Cache | None,
        memory: Cache | None,
        context: T5Context,
    ) -> tuple[Float[Array, "n t d"], Cache | None]:
        x, caches = self.dropout(x, deterministic=context.deterministic), []
        for i, layer in enumerate(self.layers):
            layer_cache, source = cache[i] if cache else None, memory[i] if memory else None
            x, new = layer(x, layer_cache, source, context)
            caches.append(new)
        x = self.dropout(self.final_layer_norm(x), deterministic=context.deterministic)
        return x, tuple(caches) if cache is not None else None


class T5(nn.Module):
    """Logits of an answer's tokens, given a source; and the parts of it that decoding uses.

    It computes in ``dtype``, float32 or bfloat16 (InputError for another); norms, position bias,
    softmax and logits are always float32. Unless ``deterministic``, dropout at the config's
    ``dropout_rate`` uses the random stream "dropout".
    """

    config: T5Config
    dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        if jnp.dtype(self.dtype) not in (jnp.float32, jnp.bfloat16):
            raise InputError(
                f"dtype is {jnp.dtype(self.dtype).name!r}; a T5 computes in 'float32' or "
                "'bfloat16'. (Its activations exceed the range of float16.)"
            )
        super().__post_init__()

    def setup(self) -> None:
        c = self.config
        self.shared = Embedding(c.vocab_size, c.d_model)
        self.encoder = T5Stack(c, c.num_layers, decodes=False)
        self.decoder = T5Stack(c, c.num_decoder_layers, decodes=True)
        if not c.tied:
            self.lm_head = Embedding(c.vocab_size, c.d_model)

    def __call__(
        self,
        tokens: Int[Array, "b s"],
        where: Bool[Array, "b s"],
        targets_in: Int[Array, "b t"],
        *,
        deterministic: bool = True,
    ) -> Float[Array, "b t v"]:
        """Logits of each next token of an answer, float32.

        Args:
          tokens: of the source, including its end token.
          where: mask of the source's tokens; the others are padding.
          targets_in: the answer so far, see `shift_right`; padding at the end needs no mask.
          deterministic: whether dropout is off.
        """
        return self.logits(self.hidden(tokens, where, targets_in, deterministic=deterministic))

    def hidden(
        self,
        tokens: Int[Array, "b s"],
        where: Bool[Array, "b s"],
        targets_in: Int[Array, "b t"],
        *,
        deterministic: bool = True,
    ) -> Float[Array, "b t d"]:
        """The decoder's last hidden states, in ``dtype``; arguments as for a call."""
        memory = self.remember(self.encode(tokens, where, deterministic=deterministic))
        positions = jnp.arange(targets_in.shape[1])
        with matmul_precision(self.dtype):
            context = T5Context(
                where=(positions <= positions[:, None])[None],
                bias=self.decoder.bias(positions, positions),
                memory_where=where[:, None],
                deterministic=deterministic,
            )
            x, _ = self.decoder(self._embedded(targets_in), None, memory, context)
            return x

    def encode(
        self, tokens: Int[Array, "b s"], where: Bool[Array, "b s"], *, deterministic: bool = True
    ) -> Float[Array, "b s d"]:
        """The encoder's last hidden states; states of padding are meaningless."""
        positions = jnp.arange(tokens.shape[1])
        with matmul_precision(self.dtype):
            bias = self.encoder.bias(positions, positions)
            context = T5Context(where[:, None], bias, deterministic=deterministic)
            x, _ = self.encoder(self._embedded(tokens), None, None, context)
            return x

    def remember(self, encoded: Float[Array, "b s d"]) -> Cache:
        """The source's keys and values in each layer of the decoder, the memory of `step`."""
        with matmul_precision(self.dtype):
            return self.decoder.memory(encoded)

    def step(
        self,
        tokens: Int[Array, "n t"],
        *,
        cache: Cache,
        memory: Cache,
        where: Bool[Array, "b s"],
        slot: int | Int[Array, ""],
    ) -> tuple[Float[Array, "n t d"], Cache]:
        """Runs the next tokens of answers; returns last hidden states, and the updated cache.

        The answers (beams) of each source are in neighbouring rows, n = b * beams. ``memory`` is of
        `remember`, ``where`` the mask of the source; ``slot`` the first token's position and slot.
        """
        slots = jnp.arange(cache[0][1].shape[-2])
        positions = jnp.asarray(slot) + jnp.arange(tokens.shape[1])
        with matmul_precision(self.dtype):
            context = T5Context(
                where=(slots <= positions[:, None])[None],
                bias=self.decoder.bias(positions, slots),
                memory_where=where[:, None],
                slot=slot,
            )
            x, new = self.decoder(self._embedded(tokens), cache, memory, context)
            assert new is not None
            return x, new

    def logits(self, hidden: Float[Array, "*n d"]) -> Float[Array, "*n v"]:
        """Logits of the next token, float32."""
        table = self.shared if self.config.tied else self.lm_head
        if self.config.scaled:
            hidden = hidden * self.config.d_model**-0.5
        with matmul_precision(self.dtype):
            flat = table.logits(hidden.reshape(-1, hidden.shape[-1]))
        return flat.reshape(*hidden.shape[:-1], -1)

    def _embedded(self, tokens: Int[Array, "b t"]) -> Float[Array, "b t d"]:
        return self.shared(tokens).astype(self.dtype)


def shift_right(targets: Int[Array, "b t"], config: T5Config) -> Int[Array, "b t"]:
    """The decoder's input for predicting ``targets``: its start token, then all but the last."""
    start = jnp.full((len(targets), 1), config.decoder_start_token_id, targets.dtype)
    return jnp.concatenate([start, targets[:, :-1]], axis=1)


def relative_buckets(
    relative: Int[Array, "*n"], *, buckets: int, max_distance: int, causal: bool
) -> Int[Array, "*n"]:
    """The bucket of each relative position, key's minus query's (Raffel et al., 2020, section 2.1).

    Half of the buckets hold one distance each, the others ranges that grow in proportion to the
    distance, the last one ``max_distance`` and beyond. With ``causal``, later keys share the bucket
    of distance 0; otherwise keys before and after the query have half of the buckets each.
    """
    one_side = buckets if causal else buckets // 2
    table = jnp.asarray(distance_buckets(one_side, max_distance))
    distance = jnp.maximum(-relative, 0) if causal else jnp.abs(relative)
    bucket = table[jnp.minimum(distance, max_distance)]
    return bucket if causal else bucket + one_side * (relative > 0)


def distance_buckets(buckets: int, max_distance: int) -> Int[np.ndarray, " m"]:
    """The bucket of each distance from 0 to ``max_distance``, int32.

    Computed on the host, so that a device's rounding cannot move a distance to another bucket.
    """
    exact = buckets // 2
    distance = np.arange(max_distance + 1)
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    steps = ratio / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    far = np.minimum(exact + steps.astype(np.int32), buckets - 1)
    return np.where(distance < exact, distance, far).astype(np.int32)
