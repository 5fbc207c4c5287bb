"""Arrays for the arguments of a traced program."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Value = float | tuple[int, int] | Callable[[tuple[int, ...]], np.ndarray]
"""Of an array: one number, a range [low, high) that integers are drawn from, or a function of its
shape."""

_DRAWN = 1 << 22
"""Numbers that are drawn; larger arrays repeat them."""

_IDS = 1000


def arguments(traced: Any, rules: Mapping[str, Value], device: Any) -> tuple[Any, Any]:
    """Random arguments of a traced program, the same on every device.

    Floating-point numbers are normal with standard deviation 0.02, integers are drawn from
    [0, 1000) and Booleans are true, unless a rule says otherwise.

    Args:
      traced: of `jax.jit`.
      rules: part of an argument's path -> its value; the first that fits counts.
      device: that holds them.

    Returns:
      Positional arguments and keyword arguments.
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(traced.args_info)

    def one(i: int, path: Any, info: Any) -> jax.Array:
        name = jax.tree_util.keystr(path)
        value = next((value for part, value in rules.items() if part in name), None)
        return _array(info.shape, info.dtype, value, i, device)

    made = [one(i, path, info) for i, (path, info) in enumerate(leaves)]
    return jax.tree_util.tree_unflatten(tree, made)


def copies(traced: Any, given: tuple[Any, Any]) -> tuple[Any, Any]:
    """The arguments, those that the program takes over copied."""
    return jax.tree.map(
        lambda info, array: jnp.copy(array) if info.donated else array, traced.args_info, given
    )


def _array(shape: tuple[int, ...], dtype: Any, value: Value | None, seed: int, device: Any) -> Any:
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.device_put(jax.random.key(seed), device)
    count, rng = math.prod(shape), np.random.default_rng(seed)
    if callable(value):
        return jax.device_put(value(shape).astype(dtype), device)
    if value is None and jnp.issubdtype(dtype, jnp.integer):
        value = (0, min(_IDS, jnp.iinfo(dtype).max))
    if isinstance(value, tuple):
        drawn = rng.integers(*value, min(count, _DRAWN))
    elif value is None and jnp.issubdtype(dtype, jnp.floating):
        drawn = 0.02 * rng.standard_normal(min(count, _DRAWN), np.float32)
    else:
        drawn = np.full(1, 1 if value is None else value)
    drawn = jax.device_put(drawn.astype(dtype), device)
    return _repeated(drawn, shape) if count != len(drawn) else drawn.reshape(shape)


@functools.partial(jax.jit, static_argnames="shape")
def _repeated(drawn: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    count = math.prod(shape)
    return jnp.tile(drawn, -(-count // len(drawn)))[:count].reshape(shape)
