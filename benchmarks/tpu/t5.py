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
from jaxrag.configs.errr import PAPER_PPO, RRR_TOKENS, STUDENTS
from jaxrag.models.sampling import TokenSampling
from jaxrag.models.t5.beams import beam_search
from jaxrag.models.t5.checkpoint import parameter_shapes, random_t5
from jaxrag.models.t5.config import T5Config, read_t5_config
from jaxrag.models.t5.decoding import T5Limits, extend_answers, score, start_answers
from jaxrag.models.t5.network import T5
from jaxrag.training.optimisation import scheduled_optimiser
from jaxrag.training.ppo.rollouts import Rollouts
from jaxrag.training.ppo.step import PPOStep
from jaxrag.training.ppo.step import make_step as make_ppo_step
from jaxrag.training.student.student import TokenPairs
from jaxrag.training.student.training import make_step

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
_BEAMS = 4  # of `Seq2Seq.beams`; the papers decode greedily


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


def _sources(where: Place) -> tuple[Any, Any, Any, Any]:
    """Network, parameters, tokens of a batch of sources, and the mask of these tokens."""
    ids = where.array((_ROWS, _SOURCE), jnp.int32, P("data"))
    mask = where.array((_ROWS, _SOURCE), jnp.bool_, P("data"))
    return T5(CONFIG, BFLOAT16), parameters(where, BFLOAT16), ids, mask


def _start(where: Place) -> Any:
    return start_answers.trace(*_sources(where), slots=_TARGET)


def _step(where: Place) -> Any:
    begun: Any = jax.tree.map(
        lambda leaf: where.array(leaf.shape, leaf.dtype), _start(Place()).out_info
    )
    one, limits = where.array((), jnp.int32), _limits(where)
    each = where.array((_ROWS,), jnp.uint32)
    sampling = TokenSampling(where.array((), jnp.float32), each, each)
    params = parameters(where, BFLOAT16)
    return extend_answers.trace(T5(CONFIG, BFLOAT16), params, begun, one, limits, sampling)


def _score(where: Place) -> Any:
    return score.trace(*_sources(where), where.array((_ROWS, _TARGET), jnp.int32, P("data")))


def _beam_search(where: Place) -> Any:
    return beam_search.trace(*_sources(where), _limits(where), beams=_BEAMS, slots=_TARGET)


def _limits(where: Place) -> T5Limits:
    return T5Limits(where.array((), jnp.int32), where.array((CONFIG.vocab_size,), jnp.bool_))


def answers(on: Slice) -> list[Program]:
    """Encoding of a batch of sources, a step of their answers, beam search, and scores."""
    inner, layers = CONFIG.num_heads * CONFIG.d_kv, CONFIG.num_decoder_layers
    slot = 2.0 * 2 * layers * inner  # keys and values in bfloat16
    encoder = 2.0 * weights(CONFIG, of="encoder.") + _ROWS * (_SOURCE + _TARGET) * slot
    table = 2.0 * CONFIG.vocab_size * CONFIG.d_model
    # the decoder makes the memory's keys and values only once
    decoder = 2.0 * (weights(CONFIG, of="decoder.") - 2 * layers * CONFIG.d_model * inner) + table
    beams = encoder + _TARGET * (decoder + _ROWS * (_SOURCE + _BEAMS * _TARGET) * slot)
    of_beams = decoder_flops(CONFIG, _BEAMS * _ROWS, _SOURCE, _TARGET, _TARGET)
    of_answers = decoder_flops(CONFIG, _ROWS, _SOURCE, _TARGET, _TARGET)
    decoder += _ROWS * (_SOURCE + _TARGET) * slot
    of_sources = encoder_flops(CONFIG, _ROWS, _SOURCE)
    return [
        Program(
            f"T5-large: encode {_ROWS} x {_SOURCE}",
            on,
            _start,
            Ideal(encoder, of_sources),
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
        Program(
            f"T5-large: {_BEAMS} beams of {_ROWS} x {_SOURCE}, {_TARGET} tokens",
            on,
            _beam_search,
            Ideal(beams, of_sources + of_beams),
            _ROWS,
            "texts",
            rounds=_TARGET,
        ),
        Program(
            f"T5-large: score {_ROWS} x {_TARGET} after {_SOURCE}",
            on,
            _score,
            Ideal(2.0 * weights(CONFIG), of_sources + of_answers),
            _ROWS,
            "texts",
        ),
    ]


def _batch(rows: int, array: Shaped) -> TokenPairs:
    def each(*width: int) -> Any:
        return array((rows, *width), jnp.int32)

    return TokenPairs(each(_SOURCE), each(), each(_TARGET), each())


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
        0,
        flops,
        scheduled_optimiser(settings, STEPS, decay=settings.decay),
    )


def _ppo(where: Place) -> tuple[PPOStep, Any, Any]:
    """Functions, state and rollouts of RRR's training, as configs/errr.py at the paper's size."""
    module: Any = T5(CONFIG, BFLOAT16)
    functions = make_ppo_step(module, PAPER_PPO)
    count = PAPER_PPO.rollouts

    def each(*width: int) -> Any:
        return where.array((count, *width), jnp.float32)

    def ids(*width: int) -> Any:
        return where.array((count, *width), jnp.int32)

    pairs = TokenPairs(ids(_SOURCE), ids(), ids(RRR_TOKENS), ids())
    rollouts = Rollouts(pairs, each(), *(each(RRR_TOKENS) for _ in range(5)))
    shapes = jax.eval_shape(functions.begin, parameters(Place(), FLOAT32))
    state = jax.tree.map(lambda leaf: where.array(leaf.shape, leaf.dtype), shapes)
    return functions, state, rollouts


def _ppo_score(where: Place) -> Any:
    functions, state, rollouts = _ppo(where)
    score_texts: Any = functions.score
    return score_texts.trace(state.params, rollouts.pairs)


def _ppo_update(where: Place) -> Any:
    functions, state, rollouts = _ppo(where)
    update: Any = functions.update
    return update.trace(state, rollouts, where.array((PAPER_PPO.batch,), jnp.int32))


def ppo(on: Slice) -> list[Program]:
    """Log-probabilities and values of a step's rollouts, and the update by a batch of them.

    Beside them are AdamW's two moments and the initial policy.
    """
    size, rollouts, batch = weights(CONFIG), PAPER_PPO.rollouts, PAPER_PPO.batch
    flops = encoder_flops(CONFIG, 1, _SOURCE)
    flops += decoder_flops(CONFIG, 1, _SOURCE, RRR_TOKENS, RRR_TOKENS)
    scored = Ideal(4.0 * size, rollouts * flops)
    # parameters once forward and once backward, the gradient, and AdamW's state read and written
    updated = Ideal(4.0 * size * (2 + 1 + 6), 3 * batch * flops)
    first, moments = 4 * size, 8 * size
    return [
        Program(
            f"T5-large, PPO: score {rollouts} rollouts",
            on,
            _ppo_score,
            scored,
            rollouts,
            "texts",
            held=first + moments,
        ),
        Program(
            f"T5-large, PPO: update by {batch}",
            on,
            _ppo_update,
            updated,
            batch,
            "texts",
            held=first,
        ),
    ]


def programs() -> list[Program]:
    """Those on one chip; AdamW's state and the gradients' sums are too large for v5e."""
    large = Slice("v6e:2x4")
    return [*answers(Slice("v5e:2x4")), distillation(large).program(), *ppo(large)]
