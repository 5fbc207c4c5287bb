"""One step of a training: the gradient of a batch in microbatches, and the optimiser's update.

A step is one compiled program over a mesh of devices. The rows of each microbatch are cut over all
devices; parameters and the optimiser's state are on every device, or cut over the mesh axis "fsdp"
(ZeRO; Rajbhandari et al., 2020), whose devices gather the parameters for each step. Microbatches
pass through the network one after the other, so that memory is that of one.

Equal settings on equal devices give equal bytes; on others, loss and gradients differ by less than
1e-5 of their size (tests/training/test_step.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from jaxrag.core.progress import tell
from jaxrag.types import InputError

_AXES = ("data", "fsdp")
_SMALLEST = 1 << 14  # entries of an array that is cut over "fsdp"; smaller ones are copied

Tree = Any
Gradient = Callable[[Tree, Tree, jax.Array], tuple[Float[Array, ""], Tree]]
"""(parameters, microbatches [s r ...], key) -> loss and gradient of the whole batch."""


class TrainState(NamedTuple):
    """Parameters and the optimiser's state."""

    params: Tree
    optimiser: Any


class TrainStep(NamedTuple):
    """A step of a training.

    Attributes:
      begin: parameters -> initial state, on the mesh; copies them.
      update: (state, batch of NumPy arrays [n ...], number of the step) -> (state, metrics), which
        may still be computing; donates the given state.
      program: the compiled part of ``update``, (state, microbatches, number) -> (state, metrics).
      mesh: of its devices.
    """

    begin: Callable[[Tree], TrainState]
    update: Callable[[TrainState, Tree, int], tuple[TrainState, dict[str, Any]]]
    program: Callable[..., Any]
    mesh: Mesh

    def params(self, state: TrainState) -> Tree:
        """The parameters of a state on this process's devices, see `local_copy`."""
        return local_copy(state.params, self.mesh)


