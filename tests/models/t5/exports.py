"""Abstract arguments for the jitted functions of jaxrag.models.t5."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.models.sampling import TokenSampling
from jaxrag.models.t5.beams import beam_search
from jaxrag.models.t5.config import read_t5_config
from jaxrag.models.t5.decoding import T5Limits, extend_answers, score, start_answers
from jaxrag.models.t5.network import T5
from tests.models.t5.small_t5 import CONFIGS

ROWS, WIDTH, SLOTS = 4, 32, 16
MODEL = T5(read_t5_config(CONFIGS["1.1"], source="exports"), jnp.bfloat16)


def abstract(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def params() -> Any:
    token = jnp.zeros((1, 1), jnp.int32)
    made: Any = jax.eval_shape(lambda: MODEL.init(jax.random.key(0), token, token == 0, token))
    return jax.tree.map(lambda leaf: abstract(leaf.shape, jnp.bfloat16), made["params"])


def begun() -> Any:
    return jax.eval_shape(
        lambda p, t, w: start_answers(MODEL, p, t, w, slots=SLOTS), params(), *SOURCE
    )


SOURCE = abstract((ROWS, WIDTH), np.int32), abstract((ROWS, WIDTH), np.bool_)
NUMBER, FLOAT = abstract((), np.int32), abstract((), np.float32)
LIMITS = T5Limits(NUMBER, abstract((MODEL.config.vocab_size,), np.bool_))
SAMPLING = TokenSampling(FLOAT, *(abstract((ROWS,), np.uint32),) * 2)


def cases() -> Iterator[Any]:
    settings = {"slots": SLOTS}
    yield start_answers, (MODEL, params(), *SOURCE), settings
    yield extend_answers, (MODEL, params(), begun(), NUMBER, LIMITS, SAMPLING), {}
    yield score, (MODEL, params(), *SOURCE, abstract((ROWS, SLOTS), np.int32)), {}
    yield beam_search, (MODEL, params(), *SOURCE, LIMITS), {"beams": 3, **settings}
