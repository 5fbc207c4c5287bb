"""States of a T5 and of a decoder that predict a target's tokens, and what they make of these.

Axes besides those of jaxrag.types: ``s`` token of the source.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrag.models.cache import empty_cache
from jaxrag.models.decoder import Decoder
from jaxrag.models.t5 import T5
from jaxrag.models.t5_scoring import logprobs_of, shift_right
from jaxrag.training.students_kinds import Pairs


def t5_states(
    module: T5,
    params: Any,
    source: Int[Array, "b s"],
    source_length: Int[Array, " b"],
    target: Int[Array, "b t"],
    *,
    key: jax.Array | None,
) -> Float[Array, "b t d"]:
    """The decoder's state that predicts each token of the target."""
    where = jnp.arange(source.shape[1]) < source_length[:, None]
    found: Any = module.apply(
        {"params": params},
        source,
        where,
        shift_right(target, module.config),
        deterministic=key is None,
        rngs=None if key is None else {"dropout": key},
        method="hidden",
    )
    return found


def decoder_states(
    module: Decoder,
    params: Any,
    source: Int[Array, "b s"],
    source_length: Int[Array, " b"],
    target: Int[Array, "b t"],
) -> Float[Array, "b t d"]:
    """The state that predicts each token of a target that follows its source.

    Source and target lie side by side in one row, each padded on its right. A target's token has
    the position that it has in the text, and looks at the source's tokens, not at their padding.
    """
    (b, s), t = source.shape, target.shape[1]
    places, length = jnp.arange(s + t), source_length[:, None]
    positions = jnp.where(places < s, places, length + places - s)
    there = (places < length) | (places >= s)
    where = there[:, None] & (places <= places[:, None])
    variables = {"params": params}
    cache = empty_cache(module.config, b, s + t, module.dtype, stacked=module.stacked)
    tokens = jnp.concatenate([source, target], axis=1)
    found: Any = module.apply(variables, tokens, positions, where=where, cache=cache)
    hidden = found[0]
    first = jnp.take_along_axis(hidden, (length - 1)[..., None], axis=1)
    return jnp.concatenate([first, hidden[:, s : s + t - 1]], axis=1)


def token_logprobs(
    module: T5 | Decoder, params: Any, hidden: Float[Array, "b t d"], tokens: Int[Array, "b t"]
) -> Float[Array, "b t"]:
    """Natural-log probability of each token, by the state that predicts it; float32."""
    flat = hidden.reshape(-1, hidden.shape[-1])
    logits: Any = module.apply({"params": params}, flat, method="logits")
    return logprobs_of(logits, tokens.reshape(-1)).reshape(tokens.shape)


def target_logprobs(
    module: Any,
    params: Any,
    pairs: Pairs,
    *,
    key: jax.Array | None = None,
    remat: bool = False,
) -> tuple[Float[Array, "b t"], Float[Array, "b t d"]]:
    """What a network thinks of targets, each token given its source and the tokens before it.

    Padding changes nothing: nothing looks at it, and what stands at its places is to be left out.

    Args:
      module: of a `Student`.
      params: its parameters.
      pairs: sources and targets of any width.
      key: drops activations at the rate of the network's config (of our networks, T5 has one).
      remat: keeps the results of matrix products alone for the derivative and computes the rest,
        attention weights among it, once more.

    Returns:
      Natural-log probabilities of the target's tokens, and the state of the last layer that
      predicts each, both float32.
    """

    def run(params: Any, pairs: Pairs) -> tuple[Float[Array, "b t"], Float[Array, "b t d"]]:
        if isinstance(module, T5):
            hidden = t5_states(module, params, *pairs[:3], key=key)
        else:
            hidden = decoder_states(module, params, *pairs[:3])
        return token_logprobs(module, params, hidden, pairs.target), hidden.astype(jnp.float32)

    if remat:
        run = jax.checkpoint(run, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
    return run(params, pairs)
