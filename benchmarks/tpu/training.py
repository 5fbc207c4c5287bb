"""Programs of training steps, and those of SiDR and R3.

A step runs a forward and a backward program for each microbatch, one for the loss of the whole
batch, the sum over the devices and the optimiser's. Each is an entry of its own; what the others
leave on the chip (parameters, the optimiser's state, sums of gradients) counts as held.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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
from jaxrag.methods.r3 import contrastive
from jaxrag.methods.r3.contrastive import ContrastiveBatch, Text
from jaxrag.methods.r3.settings import R3Training, Update
from jaxrag.models.bert.sidr import SidrNetwork
from jaxrag.training.grad_cache import data_mesh
from jaxrag.training.optimisation import TrainState, TrainStep

STEPS = 10_000
"""Of a schedule; changes no shape."""
Shaped = Callable[[tuple[int, ...], Any], Any]


@dataclasses.dataclass(frozen=True)
class Training:
    """One step of a training.

    Attributes:
      name: of method and sizes.
      on: the slice; rows of a batch are cut over all its chips.
      step: mesh -> the step's functions.
      params: makes shapes of the parameters.
      batch: (rows, how an array is made) -> a batch of so many rows.
      rows, microbatch: rows of a step, and of a pass through the network.
      weights: number of parameters.
      vectors: bytes of a row's vectors.
      flops: of a row's forward pass.
      optimiser: of the state.
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

    def mesh(self, where: Place) -> Mesh:
        """The chips along one axis; JAX's default device where there is no chip."""
        if where.mesh is not None:
            return data_mesh(list(where.mesh.devices.flat))
        return data_mesh([where.device or jax.devices()[0]])

    def one(self, where: Place) -> Place:
        """The first chip: a step's programs run on one each."""
        return Place(None, where.mesh.devices.flat[0]) if where.mesh is not None else where

    def state(self, where: Place) -> TrainState:
        """Parameters and the optimiser's state on a chip."""
        params = self.params(where)
        state = jax.eval_shape(self.optimiser.init, params)
        return TrainState(params, _like(state, where))

    def forward(self, where: Place) -> Any:
        """The vectors of a microbatch."""
        one = self.one(where)
        microbatch = self.batch(self.microbatch, one.array)
        return self.step(self.mesh(where)).programs.forward.trace(self.params(one), microbatch)

    def backward(self, where: Place) -> Any:
        """A microbatch's gradient by the parameters."""
        one, programs = self.one(where), self.step(self.mesh(where)).programs
        params, microbatch = self.params(one), self.batch(self.microbatch, one.array)
        vectors = jax.eval_shape(programs.forward, params, microbatch)
        return programs.backward.trace(params, microbatch, _like(vectors, one))

    def loss(self, where: Place) -> Any:
        """The loss of the whole batch and its gradient by the vectors, on each chip."""
        one, programs = self.one(where), self.step(self.mesh(where)).programs
        whole = self.batch(self.rows, one.array)
        vectors = jax.eval_shape(programs.forward, self.params(one), whole)
        return programs.differentiate.trace(_like(vectors, one), whole)

    def reduce(self, where: Place) -> Any:
        """The sum of the gradients over the chips."""
        mesh = self.mesh(where)
        spread = Place(Mesh(mesh.devices[:, None], ("data", "model"))) if mesh.size > 1 else where

        def each(leaf: Any) -> Any:
            return spread.array((mesh.size, *leaf.shape), leaf.dtype, P("data"))

        gradients = jax.tree.map(each, self.params(Place()))
        return self.step(mesh).programs.reduce.trace(gradients)

    def update(self, where: Place) -> Any:
        """The optimiser's step."""
        one = self.one(where)
        return self.step(self.mesh(where)).apply.trace(self.state(one), self.params(one))

    def programs(self) -> dict[str, Program]:
        """Those of a step; "sum" only for several chips."""
        chips = self.on.chips
        params, state = 4 * self.weights, 12 * self.weights  # float32, and AdamW's two moments
        passes = self.rows // (self.microbatch * chips)
        sums = params * max(passes.bit_length() - 1, 1)  # of gradients, see `grad_cache`
        moments, passed = state - params, self.microbatch * self.flops
        vectors = self.rows * self.vectors

        def program(name: str, trace: Any, each: Ideal, held: int, rows: int) -> Program:
            ideal = Ideal(chips * each.bytes, chips * each.flops)  # every chip runs it
            return Program(f"{self.name}: {name}", self.on, trace, ideal, rows, "rows", held=held)

        few, at_once = self.microbatch, self.microbatch * chips
        forward, backward = Ideal(params, passed), Ideal(2.0 * params, 3 * passed)
        loss, update = Ideal(2.0 * vectors, 0.0), Ideal(2.0 * state + params, 0.0)
        beside = moments + sums + 2 * vectors
        found = {
            "forward": program(f"forward {few}", self.forward, forward, moments, at_once),
            "backward": program(f"backward {few}", self.backward, backward, beside, at_once),
            "loss": program(f"loss of {self.rows}", self.loss, loss, state, self.rows),
            "update": program("update", self.update, update, 0, self.rows),
        }
        if chips > 1:
            both = Ideal(2.0 * params, 0.0)
            found["sum"] = program("sum over chips", self.reduce, both, state, self.rows)
        return found


def _like(tree: Any, where: Place) -> Any:
    return jax.tree.map(lambda leaf: where.array(leaf.shape, leaf.dtype), tree)


_QUERY, _PASSAGE = 32, 256  # padded widths in training


def _contrastive_batch(passages: int, rows: int, array: Shaped) -> ContrastiveBatch:
    def text(*shape: int) -> Text:
        return Text(array(shape, jnp.int32), array(shape[:-1], jnp.int32))

    return ContrastiveBatch(
        text(rows, _QUERY),
        text(rows, passages, _PASSAGE),
        array((rows, passages), jnp.float32),
        array((rows,), jnp.int32),
        array((rows,), jnp.int32),
    )


def towers(name: str, on: Slice, update: Update, *, passages: int, microbatch: int) -> Training:
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
    return Training(name, on, step, params, batch, *sizes, flops, optimiser)


def programs() -> list[Program]:
    """All of them, but for those that two trainings or two slices share."""
    one, eight = Slice("v5e:2x4"), Slice("v5e:2x4", 8, 1)
    name = "R3, batch 128, 1 + 1 passages"
    by_kl = towers(
        "R3 by KL, batch 128, 20 passages",
        one,
        Update(objective="kl"),
        passages=20,
        microbatch=1,
    )
    return [
        *towers(name, one, Update(), passages=2, microbatch=8).programs().values(),
        towers(name, eight, Update(), passages=2, microbatch=8).programs()["sum"],
        *(by_kl.programs()[name] for name in ("forward", "backward", "loss")),
    ]
