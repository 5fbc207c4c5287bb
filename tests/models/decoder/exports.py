"""Abstract arguments for the jitted functions of the decoder and its cache."""

from collections.abc import Iterator
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
from jaxrag.models.decoder.inspection import inspect, predict
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


def cases() -> Iterator[Any]:
    vocabulary, tokens = DECODER.config.vocab_size, abstract((ROWS, CHUNK), np.int32)
    yield extend, (DECODER, params(), cache(), tokens, NUMBER), {}
    yield next_token, (DECODER, params(), hidden(ROWS), ROW, SAMPLING), {}
    rows = DecodingRows(ROW, ROW, ROW, abstract((ROWS,), np.bool_))
    limits = DecodingLimits(NUMBER, NUMBER, NUMBER, abstract((vocabulary,), np.bool_))
    yield decode, (DECODER, params(), cache(), rows, limits, SAMPLING), {}
    yield score, (DECODER, params(), hidden(7), abstract((7,), np.int32)), {}
    yield copy_out, (cache(), NUMBER, NUMBER), {"length": CHUNK}
    yield place, (cache(), cache(), ROW, ROW, NUMBER), {}
    yield take, (cache(), abstract((2,), np.int32)), {}
    yield copy_in, (cache(), BLOCK, NUMBER, NUMBER), {}
    yield inspect, (DECODER, params(), cache(), tokens, ROW, NUMBER), {}
    yield predict, (DECODER, params(), hidden(7), abstract((7,), np.int32)), {}
