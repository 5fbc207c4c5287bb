"""What precision a network computes in."""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrag.types import InputError


def compute_dtype(name: str | None = None) -> jnp.dtype:
    """The dtype called ``name``; by default bfloat16 on accelerators and float32 on CPUs.

    Raises:
      InputError: for anything but "float32", "bfloat16" and None.
    """
    if name is None:
        name = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    if name not in ("float32", "bfloat16"):
        raise InputError(f"dtype is {name!r}; allowed are 'float32' and 'bfloat16'.")
    return jnp.dtype(name)


def matmul_precision(dtype: jnp.dtype) -> AbstractContextManager[None]:
    """Under it float32 matrices are multiplied in float32, on accelerators too.

    Those would round their inputs to fewer bits unless told otherwise.
    """
    exact = jnp.dtype(dtype) == jnp.float32
    return jax.default_matmul_precision("highest" if exact else "default")


def linear(x: Float[Array, "*n i"], weight: Float[Array, "o i"]) -> Float[Array, "*n o"]:
    """x W^T in the dtype of x, summed in float32.

    Asking for float32 sums is what lets a CPU use its bfloat16 instructions, which are three to
    four times as fast as its float32 ones; without, XLA takes a slow path.
    """
    weight = weight.astype(x.dtype)
    y = jnp.einsum("...i,oi->...o", x, weight, preferred_element_type=jnp.float32)
    return y.astype(x.dtype)
