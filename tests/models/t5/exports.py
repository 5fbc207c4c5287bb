"""Abstract arguments for the jitted functions of jaxrag.models.t5.decoding and t5_beams."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict

from jaxrag.models.decoder.decoding import TokenSampling
from jaxrag.models.t5.beams import LengthPenalty, beam_search
from jaxrag.models.t5.checkpoint import parameter_shapes
from jaxrag.models.t5.config import read_t5_config
from jaxrag.models.t5.decoding import T5Limits, extend_answers, score, start_answers
from jaxrag.models.t5.network import T5
from tests.models.t5.small_t5 import CONFIGS

ROWS, WIDTH, SLOTS = 4, 32, 16
MODEL = T5(read_t5_config(CONFIGS["1.1"], source="exports"), jnp.bfloat16)


def abstract(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def params() -> Any:
    shapes = parameter_shapes(MODEL.config)
    return unflatten_dict({n: abstract(s, jnp.bfloat16) for n, s in shapes.items()}, sep=".")


def begun() -> Any:
    return jax.eval_shape(
        lambda p, t, w: start_answers(MODEL, p, t, w, slots=SLOTS), params(), *SOURCE
    )


SOURCE = abstract((ROWS, WIDTH), np.int32), abstract((ROWS, WIDTH), np.bool_)
NUMBER, FLOAT = abstract((), np.int32), abstract((), np.float32)
LIMITS = T5Limits(NUMBER, NUMBER, abstract((MODEL.config.vocab_size,), np.bool_))
SAMPLING = TokenSampling(FLOAT, *(abstract((ROWS,), np.uint32),) * 2)

CASES: dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {
    "jaxrag.models.t5.decoding.start_answers": lambda: (
        start_answers,
        (MODEL, params(), *SOURCE),
        {"slots": SLOTS},
    ),
    "jaxrag.models.t5.decoding.extend_answers": lambda: (
        extend_answers,
        (MODEL, params(), begun(), NUMBER, LIMITS, SAMPLING),
        {},
    ),
    "jaxrag.models.t5.decoding.score": lambda: (
        score,
        (MODEL, params(), *SOURCE, abstract((ROWS, SLOTS), np.int32)),
        {},
    ),
    "jaxrag.models.t5.beams.beam_search": lambda: (
        beam_search,
        (MODEL, params(), *SOURCE, LIMITS, LengthPenalty(FLOAT, abstract((), np.bool_))),
        {"beams": 3, "slots": SLOTS},
    ),
}
