"""Prefill, decoding and scoring over a key-value cache, as a few programs of fixed shape.

Layout. A row's cache has ``c`` slots, and the token at position i lies in slot i, whatever its
neighbours do. So what a slot holds depends on nothing but the tokens up to it: prompts that begin
alike may share their keys and values, a row's result never depends on the batch, and a row that has
finished may be given to the next prompt while the others go on. (Padding on the left, the other
choice, would move a prompt's slots with its neighbours' lengths.)

Prompts enter in chunks of equal length, so one program serves prompts of all lengths, and each
program is compiled once for each number of slots.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from jaxrag.models.decoder.cache import Cache, row_of, with_row
from jaxrag.models.decoder.network import Decoder

STEPS = 8
"""New tokens in one call of `decode`, after which the host may look for stop strings."""


class TokenSampling(NamedTuple):
    """How tokens are chosen: the most probable, or drawn at a ``temperature`` above 0.

    A draw depends on the row's own seed and number and the step, so not on the batch.
    """

    temperature: Float[Array, ""]
    seeds: UInt[Array, " b"]
    rows: UInt[Array, " b"]


class DecodingRows(NamedTuple):
    """Where the rows of a batch stand.

    Attributes:
      token: the last one of each row, whose key and value are not in the cache yet.
      position: of that token, and its slot.
      made: how many new tokens the row has, that one included.
      finished: whether the row is done; it then stands still.
    """

    token: Int[Array, " b"]
    position: Int[Array, " b"]
    made: Int[Array, " b"]
    finished: Bool[Array, " b"]


class DecodingLimits(NamedTuple):
    """When decoding stops.

    Attributes:
      count: most new tokens of a row.
      steps: most steps of one call, at most `STEPS`.
      enough: the call ends once so many rows have finished.
      ends: which tokens finish a row.
    """

    count: Int[Array, ""]
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
) -> tuple[Float[Array, "b t d"], Cache]:
    """Runs the next chunk of each row's prompt.

    Tokens after a row's end may be anything: no token looks at a later one, and slots that they
    leave behind are hidden from new tokens.

    Args:
      start: position and slot of the chunk's first token, of all rows or of each.

    Returns:
      Hidden states of the chunk, and the cache with it.
    """
    positions = jnp.asarray(start)[..., None] + jnp.arange(tokens.shape[1])
    positions = jnp.broadcast_to(positions, tokens.shape)
    where = jnp.arange(_slots(cache)) <= positions[..., None]
    return _apply(
        decoder,
        params,
        tokens,
        positions,
        where=where,
        cache=cache,
        slot=start,
    )


@partial(jax.jit, static_argnames="decoder", donate_argnames="cache")
def extend_row(
    decoder: Decoder,
    params: dict[str, Any],
    cache: Cache,
    tokens: Int[Array, " t"],
    start: Int[Array, ""],
    row: Int[Array, ""],
) -> tuple[Float[Array, "t d"], Cache]:
    """Runs the next tokens of one row's prompt; otherwise as `extend`.

    Returns:
      Hidden states of these tokens, and the cache, of which no other row has changed.
    """
    one = row_of(cache, row)
    hidden, one = extend(decoder, params, one, tokens[None], start)
    return hidden[0], with_row(cache, one, row)


def pick(
    logits: Float[Array, "b v"], step: Int[Array, " b"], sampling: TokenSampling
) -> Int[Array, " b"]:
    """The next token of each row: the most probable, or drawn at a temperature above 0.

    A draw depends on the row's seed and number and the step, so not on the batch.
    """

    def draw(logits: Float[Array, "b v"]) -> Int[Array, " b"]:
        def one(
            seed: UInt[Array, ""],
            row: UInt[Array, ""],
            step: Int[Array, ""],
            logits: Float[Array, " v"],
        ) -> Int[Array, ""]:
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), row), step)
            return jax.random.categorical(key, logits / sampling.temperature)

        return jax.vmap(one)(sampling.seeds, sampling.rows, step, logits)

    def best(logits: Float[Array, "b v"]) -> Int[Array, " b"]:
        return logits.argmax(axis=-1)

    return jax.lax.cond(sampling.temperature > 0, draw, best, logits).astype(jnp.int32)


@partial(jax.jit, static_argnames="decoder")
def next_token(
    decoder: Decoder,
    params: dict[str, Any],
    hidden: Float[Array, "b d"],
    step: Int[Array, " b"],
    sampling: TokenSampling,
) -> tuple[Int[Array, " b"], Float[Array, " b"]]:
    """The next token of each row, and its natural-log probability unscaled by temperature.

    Args:
      hidden: of the token before.
      step: the number of the new token in its answer, from 0.
      sampling: how it is chosen.
    """
    logits = _apply(decoder, params, hidden, method="logits")

    token = pick(logits, step, sampling)
    return token, _logprob(logits, token)


def _logprob(logits: Float[Array, "b v"], token: Int[Array, " b"]) -> Float[Array, " b"]:
    chosen = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


@partial(jax.jit, static_argnames="decoder", donate_argnames="cache")
def decode(
    decoder: Decoder,
    params: dict[str, Any],
    cache: Cache,
    rows: DecodingRows,
    limits: DecodingLimits,
    sampling: TokenSampling,
) -> tuple[Cache, DecodingRows, Int[Array, "b s"], Float[Array, "b s"]]:
    """Makes up to `STEPS` further tokens for each row that has not finished.

    Returns:
      The cache; where the rows stand; and the tokens made with their log-probabilities. A row's are
      the first columns, as many as its ``made`` grew by; what follows is to be thrown away.
    """
    slots = jnp.arange(_slots(cache))
    shape = (len(rows.token), STEPS)

    def unfinished(state: tuple[Any, ...]) -> Bool[Array, ""]:
        i, _, rows, _, _ = state
        return (i < limits.steps) & (rows.finished.sum() < limits.enough)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        i, cache, rows, tokens, logprobs = state
        hidden, cache = _apply(
            decoder,
            params,
            rows.token[:, None],
            rows.position[:, None],
            where=(slots <= rows.position[:, None])[:, None],
            cache=cache,
            slot=rows.position,
        )
        token, logprob = next_token(decoder, params, hidden[:, 0], rows.made, sampling)
        moved = (~rows.finished).astype(jnp.int32)
        made = rows.made + moved
        finished = rows.finished | limits.ends[token] | (made >= limits.count)
        token = jnp.where(rows.finished, rows.token, token)
        tokens, logprobs = tokens.at[:, i].set(token), logprobs.at[:, i].set(logprob)
        return (
            i + 1,
            cache,
            DecodingRows(token, rows.position + moved, made, finished),
            tokens,
            logprobs,
        )

    nothing = (jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.float32))
    state = (jnp.int32(0), cache, rows, *nothing)
    _, cache, rows, tokens, logprobs = jax.lax.while_loop(unfinished, step, state)
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
    return _logprob(logits, targets)
