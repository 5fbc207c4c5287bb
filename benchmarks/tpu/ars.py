"""Programs of ARS-RAG's selection of rewrites: its ranker and its bandit."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from benchmarks.tpu.chips import Place, Slice
from benchmarks.tpu.networks import (
    BASE,
    BFLOAT16,
    FLOAT32,
    bert,
    bert_flops,
    bert_parameters,
    bert_weights,
)
from benchmarks.tpu.program import Ideal, Program
from benchmarks.tpu.training import Shaped, Training
from jaxrag.methods.ars.bandit.settings import BanditTraining, NeuralUcb
from jaxrag.methods.ars.bandit.training import Replay, program
from jaxrag.methods.ars.ranker.data import RankerBatch
from jaxrag.methods.ars.ranker.training import RankerTraining, make_step
from jaxrag.models.bert.rewrite_ranker import RankerNetwork
from jaxrag.retrieval.rerank import score_tokens
from jaxrag.training.step import TrainStep

_WIDTH = 64  # padded width of a question and a rewrite
_TOKENS = 16384  # of a chip's batch, see `jaxrag.retrieval.buckets.Batching`
_FEATURES, _ARMS = 768, 10
_TRAIN, _TEST = 1600, 400  # questions of the paper


def _ranker() -> Any:
    return RankerNetwork(bert(BASE), BFLOAT16)


def _score(rows: int, where: Place) -> Any:
    ids = where.array((rows, _WIDTH), jnp.int32, P("data"))
    lengths = where.array((rows,), jnp.int32, P("data"))
    params = bert_parameters(_ranker(), where, FLOAT32)
    return score_tokens.trace(params, ids, ids, lengths, module=_ranker())


def scoring(on: Slice) -> Program:
    """The ranker's scores of a batch of pairs."""
    rows, config = _TOKENS // _WIDTH * on.chips, bert(BASE)
    ideal = Ideal(4.0 * bert_weights(config) * on.chips, bert_flops(config, rows, _WIDTH))
    name = f"rewrite ranker: score {rows} x {_WIDTH}"
    return Program(name, on, partial(_score, rows), ideal, rows, "pairs")


def _ranker_batch(rows: int, array: Shaped) -> RankerBatch:
    ids, pair = array((rows, 2, _WIDTH), jnp.int32), (rows, 2)
    return RankerBatch(
        ids,
        ids,
        array(pair, jnp.int32),
        array(pair, jnp.float32),
        array(pair, jnp.bool_),
    )


def ranking(on: Slice, *, layers: int = 12) -> Training:
    """The ranker's training: 64 pairs of rewrites a step; of few layers for a fast check."""
    settings, config, steps = RankerTraining(), bert(BASE | {"num_hidden_layers": layers}), 10_000
    settings = dataclasses.replace(settings, microbatch=settings.microbatch * on.chips)
    module: Any = RankerNetwork(config, BFLOAT16)  # hashable, which the type checker cannot infer

    def step(mesh: Mesh) -> TrainStep:
        return make_step(module, settings, steps=steps, mesh=mesh)

    def params(where: Place) -> Any:
        return bert_parameters(module, where, FLOAT32)

    few = "" if layers == 12 else f" of {layers} layers"
    return Training(
        f"rewrite ranker{few}, batch {settings.batch} pairs",
        on,
        step,
        params,
        _ranker_batch,
        settings.batch,
        settings.microbatch,
        bert_weights(config),
        0,
        bert_flops(config, 2, _WIDTH),
        settings.optimiser(steps),
    )


def _bandit(batch: int, where: Place) -> Any:
    training, bandit = BanditTraining(batch=batch), NeuralUcb().bandit(_FEATURES, _ARMS, batch)
    learn = program(bandit, epochs=training.epochs, batch=batch)

    def part(questions: int) -> Replay:
        contexts = where.array((questions, _FEATURES), jnp.float32)
        return Replay(contexts, where.array((questions, _ARMS), jnp.float32))

    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.jit(learn).trace(where.array((), key.dtype), part(_TRAIN), part(_TEST))


def neural_ucb(on: Slice, batch: int) -> Program:
    """A batch of questions of NeuralUCB's training: arms chosen, confidence and networks updated.

    The paper's whole training is one program; figures are those of a batch, with its share of the
    evaluations after each epoch. Weights and confidence fit the chip's scratch memory, so that the
    least traffic is to read them and the contexts once in the whole training.
    """
    width = NeuralUcb().width
    arm = 4.0 * (_FEATURES * width + width)  # bytes of an arm's weights, and of its 1/Z
    contexts = 4.0 * (_TRAIN + _TEST) * (_FEATURES + _ARMS)
    batches = BanditTraining().epochs * -(-_TRAIN // batch)
    moved = (2 * _ARMS * arm + contexts) / batches
    return Program(
        f"NeuralUCB {_FEATURES} x {width} x {_ARMS}: {batch} questions",
        on,
        partial(_bandit, batch),
        Ideal(moved, 0.0),
        batch,
        "questions",
        parts=batches,
    )


def programs() -> list[Program]:
    """All of them, on one chip."""
    one = Slice("v5e:2x4")
    return [
        scoring(one),
        ranking(one).program(),
        ranking(one, layers=2).program(),
        *(neural_ucb(one, batch) for batch in (BanditTraining().batch, 1)),
    ]
