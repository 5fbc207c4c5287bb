"""Tests whether a row's results are bit-identical in programs of other shapes.

On CPUs they mostly are, but nothing guarantees it: the first and output layers are tested.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.models.cache import empty_cache
from jaxrag.models.decoder.decoding import STEPS, DecodingLimits, DecodingRows, decode
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


def _first_layer(decoder: Decoder, params: dict[str, Any]) -> tuple[Decoder, dict[str, Any]]:
    windows = decoder.config.windows[:1]
    config = dataclasses.replace(decoder.config, num_hidden_layers=1, windows=windows)
    body = params["model"]
    body = {**body, "layers": {"0": body["layers"]["0"]}}
    return Decoder(config, decoder.dtype), {**params, "model": body}


def _same_in_decoding(decoder: Decoder, params: dict[str, Any], counts: Sequence[int]) -> bool:
    """Whether decoding steps are bit-identical in all these numbers of rows, given ascending."""
    config, rows, random = decoder.config, counts[-1], np.random.default_rng(0)
    token = random.integers(0, config.vocab_size, rows).astype(np.int32)
    position = random.integers(_SLOTS // 4, _SLOTS - STEPS, rows).astype(np.int32)
    entries = [
        random.normal(size=leaf.shape)
        for leaf in jax.tree.leaves(empty_cache(config, rows, _SLOTS, decoder.dtype))
    ]

    def run(count: int) -> tuple[np.ndarray, np.ndarray]:
        keys, values = (jnp.asarray(entry[:count], decoder.dtype) for entry in entries)
        state = (token[:count], position[:count], np.ones(count, np.int32), np.zeros(count, bool))
        limits = DecodingLimits(
            jnp.int32(2 * STEPS),
            jnp.int32(STEPS),
            jnp.int32(count),
            jnp.zeros(config.vocab_size, bool),
        )
        greedy = TokenSampling(jnp.float32(0), *jnp.zeros((2, count), jnp.uint32))
        start = DecodingRows(*map(jnp.asarray, state))
        _, _, tokens, logprobs = decode(
            decoder, params, ((keys, values),), start, limits, greedy, by_blocks=True
        )
        return np.asarray(tokens), np.asarray(logprobs)

    full = run(rows)
    return all(
        np.array_equal(few, many[:count])
        for count in counts[:-1]
        for few, many in zip(run(count), full, strict=True)
    )
