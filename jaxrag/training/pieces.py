"""Gradients of a loss over a whole batch, from pieces that fit a device.

GradCache (Gao et al., 2021, "Scaling deep contrastive learning batch size under memory limited
setup"): a contrastive loss needs the vectors of the whole batch at once, but not what the network
computed on the way to them. So the pieces are embedded one after the other, the loss is
differentiated by the vectors, and each piece is embedded once more to carry that on to the
parameters. The gradient is that of the whole batch, the memory that of one piece.

A piece has one shape and goes through one program however many devices there are, and the pieces'
gradients are added up in the order of one binary tree. So one device, eight devices and several
processes get the same bits. That needs two things that XLA does not do by itself: each device's
program is compiled for that device alone, since one for many devices is optimised in another way
and rounds differently; and the sum over devices is not the compiler's (psum).
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

from jaxrag.types import InputError

_AXIS = "data"
_WHOLE, _SPLIT = P(), P(_AXIS)

Tree = Any
Local = list[Tree]
"""A tree for each device of this process, in the mesh's order."""
Embed = Callable[[Tree, Tree], Tree]
"""(parameters, piece) -> vectors; every array has the piece's rows along its first axis."""
Loss = Callable[[Tree, Tree], jax.Array]
"""(vectors of all pieces, all pieces) -> the loss."""


class Gradient(NamedTuple):
    """Loss and gradient of a batch, the same on every device."""

    loss: Local
    slopes: Local


def data_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh of one axis, "data"; by default of all devices of all processes."""
    return Mesh(np.asarray(devices or jax.devices()), (_AXIS,))


def replicate(tree: Tree, mesh: Mesh) -> Tree:
    """A copy of a tree of arrays on every device of a mesh, the same in every process."""
    copies = [jax.device_put(tree, device, may_alias=False) for device in mesh.local_devices]
    return together(copies, mesh, _WHOLE)


def apart(tree: Tree, mesh: Mesh) -> Local:
    """What each device holds of a tree of arrays that lie on the mesh."""

    def held(array: jax.Array, device: Any) -> jax.Array:
        return next(shard.data for shard in array.addressable_shards if shard.device == device)

    return [
        jax.tree.map(lambda array, device=device: held(array, device), tree)
        for device in mesh.local_devices
    ]


def together(local: Local, mesh: Mesh, spec: P) -> Tree:
    """The arrays of which each device holds a copy (`P()`) or its rows (`P("data")`)."""
    sharding = NamedSharding(mesh, spec)

    def array(*parts: Any) -> jax.Array:
        parts = tuple(map(jnp.asarray, parts))
        rows = len(parts[0]) * mesh.size if spec == _SPLIT else 0
        shape = (rows, *parts[0].shape[1:]) if spec == _SPLIT else parts[0].shape
        return jax.make_array_from_single_device_arrays(shape, sharding, list(parts))

    return jax.tree.map(array, *local)


def check_batch(batch: int, piece: int, mesh: Mesh) -> None:
    """Whether a batch of ``batch`` rows in pieces of ``piece`` can be had on a mesh.

    Raises:
      InputError: it cannot, with what would do.
    """
    devices = mesh.size
    if piece < 1 or batch < 1 or batch % piece or not _power_of_two(batch // piece):
        raise InputError(
            f"batch is {batch} and piece {piece}: a batch is to be 1, 2, 4, 8, ... pieces."
        )
    if not _power_of_two(devices) or devices > batch // piece:
        raise InputError(
            f"{batch // piece} pieces cannot be shared by {devices} devices: give as many devices "
            f"as 1, 2, 4, ... up to the pieces, or smaller pieces (batch is {batch}, piece "
            f"{piece})."
        )


def _power_of_two(number: int) -> bool:
    return number > 0 and not number & (number - 1)


def place(batch: Tree, piece: int, mesh: Mesh) -> list[Local]:
    """A batch on the devices, in pieces: item i holds the i-th piece of each device.

    Pieces lie on the devices in order, so a device's pieces follow each other in the batch.

    Args:
      batch: NumPy arrays of the whole batch [n ...], the same in every process.
      piece: rows of a piece.
      mesh: as of `data_mesh`.
    """
    each = len(jax.tree.leaves(batch)[0]) // (piece * mesh.size)

    def part(index: int) -> Local:
        found = []
        for device in mesh.local_devices:
            start = (_place_of(device, mesh) * each + index) * piece
            rows = slice(start, start + piece)
            found.append(jax.device_put(jax.tree.map(lambda a, rows=rows: a[rows], batch), device))
        return found

    return [part(index) for index in range(each)]


def _place_of(device: Any, mesh: Mesh) -> int:
    return list(mesh.devices.flat).index(device)


def make_gradient(embed: Embed, loss: Loss, mesh: Mesh) -> Callable[[Local, list[Local]], Gradient]:
    """The function (parameters, pieces as `place` gives them) -> loss and gradient.

    Args:
      embed: embeds one piece.
      loss: of all vectors and all pieces, in the batch's order.
      mesh: as of `data_mesh`; parameters are on all of its devices.
    """
    forward, backward = jax.jit(embed), jax.jit(_pull(embed))
    differentiate = jax.jit(jax.value_and_grad(loss))
    gather = _over_devices(_gather, mesh)
    finish = _over_devices(_sum_over_devices(mesh.size), mesh)
    places = [_place_of(device, mesh) for device in mesh.local_devices]

    def slopes_of(params: Local, part: Local, index: int, each: int, wanted: Local) -> Local:
        mine = [
            _rows(slopes, np.int32(place * each + index), part=each * mesh.size)
            for slopes, place in zip(wanted, places, strict=True)
        ]
        return on_each(backward, params, part, mine)

    def gradient(params: Local, parts: list[Local]) -> Gradient:
        each = len(parts)
        vectors = [on_each(forward, params, part) for part in parts]
        ends = on_each(differentiate, gather(*vectors), gather(*parts))
        wanted = [slopes for _, slopes in ends]
        pulled = (slopes_of(params, part, i, each, wanted) for i, part in enumerate(parts))
        return Gradient([value for value, _ in ends], finish(_sum_as_tree(pulled)))

    return gradient


def on_each(function: Callable[..., Tree], *local: Local) -> Local:
    """A jitted function on what each device holds; the devices' programs compile side by side."""
    with ThreadPoolExecutor(len(local[0])) as threads:
        return list(threads.map(function, *local))


