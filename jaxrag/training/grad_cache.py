"""Gradient of a loss over a whole batch, computed in microbatches that fit a device.

GradCache (Gao et al., 2021, "Scaling deep contrastive learning batch size under memory limited
setup"): a contrastive loss needs the vectors of the whole batch at once, but not the activations
behind them. So each microbatch is embedded, the loss is differentiated with respect to the vectors,
and each microbatch is embedded again to backpropagate that gradient to the parameters. The result
is the gradient of the whole batch; peak memory is that of one microbatch.

One device, eight devices and several processes give the same bits. All microbatches have one shape
and run the same program, and their gradients are summed in the order of one binary tree. Two things
that XLA does by default are avoided: each device runs a program compiled for that device alone,
since a program for many devices is optimised differently and rounds differently; and gradients are
not summed over devices with psum, whose order is the compiler's.

The tree has 1, 2, 4, 8, ... microbatches. A batch that has fewer is filled up with repetitions of
its last row, which the loss does not see: their gradient is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.core.progress import tell
from jaxrag.types import InputError

_AXIS = "data"
_REPLICATED, _SHARDED = P(), P(_AXIS)

Tree = Any
PerDevice = list[Tree]
"""A tree for each device of this process, in the mesh's order."""
Embed = Callable[[Tree, Tree], Tree]
"""(parameters, microbatch) -> vectors; the first axis of every array is the microbatch's rows."""
Loss = Callable[[Tree, Tree], jax.Array]
"""(vectors of the whole batch, whole batch) -> scalar loss."""


class Gradient(NamedTuple):
    """Loss and gradients of a batch, the same on every device."""

    loss: PerDevice
    gradients: PerDevice


