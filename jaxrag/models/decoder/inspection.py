"""What a decoder's inside says about tokens: attentions, entropies, hidden states.

For methods that decide by more than a model's answer (DRAGIN, SeaKR). The network is that of
:mod:`jaxrag.models.decoder.network`, walked layer by layer so that one layer's states can be kept;
neither the other layers' states nor any attention but the last layer's are held.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.decoder.cache import Cache, LayerCache
from jaxrag.models.decoder.network import Decoder, DecoderLayer, RMSNorm
from jaxrag.models.precision import matmul_precision


class InspectedChunk(NamedTuple):
    """What is seen at each token of a chunk, float32.

    Attributes:
      attention: of the last layer, mean over its heads, to each slot.
      state: the residual stream after the wanted layer (transformers' ``hidden_states[layer + 1]``;
        of the last layer it is not yet normalised here).
      hidden: normalised state of the last layer, from which the next token is predicted.
    """

    attention: Float[Array, "b t c"]
    state: Float[Array, "b t d"]
    hidden: Float[Array, "b t d"]


@partial(jax.jit, static_argnames="decoder", donate_argnames="cache")
def inspect(
    decoder: Decoder,
    params: dict[str, Any],
    cache: Cache,
    tokens: Int[Array, "b t"],
    start: Int[Array, " b"],
    layer: Int[Array, ""],
) -> tuple[InspectedChunk, Cache]:
    """Runs the next chunk of each row, as `jaxrag.models.decoder.decoding.extend` does, and looks
    inside.

    Args:
      decoder, params: the network.
      cache: keys and values of the tokens before.
      tokens: the chunk; those after a row's end may be anything.
      start: position and slot of each row's first token.
      layer: whose states are wanted, from 0.

    Returns:
      What is seen, and the cache with the chunk.
    """
    positions = start[:, None] + jnp.arange(tokens.shape[1])
    where = jnp.arange(cache[0][1].shape[-2]) <= positions[..., None]
    with matmul_precision(decoder.dtype):
        x = params["model"]["embed_tokens"]["weight"][tokens].astype(decoder.dtype)
        walk = _walk_stacked if decoder.stacked else _walk
        x, state, weights, cache = walk(decoder, params, x, cache, (positions, where, start), layer)
        norm = RMSNorm(decoder.config.rms_norm_eps)
        hidden = norm.apply({"params": params["model"]["norm"]}, x)
    attention = weights.mean(axis=(1, 2))
    return InspectedChunk(attention, state.astype(jnp.float32), hidden.astype(jnp.float32)), cache  # pyright: ignore


_Walked = tuple[
    Float[Array, "b t d"], Float[Array, "b t d"], Float[Array, "b g m t c"], Cache
]  # the last layer's states, the wanted layer's, the last layer's attention, the cache
_Context = tuple[Int[Array, "b t"], Bool[Array, "b t c"], Int[Array, " b"]]


def _walk(
    decoder: Decoder,
    params: dict[str, Any],
    x: Float[Array, "b t d"],
    cache: Cache,
    context: _Context,
    layer: Int[Array, ""],
) -> _Walked:
    """All layers, one after the other."""
    state, weights, caches = x, None, []
    for i, entry in enumerate(cache):
        own = params["model"]["layers"][str(i)]
        x, new, weights = _apply(decoder, own, x, entry, context)
        state = jnp.where(layer == i, x, state)
        caches.append(new)
    assert weights is not None, "a decoder has layers"
    return x, state, weights, tuple(caches)


def _walk_stacked(
    decoder: Decoder,
    params: dict[str, Any],
    x: Float[Array, "b t d"],
    cache: Cache,
    context: _Context,
    layer: Int[Array, ""],
) -> _Walked:
    """The same where parameters and cache hold all layers along a first axis."""
    stack, count = params["model"]["layers"]["stack"], decoder.config.num_hidden_layers

    def step(carry: tuple[Any, ...], part: tuple[Any, ...]) -> tuple[Any, LayerCache]:
        x, state, _ = carry
        own, entry, i = part
        x, new, weights = _apply(decoder, own, x, entry, context)
        return (x, jnp.where(layer == i, x, state), weights), new

    b, t, c = context[1].shape
    g, h = decoder.config.num_key_value_heads, decoder.config.num_attention_heads
    nothing = jnp.zeros((b, g, h // g, t, c), jnp.float32)
    parts = (stack, cache[0], jnp.arange(count))
    (x, state, weights), new = jax.lax.scan(step, (x, x, nothing), parts)
    return x, state, weights, (new,)


def _apply(
    decoder: Decoder,
    own: dict[str, Any],
    x: Float[Array, "b t d"],
    entry: LayerCache,
    context: _Context,
) -> tuple[Float[Array, "b t d"], LayerCache, Float[Array, "b g m t c"]]:
    """One layer, with its attention weights."""
    layer = DecoderLayer(decoder.config)
    (x, new), seen = layer.apply({"params": own}, x, entry, *context, mutable="intermediates")
    tree: Any = seen
    (weights,) = tree["intermediates"]["self_attn"]["weights"]
    return x, new, weights


@partial(jax.jit, static_argnames="decoder")
def predict(
    decoder: Decoder,
    params: dict[str, Any],
    hidden: Float[Array, "n d"],
    targets: Int[Array, " n"],
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """How sure the model was of a token, from the hidden state of the token before it.

    Returns:
      Each target's natural-log probability, and the entropy of all tokens' probabilities, in nats.
    """
    hidden = hidden.astype(decoder.dtype)
    logits: Any = decoder.apply({"params": params}, hidden, method="logits")
    logp = jax.nn.log_softmax(logits, axis=-1)
    chosen = jnp.take_along_axis(logp, targets[:, None], axis=-1)[:, 0]
    return chosen, -jnp.sum(jnp.exp(logp) * logp, axis=-1)
