"""Abstract arguments for the jitted functions of jaxrag.models.decoder.decoding."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.models.cache import copy_in, copy_out, empty_cache, place, take
from jaxrag.models.decoder.checkpoint import initialise
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.decoding import (
    DecodingLimits,
    DecodingRows,
    decode,
    extend,
    next_token,
    score,
)
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.sampling import TokenSampling
from tests.models.decoder.reference import CONFIGS

ROWS, SLOTS, CHUNK = 4, 32, 8
DECODER = Decoder(read_decoder_config(CONFIGS["qwen3"], source="exports"), jnp.bfloat16)


def abstract(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def params() -> Any:
    tree = jax.eval_shape(lambda: initialise(DECODER, jax.random.key(0)))
    return jax.tree.map(lambda leaf: abstract(leaf.shape, jnp.bfloat16), tree)


def cache() -> Any:
    return jax.eval_shape(lambda: empty_cache(DECODER.config, ROWS, SLOTS, DECODER.dtype))


def hidden(n: int) -> Any:
    return abstract((n, DECODER.config.hidden_size), jnp.bfloat16)


NUMBER = abstract((), np.int32)
ROW = abstract((ROWS,), np.int32)
SAMPLING = TokenSampling(abstract((), np.float32), *(abstract((ROWS,), np.uint32),) * 2)
BLOCK = abstract(
    (DECODER.config.num_hidden_layers, 2, 2, CHUNK, DECODER.config.head_dim), jnp.bfloat16
)

CASES: dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {
    "jaxrag.models.decoder.decoding.extend": lambda: (
        extend,
        (DECODER, params(), cache(), abstract((ROWS, CHUNK), np.int32), NUMBER),
        {},
    ),
    "jaxrag.models.decoder.decoding.next_token": lambda: (
        next_token,
        (DECODER, params(), hidden(ROWS), ROW, SAMPLING),
        {},
    ),
    "jaxrag.models.decoder.decoding.decode": lambda: (
        decode,
        (
            DECODER,
            params(),
            cache(),
            DecodingRows(ROW, ROW, ROW, abstract((ROWS,), np.bool_)),
            DecodingLimits(
                NUMBER, NUMBER, NUMBER, abstract((DECODER.config.vocab_size,), np.bool_)
            ),
            SAMPLING,
        ),
        {},
    ),
    "jaxrag.models.decoder.decoding.score": lambda: (
        score,
        (DECODER, params(), hidden(7), abstract((7,), np.int32)),
        {},
    ),
    "jaxrag.models.cache.copy_out": lambda: (
        copy_out,
        (cache(), NUMBER, NUMBER),
        {"length": CHUNK},
    ),
    "jaxrag.models.cache.place": lambda: (
        place,
        (cache(), cache(), ROW, ROW, NUMBER),
        {},
    ),
    "jaxrag.models.cache.take": lambda: (take, (cache(), abstract((2,), np.int32)), {}),
    "jaxrag.models.cache.copy_in": lambda: (copy_in, (cache(), BLOCK, NUMBER, NUMBER), {}),
}
