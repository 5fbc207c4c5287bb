"""Log-probabilities that a T5 gives to answers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.t5.config import T5Config
from jaxrag.models.t5.network import T5


def shift_right(targets: Int[Array, "b t"], config: T5Config) -> Int[Array, "b t"]:
    """What the decoder reads to predict ``targets``: its start token, then all but the last."""
    start = jnp.full((len(targets), 1), config.decoder_start_token_id, targets.dtype)
    return jnp.concatenate([start, targets[:, :-1]], axis=1)


def logprobs_of(logits: Float[Array, "*n v"], tokens: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """Natural-log probability of each token under its logits."""
    chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def target_logprobs(
    model: T5,
    params: Any,
    tokens: Int[Array, "b s"],
    where: Bool[Array, "b s"],
    targets: Int[Array, "b t"],
    *,
    dropout: jax.Array | None = None,
) -> Float[Array, "b t"]:
    """Natural-log probability of each token of an answer, given its source and what precedes it.

    Args:
      model, params: the network.
      tokens, where: the source and which of its tokens are there.
      targets: the answer, its end token included; after it may follow any padding.
      dropout: a key, with which activations are dropped as in training; None drops nothing.
    """
    logits: Any = model.apply(
        {"params": params},
        tokens,
        where,
        shift_right(targets, model.config),
        deterministic=dropout is None,
        rngs=None if dropout is None else {"dropout": dropout},
    )
    return logprobs_of(logits, targets)
