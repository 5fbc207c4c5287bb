"""What precision a network computes in."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrag.types import InputError

DType = Literal["", "float32", "bfloat16"]
"""The dtype of computation in settings; "" means float32 on CPUs and bfloat16 on accelerators."""


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


@jax.custom_vjp
def linear(x: Float[Array, "*n i"], weight: Float[Array, "o i"]) -> Float[Array, "*n o"]:
    """x W^T in the dtype of x, summed in float32; so are its derivatives.

    Asking for float32 sums is what lets a CPU use its bfloat16 instructions, which are three to
    four times as fast as its float32 ones; without, XLA takes a slow path. The derivatives that
    JAX would make multiply a float32 matrix with a bfloat16 one, which has no fast path anywhere.
    """
    weight = weight.astype(x.dtype)
    y = jnp.einsum("...i,oi->...o", x, weight, preferred_element_type=jnp.float32)
    return y.astype(x.dtype)


def _forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return linear(x, weight), (x, weight)


def _backward(kept: tuple[Array, Array], slope: Float[Array, "*n o"]) -> tuple[Array, Array]:
    x, weight = kept
    sums = jnp.float32
    to_x = jnp.einsum("...o,oi->...i", slope, weight.astype(x.dtype), preferred_element_type=sums)
    to_weight = jnp.einsum("...o,...i->oi", slope, x, preferred_element_type=sums)
    return to_x.astype(x.dtype), to_weight.astype(weight.dtype)


linear.defvjp(_forward, _backward)
