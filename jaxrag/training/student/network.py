"""Log-probabilities of targets by a T5 or a decoder, and the hidden states that predict them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrag.models.cache import empty_cache
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.sampling import logprobs_of
from jaxrag.models.t5.decoding import target_states
from jaxrag.models.t5.network import T5
from jaxrag.training.student.student import TokenPairs


def decoder_states(module: Decoder, params: Any, pairs: TokenPairs) -> Float[Array, "b t d"]:
    """The last hidden state that predicts each token of a target that follows its source.

    Source and target are concatenated, each right-padded. Positions continue from the source's
    length, and its padding is masked, so that padding changes no result.
    """
    (b, s), t = pairs.source.shape, pairs.target.shape[1]
    columns, length = jnp.arange(s + t), jnp.asarray(pairs.source_length)[:, None]
    positions = jnp.where(columns < s, columns, length + columns - s)
    is_token = (columns < length) | (columns >= s)
    where = is_token[:, None] & (columns <= columns[:, None])
    variables = {"params": params}
    cache = empty_cache(module.config, b, s + t, module.dtype, stacked=module.stacked)
    tokens = jnp.concatenate([pairs.source, pairs.target], axis=1)
    outputs: Any = module.apply(variables, tokens, positions, where=where, cache=cache)
    hidden = outputs[0]
    first = jnp.take_along_axis(hidden, (length - 1)[..., None], axis=1)
    return jnp.concatenate([first, hidden[:, s : s + t - 1]], axis=1)


def target_logprobs(
    module: Any,
    params: Any,
    pairs: TokenPairs,
    *,
    key: jax.Array | None = None,
    remat: bool = False,
) -> tuple[Float[Array, "b t"], Float[Array, "b t d"]]:
    """log p(target token | source, previous target tokens) for every token of every target.

    Padding changes no result; values at padded positions are meaningless. The last hidden state
    that predicts each token comes second; both are float32.

    Args:
      key: seeds dropout at the rate of the network's config; of our networks, only T5 has one.
      remat: saves only the results of matrix products for the backward pass and recomputes the
        rest, such as attention weights, to save memory.
    """

    def run(params: Any, pairs: TokenPairs) -> tuple[Float[Array, "b t"], Float[Array, "b t d"]]:
        if isinstance(module, T5):
            where = jnp.arange(pairs.source.shape[1]) < pairs.source_length[:, None]
            hidden = target_states(module, params, pairs.source, where, pairs.target, key=key)
        else:
            hidden = decoder_states(module, params, pairs)
        flat = hidden.reshape(-1, hidden.shape[-1])
        logits: Any = module.apply({"params": params}, flat, method="logits")
        logprobs = logprobs_of(logits, pairs.target.reshape(-1)).reshape(pairs.target.shape)
        return logprobs, hidden.astype(jnp.float32)

    if remat:
        run = jax.checkpoint(run, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
    return run(params, pairs)