def data_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh with the one axis "data"; by default over all devices of all processes."""
    return Mesh(np.asarray(devices or jax.devices()), (_AXIS,))


def fitting_mesh(batch: int, microbatch: int) -> Mesh:
    """A mesh over as many devices as a batch has microbatches for; the others stay idle.

    Results do not depend on it. Each process has equally many devices of the mesh.
    """
    devices, count = jax.devices(), count_microbatches(batch, max(microbatch, 1))
    chosen = fitting_devices(devices, count)
    if len(chosen) < len(devices):
        tell(
            f"training on {len(chosen)} of {len(devices)} devices: a batch of {batch} fills "
            f"{count} microbatches of {microbatch}; smaller ones use more"
        )
    return data_mesh(chosen)


def count_microbatches(batch: int, microbatch: int, devices: int = 1) -> int:
    """Number of microbatches of a batch, which is filled up to 1, 2, 4, 8, ... and one a device."""
    return max(1 << (-(-batch // microbatch) - 1).bit_length(), devices)


def fitting_devices(devices: Sequence[Any], microbatches: int) -> list[Any]:
    """The most devices that share microbatches evenly, equally many of each process, at least 1."""
    own: dict[int, list[Any]] = {}
    for device in devices:
        own.setdefault(device.process_index, []).append(device)
    count = 1 << (min(len(devices), max(microbatches, 1)).bit_length() - 1)
    each = max(count // len(own), 1)
    return [device for some in own.values() for device in some[:each]]


def replicate(tree: Tree, mesh: Mesh) -> Tree:
    """A copy of a tree of arrays on every device of a mesh; the tree is equal in all processes."""
    copies = [jax.device_put(tree, device, may_alias=False) for device in mesh.local_devices]
    return global_arrays(copies, mesh, _REPLICATED)


def local_arrays(tree: Tree, mesh: Mesh) -> PerDevice:
    """The shard of each array that each local device holds; inverse of `global_arrays`."""

    def shard_on(array: jax.Array, device: Any) -> jax.Array:
        return next(shard.data for shard in array.addressable_shards if shard.device == device)

    return [
        jax.tree.map(lambda array, device=device: shard_on(array, device), tree)
        for device in mesh.local_devices
    ]


def global_arrays(local: PerDevice, mesh: Mesh, spec: P) -> Tree:
    """Global arrays from local arrays: replicated (``P()``) or sharded by rows (``P("data")``)."""
    sharding = NamedSharding(mesh, spec)

    def array(*parts: Any) -> jax.Array:
        parts = tuple(map(jnp.asarray, parts))
        rows = len(parts[0]) * mesh.size if spec == _SHARDED else 0
        shape = (rows, *parts[0].shape[1:]) if spec == _SHARDED else parts[0].shape
        return jax.make_array_from_single_device_arrays(shape, sharding, list(parts))

    return jax.tree.map(array, *local)


def check_batch(batch: int, microbatch: int, mesh: Mesh) -> None:
    """Checks that a batch can be cut into microbatches and sharded over a mesh.

    Raises:
      InputError: a microbatch has no row or more than the batch, or the number of devices is not a
        power of two.
    """
    if not 1 <= microbatch <= batch:
        raise InputError(
            f"batch is {batch} and microbatch {microbatch}: a microbatch has at least 1 row, and "
            "at most those of the batch."
        )
    if mesh.size & (mesh.size - 1):
        raise InputError(f"{mesh.size} devices cannot share a batch: use 1, 2, 4, 8, ... devices.")


def shard_microbatches(batch: Tree, microbatch: int, mesh: Mesh) -> list[PerDevice]:
    """Puts a batch on the devices; item i of the result holds each device's i-th microbatch.

    Devices take consecutive rows, so the microbatches of one device are consecutive, too. Where the
    batch ends before the last microbatch, its last row is repeated.

    Args:
      batch: NumPy arrays [n ...] of the whole batch, equal in every process.
      microbatch: rows of a microbatch.
      mesh: see `data_mesh`.
    """
    n = _length(batch)
    each = count_microbatches(n, microbatch, mesh.size) // mesh.size

    def part(index: int) -> PerDevice:
        found = []
        for device in mesh.local_devices:
            start = (_position(device, mesh) * each + index) * microbatch
            rows = np.minimum(np.arange(start, start + microbatch), n - 1)
            found.append(jax.device_put(jax.tree.map(lambda a, rows=rows: a[rows], batch), device))
        return found

    return [part(index) for index in range(each)]


def _length(tree: Tree) -> int:
    """Number of rows."""
    return len(jax.tree.leaves(tree)[0])


def _position(device: Any, mesh: Mesh) -> int:
    return list(mesh.devices.flat).index(device)


class Programs(NamedTuple):
    """The compiled functions of `make_gradient`.

    Attributes:
      forward: (parameters, microbatch) -> its vectors, on one device.
      backward: (parameters, microbatch, gradient by its vectors) -> gradient by the parameters
        [1 ...], on one device.
      differentiate: (vectors, batch) -> loss and gradient by the vectors of the whole batch, on
        each device.
      gather: microbatches of all devices -> the whole batch, on each device.
      reduce: gradients by the parameters -> their sum over the devices.
    """

    forward: Callable[..., Tree]
    backward: Callable[..., Tree]
    differentiate: Callable[..., Tree]
    gather: Callable[..., Tree]
    reduce: Callable[..., Tree]


def make_programs(embed: Embed, loss: Loss, mesh: Mesh) -> Programs:
    """The compiled functions for a gradient.

    Args:
      embed: embeds one microbatch.
      loss: of all vectors and the whole batch, rows in the batch's order.
      mesh: see `data_mesh`; parameters are replicated over its devices.
    """
    return Programs(
        forward=jax.jit(embed),
        backward=jax.jit(_backward(embed)),
        differentiate=jax.jit(jax.value_and_grad(loss)),
        gather=_over_devices(_gather, mesh),
        reduce=_over_devices(_sum_over_devices(mesh.size), mesh),
    )


def make_gradient(
    programs: Programs, mesh: Mesh
) -> Callable[[PerDevice, list[PerDevice], int], Gradient]:
    """The function (parameters, microbatches, rows) -> loss and gradients of the whole batch.

    The first two are per device: parameters as from `local_arrays`, microbatches as from
    `shard_microbatches`. The third one is the number of the batch's own rows.

    Args:
      programs: from `make_programs`.
      mesh: of the same call.
    """
    positions = [_position(device, mesh) for device in mesh.local_devices]

    def over_devices(function: Callable[..., Tree], *local: PerDevice) -> PerDevice:
        return local_arrays(function(*(global_arrays(one, mesh, _SHARDED) for one in local)), mesh)

    def parameter_gradients(
        params: PerDevice, part: PerDevice, index: int, each: int, by_vectors: PerDevice
    ) -> PerDevice:
        own = [
            _microbatch_rows(whole, np.int32(position * each + index), count=each * mesh.size)
            for whole, position in zip(by_vectors, positions, strict=True)
        ]
        return on_each_device(programs.backward, params, part, own)

    def gradient(params: PerDevice, parts: list[PerDevice], rows: int) -> Gradient:
        each = len(parts)
        vectors = [on_each_device(programs.forward, params, part) for part in parts]
        whole = [over_devices(programs.gather, *some) for some in (vectors, parts)]
        missing = _length(whole[1][0]) - rows
        if missing:
            cut = partial(_without_last, count=missing)
            whole = [on_each_device(cut, some) for some in whole]
        results = on_each_device(programs.differentiate, *whole)
        by_vectors = [gradients for _, gradients in results]
        if missing:
            by_vectors = on_each_device(partial(_with_zeros, count=missing), by_vectors)
        summands = (
            parameter_gradients(params, part, i, each, by_vectors) for i, part in enumerate(parts)
        )
        total = over_devices(programs.reduce, _sum_as_tree(summands))
        return Gradient([value for value, _ in results], total)

    return gradient


def on_each_device(function: Callable[..., Tree], *local: PerDevice) -> PerDevice:
    """Calls a jitted function with each device's arrays; programs compile in parallel."""
    with ThreadPoolExecutor(len(local[0])) as threads:
        return list(threads.map(function, *local))


