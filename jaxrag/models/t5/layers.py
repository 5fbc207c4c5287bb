"""One layer of T5: attention over itself, over the source, and feed-forward; all pre-normalised.

Raffel et al. (2020). Axes besides those of jaxrag.types: ``s`` token of the source, ``h`` head,
``e`` feature of a head, ``c`` slot of the keys and values that are looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.bert.network import ACTIVATIONS
from jaxrag.models.decoder.cache import LayerCache, put
from jaxrag.models.decoder.network import Linear, RMSNorm, TokenEmbedding
from jaxrag.models.t5.config import T5Config
from jaxrag.models.t5.positions import relative_buckets


class T5Context(NamedTuple):
    """What tokens look at.

    Attributes:
      where: which slots each token attends to.
      bias: added to the scores of these slots, for the relative position; None adds nothing.
      memory_where: which tokens of the source the decoder attends to.
      slot: where the cache takes the keys and values of these tokens.
      deterministic: whether nothing is dropped.
    """

    where: Bool[Array, "#b #t c"]
    bias: Float[Array, "h t c"] | None
    memory_where: Bool[Array, "b 1 s"] | None
    slot: Int[Array, ""]
    deterministic: bool


class T5Attention(nn.Module):
    """Multi-head attention without scaling; the first layer's also holds the position bias."""

    config: T5Config
    biased: bool = False

    def setup(self) -> None:
        c = self.config
        self.q, self.k, self.v = (Linear(c.num_heads * c.d_kv, bias=False) for _ in range(3))
        self.o = Linear(c.d_model, bias=False)
        self.dropout = nn.Dropout(c.dropout_rate)
        if self.biased:
            self.relative_attention_bias = TokenEmbedding(
                c.relative_attention_num_buckets, c.num_heads
            )

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
        """What is added to the scores of each pair of positions, float32."""
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
        seen: LayerCache,
        *,
        where: Bool[Array, "#b #t c"],
        bias: Float[Array, "h t c"] | None,
        deterministic: bool,
    ) -> Float[Array, "n t d"]:
        """Scores and softmax are float32. Neighbouring rows of x may share a row of ``seen``."""
        keys, values = seen
        q = self._heads(self.q(x)).reshape(len(values), -1, self.config.num_heads, keys.shape[2])
        scores = jnp.einsum("bthe,bhec->bhtc", q, keys, preferred_element_type=jnp.float32)
        scores = scores if bias is None else scores + bias
        # finite, so that a row of padding alone gives numbers that can be thrown away, not NaN
        scores = jnp.where(where[:, None], scores, jnp.finfo(jnp.float32).min)
        weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype)
        weights = self.dropout(weights, deterministic=deterministic)
        y = jnp.einsum("bhtc,bhce->bthe", weights, values, preferred_element_type=jnp.float32)
        return self.o(y.astype(x.dtype).reshape(*x.shape[:2], -1))


def _cache_layout(k: Float[Array, "b t h e"], v: Float[Array, "b t h e"]) -> LayerCache:
    return k.transpose(0, 2, 3, 1), v.swapaxes(1, 2)


class T5SelfAttention(nn.Module):
    """x + attention(norm(x)), over the tokens themselves."""

    config: T5Config
    first: bool

    def setup(self) -> None:
        self.SelfAttention = T5Attention(self.config, biased=self.first)
        self.layer_norm = RMSNorm(self.config.layer_norm_epsilon)
        self.dropout = nn.Dropout(self.config.dropout_rate)

    def __call__(
        self, x: Float[Array, "b t d"], cache: LayerCache | None, look: T5Context
    ) -> tuple[Float[Array, "b t d"], LayerCache | None]:
        y = self.layer_norm(x)
        k, v = self.SelfAttention.keys_values(y)
        if cache is not None:
            cache = put(cache, k, v, look.slot)
        y = self.SelfAttention(
            y,
            _cache_layout(k, v) if cache is None else cache,
            where=look.where,
            bias=look.bias,
            deterministic=look.deterministic,
        )
        return x + self.dropout(y, deterministic=look.deterministic), cache


class T5CrossAttention(nn.Module):
    """x + attention(norm(x)), over the source."""

    config: T5Config

    def setup(self) -> None:
        self.EncDecAttention = T5Attention(self.config)
        self.layer_norm = RMSNorm(self.config.layer_norm_epsilon)
        self.dropout = nn.Dropout(self.config.dropout_rate)

    def memory(self, encoded: Float[Array, "b s d"]) -> LayerCache:
        """Keys and values of the source."""
        return _cache_layout(*self.EncDecAttention.keys_values(encoded))

    def __call__(
        self, x: Float[Array, "n t d"], memory: LayerCache, look: T5Context
    ) -> Float[Array, "n t d"]:
        assert look.memory_where is not None
        y = self.EncDecAttention(
            self.layer_norm(x),
            memory,
            where=look.memory_where,
            bias=None,
            deterministic=look.deterministic,
        )
        return x + self.dropout(y, deterministic=look.deterministic)


class DenseReluDense(nn.Module):
    """wo(f(wi(x))), or gated wo(f(wi_0(x)) * wi_1(x))."""

    config: T5Config

    @nn.compact
    def __call__(self, x: Float[Array, "b t d"], *, deterministic: bool) -> Float[Array, "b t d"]:
        c = self.config
        activation, widened = ACTIVATIONS[c.activation], "wi_0" if c.gated else "wi"
        y = activation(Linear(c.d_ff, bias=False, name=widened)(x))
        if c.gated:
            y *= Linear(c.d_ff, bias=False, name="wi_1")(x)
        y = nn.Dropout(c.dropout_rate)(y, deterministic=deterministic)
        return Linear(c.d_model, bias=False, name="wo")(y)


class T5FeedForward(nn.Module):
    """x + dense(norm(x))."""

    config: T5Config

    @nn.compact
    def __call__(self, x: Float[Array, "b t d"], *, deterministic: bool) -> Float[Array, "b t d"]:
        y = RMSNorm(self.config.layer_norm_epsilon, name="layer_norm")(x)
        y = DenseReluDense(self.config, name="DenseReluDense")(y, deterministic=deterministic)
        return x + nn.Dropout(self.config.dropout_rate)(y, deterministic=deterministic)


class T5Sublayers(nn.Module):
    """The parts of a layer, named by number: attentions, then feed-forward."""

    config: T5Config
    first: bool
    decodes: bool

    def setup(self) -> None:
        parts = [T5SelfAttention(self.config, self.first)]
        parts += [T5CrossAttention(self.config)] if self.decodes else []
        for i, part in enumerate([*parts, T5FeedForward(self.config)]):
            setattr(self, str(i), part)  # the attribute's name becomes the parameters'

    def part(self, i: int) -> Any:
        """By number."""
        return getattr(self, str(i))

    def __call__(
        self,
        x: Float[Array, "n t d"],
        cache: LayerCache | None,
        memory: LayerCache | None,
        look: T5Context,
    ) -> tuple[Float[Array, "n t d"], LayerCache | None]:
        x, cache = self.part(0)(x, cache, look)
        if self.decodes:
            x = self.part(1)(x, memory, look)
        return self.part(2 if self.decodes else 1)(x, deterministic=look.deterministic), cache


class T5Layer(nn.Module):
    """Holds the parts under the name that checkpoints give them, block.N.layer."""

    config: T5Config
    first: bool
    decodes: bool

    def setup(self) -> None:
        self.layer = T5Sublayers(self.config, self.first, self.decodes)

    def __call__(self, *args: Any) -> tuple[Float[Array, "n t d"], LayerCache | None]:
        return self.layer(*args)
