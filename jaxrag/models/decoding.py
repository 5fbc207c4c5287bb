"""Prefill, decoding and scoring over a key-value cache, as a few programs of fixed shape.

Layout. A row's cache has ``c`` slots. Token i of its prompt lies in slot i, whatever the lengths of
its neighbours; the slots after the longest prompt stay unused until ``first``, where new tokens go,
again the same slot for all rows. So what a slot holds depends on nothing but the tokens up to it:
prompts that begin alike may share their keys and values, and a row's result never depends on the
batch. (Padding on the left, the other choice, would move a prompt's slots with its length.)

Prompts enter in chunks of equal length, so one program serves prompts of all lengths, and each
program is compiled once for each number of slots.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from jaxrag.models.decoder import Cache, Decoder

STEPS = 8
"""New tokens in one call of `decode`, after which the host may look for stop strings."""


class Sampling(NamedTuple):
    """How tokens are chosen: the most probable, or drawn at a ``temperature`` above 0.

    A draw depends on the seed, the row's own number and the step, so not on the batch.
    """

    temperature: Float[Array, ""]
    seed: UInt[Array, ""]
    rows: UInt[Array, " b"]


class Progress(NamedTuple):
    """Where decoding stands: the last token of each row, and which rows have met their end."""

    token: Int[Array, " b"]
    finished: Bool[Array, " b"]


def _slots(cache: Cache) -> int:
    _, values = cache[0]
    return values.shape[2]


def _apply(decoder: Decoder, params: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    return decoder.apply({"params": params}, *args, **kwargs)


@partial(jax.jit, static_argnames=("decoder", "reach"), donate_argnames="cache")
def extend(
    decoder: Decoder,
    params: dict[str, Any],
    cache: Cache,
    tokens: Int[Array, "b t"],
    start: Int[Array, ""],
    *,
    reach: int | None = None,
) -> tuple[Float[Array, "b t d"], Cache]:
    """Runs the next chunk of each row's prompt.

    Tokens after a row's end may be anything: no token looks at a later one, and slots that they
    leave behind are hidden from new tokens.

    Args:
      start: position and slot of the chunk's first token.
      reach: slots that are read, at least all up to the chunk's end; by default the whole cache.

    Returns:
      Hidden states of the chunk, and the cache with it.
    """
    positions = start + jnp.arange(tokens.shape[1])
    where = jnp.arange(reach or _slots(cache)) <= positions[:, None]
    return _apply(
        decoder,
        params,
        tokens,
        jnp.broadcast_to(positions, tokens.shape),
        where=jnp.broadcast_to(where, (len(tokens), *where.shape)),
        cache=cache,
        slot=start,
    )


@partial(jax.jit, static_argnames="decoder")
def choose(
    decoder: Decoder,
    params: dict[str, Any],
    hidden: Float[Array, "b d"],
    step: Int[Array, ""],
    sampling: Sampling,
) -> tuple[Int[Array, " b"], Float[Array, " b"]]:
    """The next token of each row, and its natural-log probability unscaled by temperature."""
    logits = _apply(decoder, params, hidden, method="logits")

    def draw(logits: Float[Array, "b v"]) -> Int[Array, " b"]:
        base = jax.random.key(sampling.seed)

        def one(row: UInt[Array, ""], logits: Float[Array, " v"]) -> Int[Array, ""]:
            key = jax.random.fold_in(jax.random.fold_in(base, row), step)
            return jax.random.categorical(key, logits / sampling.temperature)

        return jax.vmap(one)(sampling.rows, logits)

    def best(logits: Float[Array, "b v"]) -> Int[Array, " b"]:
        return logits.argmax(axis=-1)

    token = jax.lax.cond(sampling.temperature > 0, draw, best, logits).astype(jnp.int32)
    return token, _logprob(logits, token)


def _logprob(logits: Float[Array, "b v"], token: Int[Array, " b"]) -> Float[Array, " b"]:
    chosen = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


@partial(jax.jit, static_argnames="decoder", donate_argnames="cache")
def decode(
    decoder: Decoder,
    params: dict[str, Any],
    cache: Cache,
    progress: Progress,
    lengths: Int[Array, " b"],
    first: Int[Array, ""],
    made: Int[Array, ""],
    limit: Int[Array, ""],
    ends: Int[Array, " e"],
    sampling: Sampling,
) -> tuple[Cache, Progress, Int[Array, "b s"], Float[Array, "b s"]]:
    """Makes up to `STEPS` further tokens, fewer once all rows have finished.

    Args:
      lengths: of the prompts.
      first: slot of the first new token.
      made: how many tokens there are already; at least one, from `choose`.
      limit: how many to make now, at most `STEPS`.
      ends: tokens that finish a row; what a row makes after that is to be thrown away.

    Returns:
      The cache; where decoding stands; and the tokens made with their log-probabilities, in columns
      from 0 on.
    """
    slots = jnp.arange(_slots(cache))
    shape = (len(lengths), STEPS)

    def unfinished(state: tuple[Any, ...]) -> Bool[Array, ""]:
        i, _, progress, _, _ = state
        return (i < limit) & ~progress.finished.all()

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        i, cache, progress, tokens, logprobs = state
        slot = first + made - 1 + i
        where = (slots < lengths[:, None]) | ((first <= slots) & (slots <= slot))
        hidden, cache = _apply(
            decoder,
            params,
            progress.token[:, None],
            (lengths + made - 1 + i)[:, None],
            where=where[:, None],
            cache=cache,
            slot=slot,
        )
        token, logprob = choose(decoder, params, hidden[:, 0], made + i, sampling)
        finished = progress.finished | jnp.isin(token, ends)
        tokens, logprobs = tokens.at[:, i].set(token), logprobs.at[:, i].set(logprob)
        return i + 1, cache, Progress(token, finished), tokens, logprobs

    nothing = (jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.float32))
    state = (jnp.int32(0), cache, progress, *nothing)
    _, cache, progress, tokens, logprobs = jax.lax.while_loop(unfinished, step, state)
    return cache, progress, tokens, logprobs


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


@partial(jax.jit, static_argnames="length")
def copy_out(
    cache: Cache, row: Int[Array, ""], start: Int[Array, ""], *, length: int
) -> Float[Array, "l 2 g t e"]:
    """Keys and values of ``length`` slots of one row, all layers together."""

    def cut(array: Float[Array, "b g c e"]) -> Float[Array, "g t e"]:
        row_of = jax.lax.dynamic_index_in_dim(array, row, keepdims=False)
        return jax.lax.dynamic_slice_in_dim(row_of, start, length, axis=1)

    return jnp.stack([jnp.stack([cut(keys.swapaxes(2, 3)), cut(values)]) for keys, values in cache])


@partial(jax.jit, donate_argnames="cache")
def copy_in(
    cache: Cache, blocks: tuple[Float[Array, "l 2 g t e"], ...], start: Int[Array, ""]
) -> Cache:
    """Puts one of `copy_out`'s blocks into each row, at ``start``."""
    stacked = jnp.stack(blocks)  # [b l 2 g t e]
    put = jax.lax.dynamic_update_slice_in_dim
    return tuple(
        (
            put(keys, stacked[:, i, 0].swapaxes(2, 3), start, axis=3),
            put(values, stacked[:, i, 1], start, axis=2),
        )
        for i, (keys, values) in enumerate(cache)
    )


@jax.jit
def join(caches: tuple[Cache, ...]) -> Cache:
    """One cache with the rows of several, in their order."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *caches)
