"""Prefill, decoding and scoring over a key-value cache, as a few programs of fixed shape.

The token at position i of a row is in slot i of its cache. So the content of a slot depends only on
the tokens up to it: prompts may share the keys and values of a common prefix, a row's result does
not depend on the batch, and a finished row may be given to the next prompt while others continue.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.cache import Cache
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.sampling import TokenSampling, logprobs_of, sample_tokens

STEPS = 8
"""Limit of new tokens of a `decode` call, after which the host can check for stop strings."""


class DecodingRows(NamedTuple):
    """Decoding state of the rows of a batch.

    Attributes:
      token, position: last token of each row, not in the cache yet; its position and slot.
      made: number of new tokens of the row, including that one.
      finished: whether the row is done; a finished row does not change.
    """

    token: Int[Array, " b"]
    position: Int[Array, " b"]
    made: Int[Array, " b"]
    finished: Bool[Array, " b"]


class DecodingLimits(NamedTuple):
    """When decoding stops.

    Attributes:
      count: most new tokens of a row; one number, or one for each row.
      steps: limit of steps of a call, at most `STEPS`.
      enough: the call ends once this many rows have finished.
      ends: mask of the tokens that finish a row.
    """

    count: Int[Array, "*b"]
    steps: Int[Array, ""]
    enough: Int[Array, ""]
    ends: Bool[Array, " v"]


def _slots(cache: Cache) -> int:
    _, values = cache[0]
    return values.shape[-2]


def _apply(decoder: Decoder, params: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    return decoder.apply({"params": params}, *args, **kwargs)


@partial(jax.jit, static_argnames="decoder", donate_argnames="cache")
def extend(
    decoder: Decoder,
    params: dict[str, Any],
    cache: Cache,
    tokens: Int[Array, "b t"],
    start: Int[Array, "*b"],
    used: Int[Array, ""] | None = None,
    rows: Int[Array, " b"] | None = None,
) -> tuple[Float[Array, "b t d"], Cache]:
    """Prefills chunks of prompts; returns their hidden states, and the updated cache.

    Tokens after the end of a prompt may be arbitrary: new tokens do not attend to their slots.

    Args:
      start: position and slot of a chunk's first token; a scalar, or one for each chunk.
      used: slots that are read; chunks that end beyond it get arbitrary hidden states. None reads
        all.
      rows: the row of each chunk, which may have several in any order; None is the next of each
        row.
    """
    positions = jnp.asarray(start)[..., None] + jnp.arange(tokens.shape[1])
    positions = jnp.broadcast_to(positions, tokens.shape)
    where = jnp.arange(_slots(cache)) <= positions[..., None]
    context = {"where": where, "cache": cache, "slot": start, "used": used, "rows": rows}
    return _apply(decoder, params, tokens, positions, **context)


@partial(jax.jit, static_argnames="decoder")
def next_token(
    decoder: Decoder,
    params: dict[str, Any],
    hidden: Float[Array, "b d"],
    step: Int[Array, " b"],
    sampling: TokenSampling,
) -> tuple[Int[Array, " b"], Float[Array, " b"]]:
    """The next token of each row, and its natural-log probability without temperature and penalty.

    Args:
      hidden: hidden state of the previous token.
      step: index of the new token in its answer, from 0.
      sampling: how the token is chosen.
    """
    logits = _apply(decoder, params, hidden, method="logits")
    token = sample_tokens(logits, step, sampling)
    return token, logprobs_of(logits, token)


@partial(jax.jit, static_argnames=("decoder", "by_blocks"), donate_argnames="cache")
def decode(
    decoder: Decoder,
    params: dict[str, Any],
    cache: Cache,
    rows: DecodingRows,
    limits: DecodingLimits,
    sampling: TokenSampling,
    *,
    by_blocks: bool = False,
) -> tuple[Cache, DecodingRows, Int[Array, "b s"], Float[Array, "b s"]]:
    """Generates up to `STEPS` further tokens for each row that has not finished.

    ``by_blocks``: whether only the slots in use are read (`attend_to_used`), which is faster on
    CPUs; a row's bits then do not depend on the number of slots. Layers must not be stacked.
    Returned new tokens and log-probabilities are valid in as many first columns of a row as its
    ``made`` has increased by.
    """
    slots = jnp.arange(_slots(cache))
    shape = (len(rows.token), STEPS)

    def unfinished(state: tuple[Any, ...]) -> Bool[Array, ""]:
        i, _, rows, *_ = state
        return (i < limits.steps) & (rows.finished.sum() < limits.enough)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        i, cache, rows, tokens, logprobs, repetition = state
        used = jnp.where(rows.finished, 0, rows.position).max() + 1 if by_blocks else None
        hidden, cache = _apply(
            decoder,
            params,
            rows.token[:, None],
            rows.position[:, None],
            where=(slots <= rows.position[:, None])[:, None],
            cache=cache,
            slot=rows.position,
            used=used,
        )
        choice = sampling._replace(repetition=repetition)
        token, logprob = next_token(decoder, params, hidden[:, 0], rows.made, choice)
        moved = (~rows.finished).astype(jnp.int32)
        made = rows.made + moved
        finished = rows.finished | limits.ends[token] | (made >= limits.count)
        token = jnp.where(rows.finished, rows.token, token)
        tokens, logprobs = tokens.at[:, i].set(token), logprobs.at[:, i].set(logprob)
        rows = DecodingRows(token, rows.position + moved, made, finished)
        if repetition is not None:
            repetition = repetition.after(token)
        return i + 1, cache, rows, tokens, logprobs, repetition

    nothing = (jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.float32))
    state = (jnp.int32(0), cache, rows, *nothing, sampling.repetition)
    _, cache, rows, tokens, logprobs, _ = jax.lax.while_loop(unfinished, step, state)
    return cache, rows, tokens, logprobs


@partial(jax.jit, static_argnames="decoder")
def score(
    decoder: Decoder,
    params: dict[str, Any],
    hidden: Float[Array, "n d"],
    targets: Int[Array, " n"],
) -> Float[Array, " n"]:
    """Natural-log probability of each target, given the hidden state of the token before it."""
    logits = _apply(decoder, params, hidden, method="logits")
    return logprobs_of(logits, targets)