def _over_devices(function: Callable[..., Tree], mesh: Mesh) -> Callable[..., Local]:
    """A function of what the devices hold that talks between them and rounds nothing."""
    # What comes out the same on every device is so by construction, which the checker cannot see.
    spread = jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=_SPLIT, out_specs=_WHOLE, check_vma=False)
    )
    return lambda *local: apart(spread(*(together(one, mesh, _SPLIT) for one in local)), mesh)


def _gather(*parts: Tree) -> Tree:
    """All pieces of all devices, in the batch's order."""

    def whole(*arrays: jax.Array) -> jax.Array:
        gathered = jnp.stack([lax.all_gather(array, _AXIS) for array in arrays], axis=1)
        return gathered.reshape(-1, *arrays[0].shape[1:])

    return jax.tree.map(whole, *parts)


@partial(jax.jit, static_argnames="part")
def _rows(whole: Tree, number: jax.Array, *, part: int) -> Tree:
    """The rows of piece ``number`` of ``part``."""

    def rows(array: jax.Array) -> jax.Array:
        count = len(array) // part
        return lax.dynamic_slice_in_dim(array, number * count, count)

    return jax.tree.map(rows, whole)


def _pull(embed: Embed) -> Callable[[Tree, Tree, Tree], Tree]:
    def pull(params: Tree, piece: Tree, wanted: Tree) -> Tree:
        _, back = jax.vjp(lambda given: embed(given, piece), params)
        return jax.tree.map(lambda slope: slope[None], back(wanted)[0])

    return pull


@jax.jit
def add(first: Tree, second: Tree) -> Tree:
    """Sum of two trees."""
    return jax.tree.map(jnp.add, first, second)


def _sum_as_tree(slopes: Iterator[Local]) -> Local:
    """((0 + 1) + (2 + 3)) + ...: of 2^l items, with at most l + 1 of them held at once."""
    held: list[tuple[int, Local]] = []
    for slope in slopes:
        size = 1
        while held and held[-1][0] == size:
            earlier = held.pop()[1]
            slope, size = on_each(add, earlier, slope), 2 * size
        held.append((size, slope))
    [(_, total)] = held
    return total


def _sum_over_devices(devices: int) -> Callable[[Tree], Tree]:
    """The upper levels of the same tree: neighbours first, then neighbouring pairs, ..."""

    def total(slope: jax.Array) -> jax.Array:
        slope, distance = slope[0], 1
        while distance < devices:
            swap = [(device, device ^ distance) for device in range(devices)]
            slope = slope + lax.ppermute(slope, _AXIS, swap)
            distance *= 2
        return slope

    return lambda slopes: jax.tree.map(total, slopes)
