"""Attention weights, predictive entropies and hidden states inside a decoder (DRAGIN, SeaKR)."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrag.models.cache import Cache, put_stacked
from jaxrag.models.decoder.network import Decoder, DecoderLayer, recency
from jaxrag.models.precision import matmul_precision
from jaxrag.models.rotary import rotation_of


class InspectedChunk(NamedTuple):
    """Internals at each token of a chunk, float32.

    Attributes:
      attention: weights of the last layer for each slot, mean over its heads.
      state: of the requested layer: the residual stream after it, not normalised, or its MLP's
        output.
      hidden: normalised state of the last layer, from which the next token is predicted.
    """

    attention: Float[Array, "b t c"]
    state: Float[Array, "b t d"]
    hidden: Float[Array, "b t d"]


StatePart = Literal["residual", "mlp"]
"""Which hidden state of a layer is returned."""


@partial(jax.jit, static_argnames=("decoder", "part"), donate_argnames="cache")
def inspect(
    decoder: Decoder,
    params: dict[str, Any],
    cache: Cache,
    tokens: Int[Array, "b t"],
    start: Int[Array, " b"],
    layer: Int[Array, ""],
    *,
    part: StatePart = "residual",
) -> tuple[InspectedChunk, Cache]:
    """Prefills the next chunk of each row; returns internals, and the updated cache.

    Args:
      tokens: of the chunk; ids after the end of a row's text may be arbitrary.
      start: position and slot of each row's first token.
      layer, part: whose states are requested, from 0, and which of them.
    """
    config = decoder.config
    positions = start[:, None] + jnp.arange(tokens.shape[1])
    where = jnp.arange(cache[0][1].shape[-2]) <= positions[..., None]

    ranks = recency(where) if config.windows else None
    rotation = rotation_of(positions, *config.rope)

    def captured(module: Any, method: str) -> bool:
        return part == "mlp" and module.name == "mlp" and method == "__call__"

    def run_layer(carry: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        (x, state, _), (layer_params, entry, window, i) = carry, inputs
        context = (window, rotation, where, ranks, start)
        (x, new), sown = DecoderLayer(config, decoder.stacked).apply(
            {"params": layer_params},
            x,
            entry,
            *context,
            mutable="intermediates",
            capture_intermediates=captured,
        )
        tree: Any = sown
        (weights,) = tree["intermediates"]["self_attn"]["weights"]
        (own_state,) = tree["intermediates"]["mlp"]["__call__"] if part == "mlp" else (x,)
        return (x, jnp.where(layer == i, own_state, state), weights), new

    def apply_body(name: str, x: Array) -> Any:
        variables = {"params": params}
        return decoder.apply(variables, x, method=lambda module, x: getattr(module.model, name)(x))

    layers = params["model"]["layers"]
    windows = config.windows or (0,) * config.num_hidden_layers
    with matmul_precision(decoder.dtype):
        x = apply_body("embeddings", tokens)
        g, h = config.num_key_value_heads, config.num_attention_heads
        b, t, c = where.shape
        carry: Any = (x, x, jnp.zeros((b, g, h // g, t, c), jnp.float32))
        if decoder.stacked:
            numbers = jnp.arange(config.num_hidden_layers)
            parts = (layers["stack"], cache[0], jnp.array(windows), numbers)
            carry, new = jax.lax.scan(run_layer, carry, parts)
            caches = [put_stacked(cache[0], new, start)]
        else:
            caches = []
            for i, entry in enumerate(cache):
                carry, new = run_layer(carry, (layers[str(i)], entry, windows[i], i))
                caches.append(new)
        x, state, weights = carry
        hidden: Any = apply_body("final_norm", x)
    attention = weights.mean(axis=(1, 2))
    chunk = InspectedChunk(attention, state.astype(jnp.float32), hidden.astype(jnp.float32))
    return chunk, tuple(caches)


@partial(jax.jit, static_argnames="decoder")
def predict(
    decoder: Decoder,
    params: dict[str, Any],
    hidden: Float[Array, "n d"],
    targets: Int[Array, " n"],
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Natural-log probability of each target and entropy of its distribution, in nats."""
    hidden = hidden.astype(decoder.dtype)
    logits: Any = decoder.apply({"params": params}, hidden, method="logits")
    logp = jax.nn.log_softmax(logits, axis=-1)
    chosen = jnp.take_along_axis(logp, targets[:, None], axis=-1)[:, 0]
    return chosen, -jnp.sum(jnp.exp(logp) * logp, axis=-1)
