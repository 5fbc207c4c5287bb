"""Programs of T5-large, which writes queries for ERRR and RRR."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.tpu.chips import Place, Slice
from benchmarks.tpu.networks import BFLOAT16, FLOAT32
from benchmarks.tpu.program import Ideal, Program
from benchmarks.tpu.training import STEPS, Shaped, Training
from configs.errr import STUDENTS
from jaxrag.models.sampling import TokenSampling
from jaxrag.models.t5.checkpoint import parameter_shapes, random_t5
from jaxrag.models.t5.config import T5Config, read_t5_config
from jaxrag.models.t5.decoding import T5Limits, extend_answers, start_answers
from jaxrag.models.t5.network import T5
from jaxrag.training.student.student import TokenPairs
from jaxrag.training.student.training import StudentBatch, make_step

CONFIG = read_t5_config(
    {
        "model_type": "t5", "vocab_size": 32128, "d_model": 1024, "d_kv": 64, "d_ff": 4096,
        "num_layers": 24, "num_heads": 16, "feed_forward_proj": "relu", "dropout_rate": 0.1,
    },
    source="T5-large",
)  # fmt: skip
"""Shapes as in the published config.json."""

_ROWS = 64  # of `Seq2Seq` on accelerators
_SOURCE, _TARGET = 512, 128  # of configs/errr.py at the paper's size


def parameters(where: Place, dtype: Any) -> Any:
    """Shapes of the parameters, on every device."""
    found = jax.eval_shape(lambda: random_t5(CONFIG, jax.random.key(0)))
    return jax.tree.map(lambda leaf: where.array(leaf.shape, dtype), found)


def weights(config: T5Config, *, of: str = "") -> int:
    """Number of parameters; ``of`` "encoder." or "decoder." of that part alone."""
    shapes = parameter_shapes(config).items()
    return sum(math.prod(shape) for name, shape in shapes if name.startswith(of))


def encoder_flops(config: T5Config, rows: int, width: int) -> float:
    """Operations of matrix products for sources, with the memory that the decoder attends to."""
    d, inner = config.d_model, config.num_heads * config.d_kv
    layer = 2 * (4 * d * inner + 2 * d * config.d_ff) + 4 * width * inner
    memory = config.num_decoder_layers * 4 * d * inner
    return float(rows * width * (config.num_layers * layer + memory))


def decoder_flops(config: T5Config, rows: int, width: int, tokens: int, attended: int) -> float:
    """The same for ``tokens`` of each answer, which attend to so many; with their logits."""
    d, inner = config.d_model, config.num_heads * config.d_kv
    layer = 2 * (6 * d * inner + 2 * d * config.d_ff) + 4 * (attended + width) * inner
    logits = 2 * d * config.vocab_size
    return float(rows * tokens * (config.num_decoder_layers * layer + logits))


def _start(where: Place) -> Any:
    ids = where.array((_ROWS, _SOURCE), jnp.int32, P("data"))
    mask = where.array((_ROWS, _SOURCE), jnp.bool_, P("data"))
    model = T5(CONFIG, BFLOAT16)
    return start_answers.trace(model, parameters(where, BFLOAT16), ids, mask, slots=_TARGET)


def _step(where: Place) -> Any:
    begun: Any = jax.tree.map(
        lambda leaf: where.array(leaf.shape, leaf.dtype), _start(Place()).out_info
    )
    one = where.array((), jnp.int32)
    limits = T5Limits(one, one, where.array((CONFIG.vocab_size,), jnp.bool_))
    each = where.array((_ROWS,), jnp.uint32)
    sampling = TokenSampling(where.array((), jnp.float32), each, each)
    params = parameters(where, BFLOAT16)
    return extend_answers.trace(T5(CONFIG, BFLOAT16), params, begun, one, limits, sampling)


def answers(on: Slice) -> list[Program]:
    """Encoding of a batch of sources, and a step of their answers."""
    inner, layers = CONFIG.num_heads * CONFIG.d_kv, CONFIG.num_decoder_layers
    slot = 2.0 * 2 * layers * inner  # keys and values in bfloat16
    encoder = 2.0 * weights(CONFIG, of="encoder.") + _ROWS * (_SOURCE + _TARGET) * slot
    table = 2.0 * CONFIG.vocab_size * CONFIG.d_model
    # the decoder makes the memory's keys and values only once
    decoder = 2.0 * (weights(CONFIG, of="decoder.") - 2 * layers * CONFIG.d_model * inner) + table
    decoder += _ROWS * (_SOURCE + _TARGET) * slot
    return [
        Program(
            f"T5-large: encode {_ROWS} x {_SOURCE}",
            on,
            _start,
            Ideal(encoder, encoder_flops(CONFIG, _ROWS, _SOURCE)),
            _ROWS,
            "texts",
        ),
        Program(
            f"T5-large: decode {_ROWS} x 1, {_SOURCE} + {_TARGET} slots",
            on,
            _step,
            Ideal(decoder, decoder_flops(CONFIG, _ROWS, _SOURCE, 1, _TARGET)),
            _ROWS,
            "tokens",
            rounds=_TARGET,
            parts=_TARGET,
        ),
    ]


def _batch(rows: int, array: Shaped) -> StudentBatch:
    def each(*width: int) -> Any:
        return array((rows, *width), jnp.int32)

    return StudentBatch(TokenPairs(each(_SOURCE), each(), each(_TARGET), each()), each(), each())


def distillation(on: Slice) -> Training:
    """ERRR's fine-tuning on the large model's queries, as configs/errr.py at the paper's size."""
    settings, size = STUDENTS["paper"].training, weights(CONFIG)
    module: Any = T5(CONFIG, BFLOAT16)  # hashable, which the type checker cannot infer
    flops = encoder_flops(CONFIG, 1, _SOURCE)
    flops += decoder_flops(CONFIG, 1, _SOURCE, _TARGET, _TARGET)
    return Training(
        f"T5-large, batch {settings.batch}",
        on,
        lambda mesh: make_step(module, settings, steps=STEPS, mesh=mesh),
        lambda where: parameters(where, FLOAT32),
        _batch,
        settings.batch,
        settings.microbatch,
        size,
        4 * _TARGET,
        flops,
        settings.optimiser_over(STEPS),
    )


def programs() -> list[Program]:
    """Those on one chip; AdamW's state and the gradients' sums are too large for v5e."""
    return [*answers(Slice("v5e:2x4")), *distillation(Slice("v6e:2x4")).programs().values()]
