"""Tests whether a row's results are bit-identical in programs of other shapes.

On CPUs, models of realistic size mostly are invariant, but nothing guarantees it, so the model's
first and output layers are tested. If they are, the last answers can be decoded in fewer rows, and
the last prompts read one by one without idle rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.models.cache import empty_cache
from jaxrag.models.decoder.decoding import (
    STEPS,
    DecodingLimits,
    DecodingRows,
    decode,
    extend,
    extend_row,
)
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.sampling import TokenSampling

_SLOTS = 128


def tail_rows(decoder: Decoder, params: dict[str, Any], rows: int, few: int) -> int:
    """``few`` if decoding ``few`` rows gives the bits of ``rows`` and its halves, else ``rows``.

    The decoder's layers are not stacked, and its parameters are on one device.
    """
    counts = {rows}
    while min(counts) % 2 == 0 and min(counts) // 2 >= few:
        counts.add(min(counts) // 2)
    same = _same_in_decoding(*_first_layer(decoder, params), sorted(counts | {few}))
    return few if same else rows


def wide_chunk(decoder: Decoder, params: dict[str, Any], rows: int, chunk: int, wide: int) -> int:
    """``wide`` if prefilling one row by ``wide`` tokens gives the bits of ``rows``, else ``chunk``.

    ``rows`` are prefilled by ``chunk`` tokens each; ``wide`` is a multiple of ``chunk``.
    """
    one, params = _first_layer(decoder, params)
    random = np.random.default_rng(0)
    tokens = random.integers(0, decoder.config.vocab_size, wide).astype(np.int32)
    cache, parts = empty_cache(one.config, rows, 2 * wide, one.dtype), []
    for start in range(0, wide, chunk):  # in the last row, the others being elsewhere
        batch = random.integers(0, decoder.config.vocab_size, (rows, chunk)).astype(np.int32)
        batch[-1], starts = tokens[start : start + chunk], np.full(rows, wide, np.int32)
        starts[-1] = start
        end = np.int32(start + chunk)
        hidden, cache = extend(one, params, cache, jnp.asarray(batch), jnp.asarray(starts), end)
        parts.append(np.asarray(hidden[-1]))
    alone = empty_cache(one.config, rows, 2 * wide, one.dtype)
    hidden, alone = extend_row(one, params, alone, tokens, np.int32(0), np.int32(0))
    ((keys, values),), ((own_keys, own_values),) = cache, alone
    same = (
        np.array_equal(np.concatenate(parts), hidden),
        np.array_equal(keys[-1, ..., :wide], own_keys[0, ..., :wide]),
        np.array_equal(values[-1, :, :wide], own_values[0, :, :wide]),
    )
    return wide if all(same) else chunk


def _first_layer(decoder: Decoder, params: dict[str, Any]) -> tuple[Decoder, dict[str, Any]]:
    windows = decoder.config.windows[:1]
    config = dataclasses.replace(decoder.config, num_hidden_layers=1, windows=windows)
    body = params["model"]
    body = {**body, "layers": {"0": body["layers"]["0"]}}
    return Decoder(config, decoder.dtype), {**params, "model": body}


def _same_in_decoding(one: Decoder, params: dict[str, Any], counts: Sequence[int]) -> bool:
    """Whether decoding steps are bit-identical in all these numbers of rows, given ascending."""
    config, rows, random = one.config, counts[-1], np.random.default_rng(0)
    token = random.integers(0, config.vocab_size, rows).astype(np.int32)
    position = random.integers(_SLOTS // 4, _SLOTS - STEPS, rows).astype(np.int32)
    entries = [
        random.normal(size=leaf.shape)
        for leaf in jax.tree.leaves(empty_cache(config, rows, _SLOTS, one.dtype))
    ]

    def run(count: int) -> tuple[np.ndarray, np.ndarray]:
        keys, values = (jnp.asarray(entry[:count], one.dtype) for entry in entries)
        state = (token[:count], position[:count], np.ones(count, np.int32), np.zeros(count, bool))
        limits = DecodingLimits(
            jnp.int32(2 * STEPS),
            jnp.int32(STEPS),
            jnp.int32(count),
            jnp.zeros(config.vocab_size, bool),
        )
        greedy = TokenSampling(jnp.float32(0), *jnp.zeros((2, count), jnp.uint32))
        start = DecodingRows(*map(jnp.asarray, state))
        _, _, tokens, logprobs = decode(one, params, ((keys, values),), start, limits, greedy)
        return np.asarray(tokens), np.asarray(logprobs)

    whole = run(rows)
    return all(
        np.array_equal(few, many[:count])
        for count in counts[:-1]
        for few, many in zip(run(count), whole, strict=True)
    )
