"""Layers and activations of several networks; matrices are [out, in], as Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrag.models.precision import linear, scaled_linear

_NORMAL = nn.initializers.normal(0.02)
_FEW = 1024  # rows of a table whose derivative is a matrix product

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}
"""Activation functions by their names in config.json."""


KERNEL = "kernel"
"""Name of a matrix with the layout [in, out], see `inputs_first`."""


def inputs_first(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters with the matrices of projections as [in, out], under the name "kernel".

    CPUs multiply few rows with them faster: up to a third of a decoding step in eight rows. The
    given dictionaries lose each matrix as it is copied. Matrices in eight bits stay as they are.
    """
    for name, child in params.items():
        if not isinstance(child, dict):
            continue
        if name.endswith("_proj") and "weight" in child and "scale" not in child:
            child[KERNEL] = jnp.asarray(child.pop("weight")).T
        else:
            inputs_first(child)
    return params


def _parameter(
    module: nn.Module, name: str, start: nn.initializers.Initializer, shape: tuple[int, ...]
) -> jax.Array:
    """The parameter that `flax.linen.Module.param` gives, found without tracing its initializer.

    That takes a fifth of the time in which a decoder is traced.
    """
    value = module.get_variable("params", name)
    if value is None or value.shape != shape:
        return module.param(name, start, shape)
    return value


class Linear(nn.Module):
    """x W^T (+ b) in the dtype of x, with W as [out, in].

    With a "scale" for each output, W holds integers (`jaxrag.models.quantisation`). A "kernel" is
    W^T, in the place of W (`inputs_first`).
    """

    features: int
    bias: bool = True

    @nn.compact
    def __call__(self, x: Float[Array, "*n i"]) -> Float[Array, "*n o"]:
        if (kernel := self.get_variable("params", KERNEL)) is not None:
            y = linear(x, kernel.T)
            return self._biased(y) if self.bias else y
        weight = _parameter(self, "weight", _NORMAL, (self.features, x.shape[-1]))
        if (scale := self.get_variable("params", "scale")) is not None:
            y = scaled_linear(x, weight, scale)
        elif self.features == 1:
            # On a CPU, the rounding of a matrix-vector product depends on the row's position in
            # the matrix. A reranker's score must not.
            y = jnp.sum(x * weight[0].astype(x.dtype), axis=-1, keepdims=True)
        else:
            y = linear(x, weight)
        return self._biased(y) if self.bias else y

    def _biased(self, y: Float[Array, "*n o"]) -> Float[Array, "*n o"]:
        bias = _parameter(self, "bias", nn.initializers.zeros, (self.features,))
        return y + bias.astype(y.dtype)


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis; the division in float32. Zhang, Sennrich (2019).

    With an offset, x / rms(x) * (offset + weight), all in float32 (Gemma).
    """

    eps: float
    offset: float = 0.0

    @nn.compact
    def __call__(self, x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        start = nn.initializers.constant(1.0 - self.offset)
        weight = _parameter(self, "weight", start, (x.shape[-1],))
        y = x.astype(jnp.float32)
        y *= jax.lax.rsqrt(jnp.square(y).mean(-1, keepdims=True) + self.eps)
        if self.offset:
            return (y * (self.offset + weight.astype(jnp.float32))).astype(x.dtype)
        return y.astype(x.dtype) * weight.astype(x.dtype)


class LayerNorm(nn.Module):
    """Layer normalisation over the last axis, computed in float32. Ba et al. (2016)."""

    eps: float

    @nn.compact
    def __call__(self, x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        weight = _parameter(self, "weight", nn.initializers.ones, (x.shape[-1],))
        bias = _parameter(self, "bias", nn.initializers.zeros, (x.shape[-1],))
        y = x.astype(jnp.float32)
        centred = y - y.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + self.eps)
        return (centred * scale * weight + bias).astype(x.dtype)


@jax.custom_vjp
def _few_rows(table: Float[Array, "r d"], ids: Int[Array, "*n"]) -> Float[Array, "*n d"]:
    """Rows of a small table, such as that of positions; its derivative is a matrix product."""
    return table[ids]


def _few_rows_forward(table: Array, ids: Array) -> tuple[Array, tuple[Array, Array]]:
    return table[ids], (table, ids)


def _few_rows_backward(saved: tuple[Array, Array], cotangent: Array) -> tuple[Array, None]:
    table, ids = saved
    chosen = jax.nn.one_hot(ids, len(table), dtype=cotangent.dtype)
    precision = jax.lax.Precision.HIGHEST
    return jnp.einsum("...r,...d->rd", chosen, cotangent, precision=precision), None


_few_rows.defvjp(_few_rows_forward, _few_rows_backward)


class Embedding(nn.Module):
    """A table of vectors, also the output layer of tied models; with a "scale", of integers."""

    rows: int
    features: int

    def setup(self) -> None:
        self.weight = _parameter(self, "weight", _NORMAL, (self.rows, self.features))
        self.scale = self.get_variable("params", "scale")

    def __call__(self, ids: Int[Array, "*n"]) -> Float[Array, "*n d"]:
        if self.scale is not None:
            return self.weight[ids] * self.scale[ids, None]
        return _few_rows(self.weight, ids) if self.rows <= _FEW else self.weight[ids]

    def logits(self, hidden: Float[Array, "b d"]) -> Float[Array, "b v"]:
        """Inner products with all rows, in float32."""
        weight = self.weight.astype(hidden.dtype)
        logits = jnp.einsum("bd,vd->bv", hidden, weight, preferred_element_type=jnp.float32)
        return logits if self.scale is None else logits * self.scale
