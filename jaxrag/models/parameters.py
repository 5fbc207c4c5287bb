"""Parameter trees under the names of checkpoints: shapes, loading onto devices, flattening.

A network's modules are named so that the path of a parameter, joined by dots, is its name in
Hugging Face's checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax.tree_util import keystr, tree_flatten_with_path

from jaxrag.models.sharding import RULES, parameter_sharding


def flatten(tree: Any) -> dict[str, Any]:
    """A tree's arrays by path, such as "bert.norm.weight"."""
    leaves = tree_flatten_with_path(tree)[0]
    return {keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def unflatten(arrays: Mapping[str, Any], template: Any) -> Any:
    """The tree with the structure of ``template`` and the arrays of the same paths."""
    names = flatten(template)
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in names])


def to_numpy(params: Any) -> dict[str, np.ndarray]:
    """Parameters by name, as float32 arrays on the host."""
    return {name: np.asarray(leaf, np.float32) for name, leaf in flatten(params).items()}


def shapes(init: Callable[[], Any]) -> dict[str, tuple[int, ...]]:
    """Shape of each parameter that ``init`` would make, by name; nothing is computed."""
    return {name: leaf.shape for name, leaf in flatten(jax.eval_shape(init)).items()}


def to_devices(
    arrays: dict[str, np.ndarray],
    dtype: Any,
    mesh: Mesh | None,
    *,
    rules: Sequence[tuple[str, P]] = RULES,
) -> dict[str, jax.Array]:
    """Puts arrays on the devices in ``dtype``; empties ``arrays``, to bound the host's memory.

    Args:
      arrays: parameters by name.
      dtype: of the parameters on the device.
      mesh: devices to shard over; None uses the default device.
      rules: see `jaxrag.models.sharding`.
    """
    placed = {}
    for name in list(arrays):
        array = arrays.pop(name)
        sharding = parameter_sharding(name, array.shape, mesh, rules=rules) if mesh else None
        placed[name] = jax.device_put(array.astype(dtype), sharding)
    return placed
