"""T5: an encoder-decoder with relative positions, in its versions 1.0, 1.1 and Flan.

Raffel et al. (2020), "Exploring the limits of transfer learning"; 1.1 takes gated activations of
Shazeer (2020). Modules are nested and named as in Hugging Face's checkpoints, and matrices keep
their [out, in] layout: a parameter tree flattened with dots has exactly the names of the file.

Axes besides those of jaxrag.types: ``s`` token of the source, ``n`` row of the decoder.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.decoder.cache import Cache
from jaxrag.models.decoder.network import RMSNorm, TokenEmbedding
from jaxrag.models.precision import matmul_precision
from jaxrag.models.t5.config import T5Config
from jaxrag.models.t5.layers import T5Context, T5Layer
from jaxrag.types import InputError


class T5Layers(nn.Module):
    """The layers, named by number."""

    config: T5Config
    count: int
    decodes: bool

    def setup(self) -> None:
        for i in range(self.count):
            layer = T5Layer(self.config, i == 0, self.decodes)
            setattr(self, str(i), layer)  # the attribute's name becomes the parameters'

    def all(self) -> list[Any]:
        """From the first to the last."""
        return [getattr(self, str(i)) for i in range(self.count)]


class T5Stack(nn.Module):
    """The encoder or the decoder, from embedded tokens on."""

    config: T5Config
    count: int
    decodes: bool

    def setup(self) -> None:
        self.block = T5Layers(self.config, self.count, self.decodes)
        self.final_layer_norm = RMSNorm(self.config.layer_norm_epsilon)
        self.dropout = nn.Dropout(self.config.dropout_rate)

    def bias(self, queries: Int[Array, " t"], keys: Int[Array, " c"]) -> Float[Array, "h t c"]:
        """The position bias, which the first layer holds for all."""
        attention = self.block.all()[0].layer.part(0).SelfAttention
        return attention.bias(queries, keys, causal=self.decodes)

    def memory(self, encoded: Float[Array, "b s d"]) -> Cache:
        """The source's keys and values in each layer of a decoder."""
        return tuple(layer.layer.part(1).memory(encoded) for layer in self.block.all())

    def __call__(
        self, x: Float[Array, "n t d"], cache: Cache | None, memory: Cache | None, look: T5Context
    ) -> tuple[Float[Array, "n t d"], Cache | None]:
        x, caches = self.dropout(x, deterministic=look.deterministic), []
        for i, layer in enumerate(self.block.all()):
            x, new = layer(x, cache and cache[i], memory and memory[i], look)
            caches.append(new)
        x = self.dropout(self.final_layer_norm(x), deterministic=look.deterministic)
        return x, tuple(caches) if cache is not None else None


class T5(nn.Module):
    """Logits of an answer's tokens, given a source; and the parts that decoding is made of.

    Where ``deterministic`` is False, activations are dropped at the config's ``dropout_rate``, by
    a generator that is called "dropout".

    Attributes:
      config: the shape.
      dtype: what is computed in, float32 or bfloat16; norms, position bias, softmax and logits are
        float32 regardless.

    Raises:
      InputError: for another dtype.
    """

    config: T5Config
    dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        if jnp.dtype(self.dtype) not in (jnp.float32, jnp.bfloat16):
            raise InputError(
                f"dtype is {jnp.dtype(self.dtype).name!r}; a T5 computes in 'float32' or "
                "'bfloat16'. (Its activations grow beyond what float16 holds.)"
            )
        super().__post_init__()

    def setup(self) -> None:
        c = self.config
        self.shared = TokenEmbedding(c.vocab_size, c.d_model)
        self.encoder = T5Stack(c, c.num_layers, decodes=False)
        self.decoder = T5Stack(c, c.num_decoder_layers, decodes=True)
        if not c.tied:
            self.lm_head = TokenEmbedding(c.vocab_size, c.d_model)

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
          tokens: of the source, its end token included.
          where: which of them are there; the others are padding.
          targets_in: the answer so far, from `t5_scoring.shift_right`. What follows a token has no
            part in its logits, so padding at the end needs no mask.
          deterministic: whether nothing is dropped.
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
        """The decoder's states before the output layer, in ``dtype``; arguments as for a call."""
        memory = self.remember(self.encode(tokens, where, deterministic=deterministic))
        positions = jnp.arange(targets_in.shape[1])
        with matmul_precision(self.dtype):
            look = T5Context(
                where=(positions <= positions[:, None])[None],
                bias=self.decoder.bias(positions, positions),
                memory_where=where[:, None],
                slot=jnp.int32(0),
                deterministic=deterministic,
            )
            x, _ = self.decoder(self._embedded(targets_in), None, memory, look)
            return x

    def encode(
        self,
        tokens: Int[Array, "b s"],
        where: Bool[Array, "b s"],
        *,
        deterministic: bool = True,
    ) -> Float[Array, "b s d"]:
        """The encoder's states; those of padding mean nothing."""
        positions = jnp.arange(tokens.shape[1])
        with matmul_precision(self.dtype):
            look = T5Context(
                where=where[:, None],
                bias=self.encoder.bias(positions, positions),
                memory_where=None,
                slot=jnp.int32(0),
                deterministic=deterministic,
            )
            x, _ = self.encoder(self._embedded(tokens), None, None, look)
            return x

    def remember(self, encoded: Float[Array, "b s d"]) -> Cache:
        """The source's keys and values in each layer of the decoder, which `step` looks at."""
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
        """Runs the answers' next tokens.

        Args:
          tokens: ids; the answers' number n is a multiple of the sources', whose answers are
            neighbours (those of a beam search).
          cache: of the tokens before, see `empty_answers`.
          memory: what `remember` gave.
          where: which tokens of the source are there.
          slot: position of the first of these tokens, and its slot in the cache.

        Returns:
          States before the output layer, and the cache with these tokens in it.
        """
        slots = jnp.arange(cache[0][1].shape[-2])
        positions = jnp.asarray(slot) + jnp.arange(tokens.shape[1])
        with matmul_precision(self.dtype):
            look = T5Context(
                where=(slots <= positions[:, None])[None],
                bias=self.decoder.bias(positions, slots),
                memory_where=where[:, None],
                slot=jnp.asarray(slot),
                deterministic=True,
            )
            x, new = self.decoder(self._embedded(tokens), cache, memory, look)
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


def empty_answers(config: T5Config, rows: int, slots: int, dtype: Any) -> Cache:
    """Keys and values of no tokens yet, for ``rows`` answers of up to ``slots`` tokens."""
    h, e = config.num_heads, config.d_kv

    def zeros(*shape: int) -> Array:
        return jnp.zeros((rows, h, *shape), dtype)

    return tuple((zeros(e, slots), zeros(slots, e)) for _ in range(config.num_decoder_layers))