def make_mesh(devices: Sequence[Any] | None = None, *, fsdp: int = 1) -> Mesh:
    """A mesh with the axes "data" and "fsdp" of ``devices``, as many of each process; None is all.

    ``fsdp``, which divides their number, is how many share one copy of the parameters.
    """
    chosen = jax.devices() if devices is None else list(devices)
    shape, types = (len(chosen) // fsdp, fsdp), (AxisType.Auto,) * 2
    if len(chosen) == jax.device_count():  # a whole slice, whose links `jax.make_mesh` knows
        return jax.make_mesh(shape, _AXES, axis_types=types, devices=chosen)
    return Mesh(np.array(chosen).reshape(shape), _AXES, axis_types=types)


def training_mesh(
    batch: int, microbatch: int, *, fsdp: int = 1, devices: Sequence[Any] | None = None
) -> Mesh:
    """The mesh of a training: the most devices that divide a microbatch; the others stay idle.

    InputError if microbatches do not divide the batch, or no number of devices divides them.

    Args:
      batch: rows of a step.
      microbatch: rows of a pass through the network, on all devices together.
      fsdp: see `make_mesh`.
      devices: to choose from; by default all.
    """
    if not 1 <= microbatch <= batch or batch % microbatch:
        raise InputError(
            f"batch is {batch} and microbatch {microbatch}: a microbatch has at least 1 row, and "
            "its rows divide those of the batch."
        )
    devices = jax.devices() if devices is None else devices
    by_process: dict[int, list[Any]] = {}
    for device in devices:
        by_process.setdefault(device.process_index, []).append(device)
    processes, most = len(by_process), min(map(len, by_process.values()))
    fitting = [
        count
        for count in range(1, most + 1)
        if microbatch % (count * processes) == 0 and (count * processes) % max(fsdp, 1) == 0
    ]
    if fsdp < 1 or not fitting:
        raise InputError(
            f"microbatch is {microbatch}, fsdp {fsdp}, and there are {processes} processes of "
            f"{most} devices: as many devices of each process divide the rows of a microbatch, and "
            "fsdp divides their number. Raise microbatch to a multiple of all devices, or lower "
            "fsdp."
        )
    chosen = [device for some in by_process.values() for device in some[: max(fitting)]]
    if len(chosen) < len(devices):
        tell(
            f"training on {len(chosen)} of {len(devices)} devices, which divide a microbatch of "
            f"{microbatch}; a multiple of {len(devices)} uses all"
        )
    return make_mesh(chosen, fsdp=fsdp)


def shardings(tree: Tree, mesh: Mesh) -> Tree:
    """Sharding of each array: large ones are cut over "fsdp", others are on every device.

    The cut is along the longest axis that "fsdp" divides.
    """
    parts = mesh.shape["fsdp"]

    def sharding(array: Any) -> NamedSharding:
        axes = [axis for axis, size in enumerate(array.shape) if size % parts == 0]
        if parts == 1 or array.size < _SMALLEST or not axes:
            return NamedSharding(mesh, P())
        longest = max(axes, key=lambda axis: array.shape[axis])
        return NamedSharding(mesh, P(*[None] * longest, "fsdp"))

    return jax.tree.map(sharding, tree)


def microbatches(batch: Tree, rows: int, mesh: Mesh) -> Tree:
    """Puts a batch [n ...] on the devices as [n/r r ...], each microbatch cut over all of them.

    The NumPy arrays are equal in all processes, of which each puts its own rows.
    """
    over = NamedSharding(mesh, P(None, _AXES))
    return jax.tree.map(lambda a: _put(a.reshape(-1, rows, *a.shape[1:]), over), batch)


def _put(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def local_copy(tree: Tree, mesh: Mesh) -> Tree:
    """The arrays on each of this process's devices of a mesh; those that are there are not copied.

    They end with the state that they are of, which the next step donates.
    """
    devices = [device for device in jax.local_devices() if device in mesh.local_devices]
    here = NamedSharding(Mesh(np.array(devices), ("data",), axis_types=(AxisType.Auto,)), P())

    def local(array: jax.Array) -> jax.Array:
        shards = {shard.device: shard.data for shard in array.addressable_shards}
        parts = [shards[device] for device in devices]
        return jax.make_array_from_single_device_arrays(array.shape, here, parts)

    return jax.tree.map(local, jax.device_put(tree, NamedSharding(mesh, P())))


def first_copy(tree: Tree) -> Tree:
    """The arrays of a `local_copy` on this process's first device."""
    return jax.tree.map(lambda array: array.addressable_data(0), tree)


def grad_cache(
    embed: Callable[[Tree, Tree, jax.Array], Tree], loss: Callable[[Tree, Tree], Float[Array, ""]]
) -> Gradient:
    """The gradient of a loss that needs the vectors of the whole batch, such as a contrastive one.

    GradCache (Gao et al., 2021, "Scaling deep contrastive learning batch size under memory limited
    setup"): each microbatch is embedded, the loss is differentiated with respect to the vectors,
    and each microbatch is embedded again to carry that gradient back to the parameters.

    Args:
      embed: (parameters, microbatch, key of its dropout) -> its vectors.
      loss: (vectors, batch), rows in the batch's order.
    """

    def gradient(params: Tree, parts: Tree, key: jax.Array) -> tuple[Array, Tree]:
        keys = _split(key, parts)
        vectors = lax.map(lambda part: embed(params, *part), (parts, keys))
        value, by_vectors = jax.value_and_grad(lambda v: loss(_flat(v), _flat(parts)))(vectors)

        def backward(part: Tree, key: jax.Array, by_part: Tree) -> Tree:
            _, vjp = jax.vjp(lambda p: embed(p, part, key), params)
            return vjp(by_part)[0]

        return value, _sum(backward, (parts, keys, by_vectors))

    return gradient


def summed(
    loss: Callable[[Tree, Tree, jax.Array], Float[Array, ""]],
    count: Callable[[Tree], Int[Array, ""] | int],
) -> Gradient:
    """The gradient of a loss that is a sum over rows, divided by a number of the whole batch.

    ``loss`` is (parameters, microbatch, key of its dropout) -> its summand; ``count`` is
    microbatches -> the divisor, such as their number of rows.
    """

    def gradient(params: Tree, parts: Tree, key: jax.Array) -> tuple[Array, Tree]:
        number = count(parts)

        def summand(part: Tree, key: jax.Array) -> tuple[Array, Tree]:
            return jax.value_and_grad(lambda p: loss(p, part, key) / number)(params)

        return _sum(summand, (parts, _split(key, parts)))

    return gradient


def _split(key: jax.Array, parts: Tree) -> jax.Array:
    """A key for each microbatch."""
    return jax.random.split(key, len(jax.tree.leaves(parts)[0]))


def _flat(tree: Tree) -> Tree:
    """[s r ...] as [sr ...]."""
    return jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), tree)


