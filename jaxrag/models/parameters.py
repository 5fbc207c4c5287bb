"""Parameter trees under the names of checkpoints: shapes, loading onto devices, flattening.

A network's modules are named so that the path of a parameter, joined by dots, is its name in
Hugging Face's checkpoints.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import keystr, tree_flatten_with_path

from jaxrag.core.progress import size_text
from jaxrag.models.checkpoint.stored import StoredTensor
from jaxrag.models.device_memory import is_out_of_memory
from jaxrag.models.sharding import RULES, parameter_sharding
from jaxrag.types import InputError


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


@functools.cache  # tracing a large network takes a second
def template(initialise: Callable[[Any], Any], network: Any) -> Any:
    """The tree of parameters that ``initialise(network)`` would make, without values."""
    return jax.eval_shape(lambda: initialise(network))


def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """Shape of each array of a tree, by name."""
    return {name: leaf.shape for name, leaf in flatten(tree).items()}


def to_devices(
    arrays: dict[str, Any],
    dtype: Any,
    mesh: Mesh | None,
    *,
    rules: Sequence[tuple[str, P]] = RULES,
) -> dict[str, jax.Array]:
    """Puts arrays on the devices in ``dtype``; empties ``arrays``, to bound the host's memory.

    Args:
      arrays: parameters by name, each an array or a `StoredTensor`, which is read here; a list of
        them becomes one array with their number as first axis, written one by one.
      dtype: of the parameters on the device; quantised matrices and their scales keep theirs.
      mesh: devices to shard over; None uses the default device.
      rules: see `jaxrag.models.sharding`.

    InputError if the devices' memory does not hold them.
    """
    placed = {}
    for name in list(arrays):
        array = arrays.pop(name)
        stacked = isinstance(array, list)
        array_dtype = _dtype(name, array[0] if stacked else array, dtype)
        shape = (len(array), *array[0].shape) if stacked else array.shape
        sharding = parameter_sharding(name, shape, mesh, rules=rules) if mesh else None
        try:
            if stacked:
                placed[name] = _stack_on_devices(array, shape, array_dtype, sharding)
            else:
                placed[name] = _placed(array, array_dtype, sharding)
        except jax.errors.JaxRuntimeError as error:
            if is_out_of_memory(error):
                raise _does_not_fit(name, placed) from error
            raise
    return placed


def _does_not_fit(name: str, placed: Mapping[str, jax.Array]) -> InputError:
    total = sum(array.nbytes for array in placed.values())
    return InputError(
        f"The devices' memory is full at {name}, after {size_text(total)} of this model's "
        "parameters. Cut them over more devices (tensor_parallel), hold them in fewer bits (dtype "
        "bfloat16, quantization int8), or give an index on the devices less (memory_gb)."
    )


def _dtype(name: str, array: np.ndarray | StoredTensor, dtype: Any) -> Any:
    """The dtype of a parameter on the devices, see `jaxrag.models.quantisation`."""
    if isinstance(array, StoredTensor):
        return dtype
    return array.dtype if array.dtype == np.int8 or name.endswith(".scale") else dtype


def _placed(
    array: np.ndarray | StoredTensor, dtype: Any, sharding: NamedSharding | None
) -> jax.Array:
    """An array on the devices; of one that is stored, a process reads what its devices hold."""
    if not isinstance(array, StoredTensor):
        return jax.device_put(array.astype(dtype), sharding)
    if sharding is None:
        return jax.device_put(array.read().astype(dtype))
    parts: dict[str, np.ndarray] = {}  # devices may hold the same

    def part(index: Any) -> np.ndarray:
        if str(index) not in parts:
            parts[str(index)] = array.part(index).astype(dtype)
        return parts[str(index)]

    return jax.make_array_from_callback(array.shape, sharding, part)


def _stack_on_devices(
    parts: list[Any], shape: tuple[int, ...], dtype: Any, sharding: NamedSharding | None
) -> jax.Array:
    """The arrays as one on the devices, written one by one; empties ``parts``."""
    stack = jnp.zeros(shape, dtype, device=sharding)
    of_layer = sharding and NamedSharding(sharding.mesh, P(*sharding.spec[1:]))
    write = _writer(sharding)
    for i in range(len(parts)):
        stack = write(stack, _placed(parts[i], dtype, of_layer), np.int32(i))
        parts[i] = None
    return stack


@functools.cache
def _writer(sharding: NamedSharding | None) -> Callable[[jax.Array, jax.Array, Any], jax.Array]:
    """Writes an array to an index of the first axis of another, in its memory."""
    update = functools.partial(jax.lax.dynamic_update_index_in_dim, axis=0)
    return jax.jit(update, donate_argnums=0, out_shardings=sharding)