def _over_devices(function: Callable[..., Tree], mesh: Mesh) -> Callable[..., Tree]:
    """A function that communicates between devices, without rounding."""
    # Results are equal on every device by construction, which check_vma cannot see.
    return jax.jit(
        jax.shard_map(
            function, mesh=mesh, in_specs=_SHARDED, out_specs=_REPLICATED, check_vma=False
        )
    )


def _gather(*parts: Tree) -> Tree:
    """All microbatches of all devices, in the batch's order."""

    def whole(*arrays: jax.Array) -> jax.Array:
        gathered = jnp.stack([lax.all_gather(array, _AXIS) for array in arrays], axis=1)
        return gathered.reshape(-1, *arrays[0].shape[1:])

    return jax.tree.map(whole, *parts)


@partial(jax.jit, static_argnames="count")
def _without_last(tree: Tree, *, count: int) -> Tree:
    return jax.tree.map(lambda array: array[:-count], tree)


@partial(jax.jit, static_argnames="count")
def _with_zeros(tree: Tree, *, count: int) -> Tree:
    """``count`` more rows of zeros."""
    return jax.tree.map(
        lambda array: jnp.pad(array, [(0, count), *[(0, 0)] * (array.ndim - 1)]), tree
    )


@partial(jax.jit, static_argnames="count")
def _microbatch_rows(whole: Tree, number: jax.Array, *, count: int) -> Tree:
    """The rows of microbatch ``number`` out of ``count``."""

    def rows(array: jax.Array) -> jax.Array:
        size = len(array) // count
        return lax.dynamic_slice_in_dim(array, number * size, size)

    return jax.tree.map(rows, whole)


def _backward(embed: Embed) -> Callable[[Tree, Tree, Tree], Tree]:
    """(parameters, microbatch, gradient by its vectors) -> gradient by the parameters [1 ...]."""

    def backward(params: Tree, microbatch: Tree, by_vectors: Tree) -> Tree:
        _, vjp = jax.vjp(lambda given: embed(given, microbatch), params)
        return jax.tree.map(lambda gradient: gradient[None], vjp(by_vectors)[0])

    return backward


@jax.jit
def add(first: Tree, second: Tree) -> Tree:
    """Sum of two trees."""
    return jax.tree.map(jnp.add, first, second)


def _sum_as_tree(gradients: Iterator[PerDevice]) -> PerDevice:
    """((0 + 1) + (2 + 3)) + ...: the sum of 2^l items, with at most l + 1 in memory at once."""
    partial_sums: list[tuple[int, PerDevice]] = []
    for gradient in gradients:
        size = 1
        while partial_sums and partial_sums[-1][0] == size:
            earlier = partial_sums.pop()[1]
            gradient, size = on_each_device(add, earlier, gradient), 2 * size
        partial_sums.append((size, gradient))
    [(_, total)] = partial_sums
    return total


def _sum_over_devices(devices: int) -> Callable[[Tree], Tree]:
    """The upper levels of the same tree: neighbours first, then neighbouring pairs, ..."""

    def total(gradient: jax.Array) -> jax.Array:
        gradient, distance = gradient[0], 1
        while distance < devices:
            swap = [(device, device ^ distance) for device in range(devices)]
            gradient = gradient + lax.ppermute(gradient, _AXIS, swap)
            distance *= 2
        return gradient

    return lambda gradients: jax.tree.map(total, gradients)
