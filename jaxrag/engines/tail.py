"""Whether a row's bits are the same however many rows there are.

On CPUs they mostly are for models of a real size; nothing promises it, so it is tried out on the
model's first layer and its output layer. Where it holds, few answers can be written in few rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.models.decoder import Decoder, empty_cache
from jaxrag.models.decoding import STEPS, Limits, Rows, Sampling, decode

_SLOTS = 128


def same_bits(decoder: Decoder, params: dict[str, Any], counts: Sequence[int]) -> bool:
    """Whether some steps of decoding are equal in all these numbers of rows.

    Args:
      decoder: its layers are not stacked.
      params: its parameters, on one device.
      counts: numbers of rows.
    """
    config = dataclasses.replace(decoder.config, num_hidden_layers=1)
    body = params["model"]
    body = {**body, "layers": {"0": body["layers"]["0"]}}
    one, params = Decoder(config, decoder.dtype), {**params, "model": body}
    rows, random = max(counts), np.random.default_rng(0)
    token = random.integers(0, config.vocab_size, rows).astype(np.int32)
    position = random.integers(_SLOTS // 4, _SLOTS - STEPS, rows).astype(np.int32)
    entries = [
        random.normal(size=leaf.shape)
        for leaf in jax.tree.leaves(empty_cache(config, rows, _SLOTS, decoder.dtype))
    ]

    def run(count: int) -> tuple[np.ndarray, np.ndarray]:
        keys, values = (jnp.asarray(entry[:count], decoder.dtype) for entry in entries)
        state = (token[:count], position[:count], np.ones(count, np.int32), np.zeros(count, bool))
        limits = Limits(
            jnp.int32(2 * STEPS),
            jnp.int32(STEPS),
            jnp.int32(count),
            jnp.zeros(config.vocab_size, bool),
        )
        greedy = Sampling(jnp.float32(0), jnp.uint32(0), jnp.zeros(count, jnp.uint32))
        start = Rows(*map(jnp.asarray, state))
        _, _, tokens, logprobs = decode(one, params, ((keys, values),), start, limits, greedy)
        return np.asarray(tokens), np.asarray(logprobs)

    whole = run(rows)
    return all(
        np.array_equal(few, many[:count])
        for count in counts
        if count < rows
        for few, many in zip(run(count), whole, strict=True)
    )


def tail_rows(decoder: Decoder, params: dict[str, Any], rows: int, few: int) -> int:
    """``few`` if that many rows give the same bits as ``rows`` and its halves; else ``rows``."""
    counts = {rows}
    while min(counts) % 2 == 0 and min(counts) // 2 >= few:
        counts.add(min(counts) // 2)
    return few if same_bits(decoder, params, sorted(counts | {few})) else rows