def _sum(function: Callable[..., Tree], parts: tuple[Tree, ...]) -> Tree:
    """The sum of a function's results for all microbatches, of which one is computed at a time."""

    def add(total: Tree, part: tuple[Tree, ...]) -> tuple[Tree, None]:
        return jax.tree.map(jnp.add, total, function(*part)), None

    shapes = jax.eval_shape(lambda: function(*jax.tree.map(lambda array: array[0], parts)))
    return lax.scan(add, jax.tree.map(jnp.zeros_like, shapes), parts)[0]


def make_step(
    gradient: Gradient,
    optimiser: optax.GradientTransformation,
    *,
    microbatch: int,
    mesh: Mesh,
    seed: int = 0,
    metrics: Callable[[Tree], Mapping[str, Any]] = lambda batch: {},
) -> TrainStep:
    """A step whose metrics are "loss", "norm" (of the gradient) and those of the batch.

    Args:
      gradient: see `grad_cache` and `summed`.
      optimiser: including the learning rate.
      microbatch: rows that pass through the network at a time, on all devices together.
      mesh: see `training_mesh`.
      seed: of dropout, with the number of the step and the place of the microbatch.
      metrics: further metrics, from the batch on the host.
    """

    @partial(jax.jit, donate_argnums=0)
    def program(
        state: TrainState, parts: Tree, number: Int[Array, ""]
    ) -> tuple[TrainState, dict[str, Array]]:
        key = jax.random.fold_in(jax.random.key(seed, impl=mask_generator(mesh)), number)
        # without this, products would sum over a cut axis of parameters, and exchange their rows
        params = lax.with_sharding_constraint(state.params, NamedSharding(mesh, P()))
        value, gradients = gradient(params, parts, key)
        state = lax.with_sharding_constraint(
            descend(optimiser, state, gradients), shardings(state, mesh)
        )
        return state, {"loss": value, "norm": optax.tree.norm(gradients)}

    def begin(params: Tree) -> TrainState:
        def copied(params: Tree) -> TrainState:
            return TrainState(jax.tree.map(jnp.copy, params), optimiser.init(params))

        placed = shardings(jax.eval_shape(copied, params), mesh)
        params = jax.tree.map(lambda a, place: _put(np.asarray(a), place), params, placed.params)
        return jax.jit(copied, out_shardings=placed)(params)

    def update(state: TrainState, batch: Tree, number: int) -> tuple[TrainState, dict[str, Any]]:
        parts = microbatches(batch, microbatch, mesh)
        state, values = program(state, parts, np.int32(number))
        return state, {**values, **metrics(batch)}

    return TrainStep(begin, update, program, mesh)


def descend(
    optimiser: optax.GradientTransformation, state: TrainState, gradients: Tree
) -> TrainState:
    """The state after the optimiser's update."""
    updates, inner = optimiser.update(gradients, state.optimiser, state.params)
    return TrainState(optax.apply_updates(state.params, updates), inner)  # pyright: ignore


def mask_generator(mesh: Mesh) -> str | None:
    """The implementation of `jax.random` that draws dropout's masks; None is JAX's default.

    On TPUs it is the chip's own, "rbg". The default, threefry, computes on a TPU's vector units,
    and its operations, repeated for each of a network's masks, make compiling slow. Masks by "rbg"
    depend on the number of devices, those by threefry do not.
    """
    return "rbg" if mesh.devices.flat[0].platform == "tpu" else None
