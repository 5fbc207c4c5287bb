"""Steps of trainings, each one program (`jaxrag.training.step`), and those of SiDR and R3."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
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
from jaxrag.methods.r3 import contrastive
from jaxrag.methods.r3.contrastive import ContrastiveBatch, Text
from jaxrag.methods.r3.settings import R3Training, Update
from jaxrag.models.bert.sidr import SidrNetwork
from jaxrag.training.step import TrainState, TrainStep, make_mesh, shardings

STEPS = 10_000
"""Of a schedule; changes no shape."""
Shaped = Callable[[tuple[int, ...], Any], Any]


@dataclasses.dataclass(frozen=True)
class Training:
    """One step of a training.

    Attributes:
      name: of method and sizes.
      on: the slice; rows of a microbatch are cut over all its chips.
      step: mesh -> the step.
      params: makes shapes of the parameters.
      batch: (rows, how an array is made) -> a batch of so many rows.
      rows, microbatch: rows of a step, and of a pass through the network on all chips.
      weights: number of parameters.
      vectors: bytes of a row's vectors, if microbatches are embedded twice (`grad_cache`).
      flops: of a row's forward pass.
      optimiser: of the state.
      fsdp: chips that share a copy of the parameters.
    """

    name: str
    on: Slice
    step: Callable[[Mesh], TrainStep]
    params: Callable[[Place], Any]
    batch: Callable[[int, Shaped], Any]
    rows: int
    microbatch: int
    weights: int
    vectors: int
    flops: float
    optimiser: Any
    fsdp: int = 1

    def trace(self, where: Place) -> Any:
        """The step, with the state and the microbatches on the chips."""
        if where.mesh is not None:
            mesh = make_mesh(list(where.mesh.devices.flat), fsdp=self.fsdp)
        else:
            mesh = make_mesh([where.device or jax.devices()[0]])
        params = self.params(Place())
        state = TrainState(params, jax.eval_shape(self.optimiser.init, params))
        over = NamedSharding(mesh, P(None, ("data", "fsdp")))

        def part(shape: tuple[int, ...], dtype: Any) -> Any:
            cut = (self.rows // self.microbatch, self.microbatch, *shape[1:])
            return jax.ShapeDtypeStruct(cut, dtype, sharding=over)

        def placed(leaf: Any, sharding: NamedSharding) -> Any:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

        return self.step(mesh).program.trace(
            jax.tree.map(placed, state, shardings(state, mesh)),
            self.batch(self.rows, part),
            jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, P())),
        )

    def program(self) -> Program:
        """The step. Its least bytes: each pass reads the parameters, and a backward pass writes
        their gradient; the optimiser reads and writes the state.
        """
        params, state = 4.0 * self.weights, 12.0 * self.weights  # float32, and AdamW's two moments
        twice, passes = bool(self.vectors), self.rows // self.microbatch
        moved = passes * (2 + twice) * params + 2 * state + params
        moved += 2 * self.rows * self.vectors / self.on.chips
        flops = self.rows * (3 + twice) * self.flops
        copies = self.on.chips / self.fsdp
        name = f"{self.name}: step" + (f", fsdp {self.fsdp}" if self.fsdp > 1 else "")
        return Program(name, self.on, self.trace, Ideal(copies * moved, flops), self.rows, "rows")


_QUERY, _PASSAGE = 32, 256  # padded widths in training


def _contrastive_batch(passages: int, rows: int, array: Shaped) -> ContrastiveBatch:
    def text(*shape: int) -> Text:
        return Text(array(shape, jnp.int32), array(shape[:-1], jnp.int32))

    return ContrastiveBatch(
        text(rows, _QUERY),
        text(rows, passages, _PASSAGE),
        array((rows, passages), jnp.float32),
    )


def towers(
    name: str, on: Slice, update: Update, *, passages: int, microbatch: int, fsdp: int = 1
) -> Training:
    """SiDR's or R3's training, ``passages`` of each question."""
    config, rows = bert(BASE), R3Training().batch
    module: Any = SidrNetwork(config, BFLOAT16)  # hashable, which the type checker cannot infer
    tokens, words = _QUERY + passages * _PASSAGE, config.vocab_size - module.first
    flops = bert_flops(config, 1, _QUERY) + bert_flops(config, passages, _PASSAGE)
    flops += 2.0 * tokens * words * config.hidden_size
    weights, vectors = 2 * bert_weights(config), 4 * words * (1 + passages)

    def step(mesh: Mesh) -> TrainStep:
        return contrastive.make_step(module, update, steps=STEPS, microbatch=microbatch, mesh=mesh)

    def params(where: Place) -> Any:
        return {side: bert_parameters(module, where, FLOAT32) for side in ("query", "passage")}

    batch = partial(_contrastive_batch, passages)
    optimiser = update.optimiser(STEPS)
    sizes = (rows, microbatch, weights, vectors)
    return Training(name, on, step, params, batch, *sizes, flops, optimiser, fsdp)


def programs() -> list[Program]:
    """All of them; microbatches of 8 questions a chip."""
    one, eight = Slice("v5e:2x4"), Slice("v5e:2x4", 8, 1)
    r3 = partial(towers, "R3, batch 128, 1 + 1 passages", passages=2)
    by_kl = partial(towers, "R3 by KL, batch 128, 20 passages", passages=20)
    return [
        r3(one, Update(), microbatch=8).program(),
        r3(eight, Update(), microbatch=64).program(),
        r3(eight, Update(), microbatch=64, fsdp=8).program(),
        by_kl(one, Update(objective="kl"), microbatch=1).program(),
    ]
