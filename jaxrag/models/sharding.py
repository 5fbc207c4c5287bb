"""Sharding of a network's parameters over a mesh of devices.

Megatron's tensor parallelism (Shoeybi et al., 2019): of each pair of matrices the first is sharded
by its outputs and the second by its inputs, over the axis "model"; rows over the axis "data".
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.models.cache import CachedConfig
from jaxrag.types import InputError

# The first pattern that matches a parameter's whole name applies; matrices are [out, in].
RULES: tuple[tuple[str, P], ...] = (
    (r".*\.(q|k|v|gate|up)_proj\.weight", P("model", None)),
    (r".*\.(q|k|v|gate|up)_proj\.(bias|scale)", P("model")),
    (r".*\.(o|down)_proj\.weight", P(None, "model")),
    (r"(.*\.)?(embed_tokens|lm_head)\.weight", P("model", None)),
    (r"(.*\.)?(embed_tokens|lm_head)\.scale", P("model")),
    (r".*", P()),
)


def automatic_mesh(mesh: Mesh) -> Mesh:
    """The same mesh, with the sharding of intermediate arrays left to the compiler.

    InputError if an axis is neither "data" nor "model".
    """
    if unknown := set(mesh.axis_names) - {"data", "model"}:
        raise InputError(
            f"The mesh has axes {mesh.axis_names}: allowed are 'data' (rows) and 'model' "
            f"(parameters), not {', '.join(map(repr, sorted(unknown)))}."
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * mesh.devices.ndim)


def local_mesh() -> Mesh | None:
    """All devices of this process as a mesh with the axis "data"; None for one device."""
    devices = jax.local_devices()
    return automatic_mesh(Mesh(np.array(devices), ("data",))) if len(devices) > 1 else None


def device_mesh(*, data: int, model: int) -> Mesh | None:
    """The first ``data`` x ``model`` devices of this process as a mesh; None for one device.

    InputError if there are fewer, or a number is below 1.
    """
    if data < 1 or model < 1:
        raise InputError(f"data_parallel is {data} and tensor_parallel {model}: at least 1 each.")
    devices = jax.local_devices()
    if data * model > len(devices):
        raise InputError(
            f"data_parallel {data} x tensor_parallel {model} is {data * model} devices; there "
            f"{'is 1' if len(devices) == 1 else f'are {len(devices)}'} ({devices[0].platform})."
        )
    if data * model == 1:
        return None
    return Mesh(np.array(devices[: data * model]).reshape(data, model), ("data", "model"))


def parameter_sharding(
    name: str,
    shape: Sequence[int],
    mesh: Mesh,
    *,
    rules: Sequence[tuple[str, P]] = RULES,
) -> NamedSharding:
    """A parameter's sharding; an axis that the mesh does not divide evenly is not sharded."""
    spec = next(spec for pattern, spec in rules if re.fullmatch(pattern, name))
    if ".stack." in name:
        spec = P(None, *spec)  # the layers come first
    return divisible_sharding(spec, shape, mesh)


def divisible_sharding(spec: P, shape: Sequence[int], mesh: Mesh) -> NamedSharding:
    """``spec`` without the axes that the mesh lacks or that do not divide ``shape`` evenly."""
    axes = [
        axis if axis in mesh.axis_names and size % mesh.shape[axis] == 0 else None
        for axis, size in zip(spec, shape, strict=False)
    ]
    return NamedSharding(mesh, P(*axes))


def check_rows(config: CachedConfig, rows: int, mesh: Mesh) -> None:
    """InputError if devices of "model" share a head and cut a cache's rows unevenly."""
    data, model = (mesh.shape.get(axis, 1) for axis in ("data", "model"))
    sharing = model // math.gcd(model, config.cache_shape[1])
    if sharing > 1 and rows % (data * sharing):
        raise InputError(
            f"prefill_rows is {rows}; with {model} devices for {config.cache_shape[1]} key-value "
            f"heads, {sharing} devices share a head and cut its rows, so it must be a multiple of "
            f"{data * sharing} (data_parallel {data} x {sharing})."
        )


def cache_sharding(config: CachedConfig, rows: int, mesh: Mesh, *, stacked: bool) -> NamedSharding:
    """Sharding of the keys and values of a cache, see `jaxrag.models.cache.empty_cache`.

    Rows are cut over the axis "data" and key-value heads over "model". Where "model" has more
    devices than the heads divide by, neighbours share a head, as they share the parameters of its
    queries, and cut the rows further: devices 2i and 2i + 1 of eight have head i of four, and half
    of the rows each.
    """
    _, g, _ = config.cache_shape
    data, model = (mesh.shape.get(axis, 1) for axis in ("data", "model"))
    heads = math.gcd(model, g)
    order = [axis for axis in ("data", "model") if axis in mesh.axis_names]
    devices = mesh.devices.transpose([mesh.axis_names.index(axis) for axis in order])
    axes = ("data", "heads", "rows")
    cut = Mesh(devices.reshape(data, heads, model // heads), axes, axis_types=(AxisType.Auto,) * 3)
    over = next(
        some
        for some in (("data", "rows"), ("data",), ("rows",), ())
        if rows % math.prod(cut.shape[axis] for axis in some) == 0
    )
    spec = P(over or None, "heads")
    return NamedSharding(cut, P(None, *spec) if stacked else spec)
