"""Dtype and matmul precision of networks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8

from jaxrag.types import InputError

DType = Literal["", "float32", "bfloat16"]
"""The dtype of computation in settings; "" means float32 on CPUs and bfloat16 on accelerators."""

DecoderDType = Literal["", "float32", "bfloat16", "float16"]
"""The same of decoders, which may also compute in float16."""


def compute_dtype(name: str | None = None, *, half: bool = False) -> jnp.dtype:
    """The dtype called ``name``; by default bfloat16 on accelerators and float32 on CPUs.

    ``half`` also allows float16; it has more digits than bfloat16, but its largest number is
    65,504. InputError for another name.
    """
    if name is None:
        name = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    allowed = ("float32", "bfloat16", *(("float16",) if half else ()))
    if name not in allowed:
        raise InputError(f"dtype is {name!r}; allowed are {', '.join(map(repr, allowed))}.")
    return jnp.dtype(name)


def matmul_precision(dtype: jnp.dtype) -> AbstractContextManager[None]:
    """A context in which float32 matrices are multiplied in float32, on accelerators, too."""
    exact = jnp.dtype(dtype) == jnp.float32
    return jax.default_matmul_precision("highest" if exact else "default")


@jax.custom_vjp
def linear(x: Float[Array, "*n i"], weight: Float[Array, "o i"]) -> Float[Array, "*n o"]:
    """x W^T in the dtype of x, accumulated in float32; likewise its derivatives.

    With float32 accumulation XLA uses a CPU's bfloat16 instructions. JAX's own derivatives would
    multiply a float32 matrix by a bfloat16 one, which is slow on every device.
    """
    weight = weight.astype(x.dtype)
    return _product("...i,oi->...o", x, weight).astype(x.dtype)


def _product(axes: str, x: Array, y: Array) -> Array:
    """Matrix product of arrays of one dtype, accumulated in float32.

    The result is float32; on GPUs, whose libraries accumulate so anyway, it has that dtype.
    """
    sums = None if jax.default_backend() == "gpu" else jnp.float32
    with matmul_precision(x.dtype):  # a derivative is traced outside of its network's context
        return jnp.einsum(axes, x, y, preferred_element_type=sums)


def scaled_linear(
    x: Float[Array, "*n i"], weight: Int8[Array, "o i"], scale: Float[Array, " o"]
) -> Float[Array, "*n o"]:
    """x (diag(scale) W)^T: W in the dtype of x, accumulated and scaled in float32."""
    y = jnp.einsum("...i,oi->...o", x, weight.astype(x.dtype), preferred_element_type=jnp.float32)
    return (y * scale).astype(x.dtype)


def _forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return linear(x, weight), (x, weight)


def _backward(saved: tuple[Array, Array], cotangent: Float[Array, "*n o"]) -> tuple[Array, Array]:
    x, weight = saved
    to_x = _product("...o,oi->...i", cotangent, weight.astype(x.dtype))
    with matmul_precision(x.dtype):
        to_weight = jnp.einsum("...o,...i->oi", cotangent, x, preferred_element_type=jnp.float32)
    return to_x.astype(x.dtype), to_weight.astype(weight.dtype)


linear.defvjp(_forward, _backward)
