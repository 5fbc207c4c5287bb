"""Networks of neural bandits: rewards of arms, and gradients as outer products.

Either one network per arm (ARS), or one shared network whose input has a block for each arm, the
context in the block of the arm that is evaluated and zeros elsewhere (Zhou et al. 2020). As such an
input only meets its own block of the first kernel, sharing means: a first kernel per arm, all other
layers once. In both cases some leaves of the parameters have a leading axis for arms; one arm's
part of the parameters is its view.

The gradient of a multilayer perceptron for one input is, layer by layer, the outer product of the
backpropagated error and the layer's input. Kept as two vectors (`Outer`) it costs no more than a
forward pass, and the sums of squares and inner products that a confidence matrix needs are computed
without writing the matrix out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from jaxrag.types import InputError

Params = PyTree
"""Weights of all arms."""

View = PyTree
"""Weights that determine one arm's reward."""


class Outer(NamedTuple):
    """The outer product of ``left`` [m] and ``right`` [n], not written out."""

    left: Float[Array, "*b m"]
    right: Float[Array, "*b n"]


Gradient = list[Any]
"""With respect to a view, in the order of `jax.tree.leaves`: arrays and `Outer`."""


class Layer(NamedTuple):
    """A linear map: kernel [out in] ([in] in the last layer), bias [out] or None."""

    kernel: Array
    bias: Array | None


class Network(NamedTuple):
    """A function from contexts to the rewards of ``arms`` arms.

    Attributes:
      features: of a context.
      per_arm: for each leaf of the parameters, whether it has a leading axis for arms; other leaves
        are shared.
      init: key -> parameters.
      apply: view, context [d] -> the arm's reward, a scalar.
      gradient: view, context [d] -> reward and its gradient.
      factored: whether ``gradient`` costs about as little as ``apply``.
    """

    features: int
    arms: int
    per_arm: tuple[bool, ...]
    init: Callable[[jax.Array], Params]
    apply: Callable[[View, Array], Array]
    gradient: Callable[[View, Array], tuple[Array, Gradient]]
    factored: bool

    @property
    def separate(self) -> bool:
        """Whether no leaf is shared; every arm then has its own confidence matrix."""
        return all(self.per_arm)

    def in_axes(self, tree: PyTree) -> PyTree:
        """``in_axes`` of `jax.vmap` over arms, for a tree of the parameters' structure."""
        axes = [0 if per_arm else None for per_arm in self.per_arm]
        return jax.tree.unflatten(jax.tree.structure(tree), axes)

    def rewards(self, params: Params, x: Float[Array, " d"]) -> Float[Array, " a"]:
        """Predicted rewards of all arms."""
        over = jax.vmap(self.apply, (self.in_axes(params), None), axis_size=self.arms)
        return over(params, x)

    def view(self, params: Params, arm: Int[Array, ""]) -> View:
        """One arm's part of the parameters."""
        leaves, structure = jax.tree.flatten(params)
        parts = [
            take(leaf, arm) if per_arm else leaf
            for leaf, per_arm in zip(leaves, self.per_arm, strict=True)
        ]
        return jax.tree.unflatten(structure, parts)

    def arm_gradient(self, params: Params, x: Float[Array, " d"], arm: Int[Array, ""]) -> Gradient:
        """The gradient of one arm's reward.

        Where gradients are cheap, those of all arms are computed: in one program with `select` XLA
        reuses them, whereas it would read the weights of one arm a second time.
        """
        if not self.factored:
            return self.gradient(self.view(params, arm), x)[1]
        over = jax.vmap(self.gradient, (self.in_axes(params), None), axis_size=self.arms)
        return jax.tree.map(lambda leaf: take(leaf, arm), over(params, x)[1])


def take(leaf: Array, arm: int | Int[Array, ""]) -> Array:
    """An arm's part of an array; without the bounds check of `leaf[arm]`, which costs a copy."""
    return lax.dynamic_index_in_dim(leaf, arm, keepdims=False)


def put(leaf: Array, arm: int | Int[Array, ""], part: Array) -> Array:
    """The array with an arm's part replaced; in place where the old array is not used again."""
    return lax.dynamic_update_index_in_dim(leaf, part, arm, 0)


def general(network: Network) -> Network:
    """The same network with gradients by `jax.grad`, written out: for any ``apply``."""

    def gradient(view: View, x: Array) -> tuple[Array, Gradient]:
        value, gradients = jax.value_and_grad(network.apply)(view, x)
        return value, jax.tree.leaves(gradients)

    return network._replace(gradient=gradient, factored=False)


Initializer = Callable[[jax.Array, tuple[int, ...]], Array]
"""key, shape [... in] -> weights; also of biases, by the shape of their layer's kernel."""


def he_normal(key: jax.Array, shape: tuple[int, ...]) -> Array:
    """Normal with variance 2 / inputs, which keeps a ReLU network's scale."""
    return jax.random.normal(key, shape) * jnp.sqrt(2.0 / shape[-1])


def linear_uniform(key: jax.Array, shape: tuple[int, ...]) -> Array:
    """Uniform within 1 / sqrt(inputs), the default of PyTorch's linear layers."""
    return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) / jnp.sqrt(shape[-1])


def mlp(
    d: int,
    arms: int,
    *,
    hidden: tuple[int, ...] = (100,),
    shared: bool = False,
    bias: bool = False,
    initializer: Initializer = he_normal,
) -> Network:
    """A ReLU network from a context of d features to one reward.

    InputError for a size below 1, or without a hidden layer (use `linear_ucb`).

    Args:
      d: features of a context.
      hidden: widths of the hidden layers.
      shared: one network with an input block per arm, instead of one network per arm.
      bias: whether layers have a bias. Biases start at 0 unless ``initializer`` is
        `linear_uniform`, which PyTorch uses for both.
      initializer: of the kernels.
    """
    if min((d, arms, *hidden), default=0) < 1 or not hidden:
        raise InputError(
            f"a network of {d} features, {arms} arms and hidden layers {hidden}: every size must "
            "be at least 1, and there must be a hidden layer (a model without one is linear_ucb)."
        )
    shapes = [*zip(hidden, (d, *hidden[:-1]), strict=True), (hidden[-1],)]
    kernel_per_arm = [not shared or at == 0 for at in range(len(shapes))]

    def init(key: jax.Array) -> tuple[Layer, ...]:
        layers = []
        keys = jax.random.split(key, (len(shapes), 2))
        for (for_kernel, for_bias), shape, per_arm in zip(
            keys, shapes, kernel_per_arm, strict=True
        ):
            kernel = initializer(for_kernel, (arms, *shape) if per_arm else shape)
            lead, offset = () if shared else (arms,), None
            if bias and initializer is linear_uniform:
                offset = initializer(for_bias, (*lead, *shape))[..., 0]
            elif bias:
                offset = jnp.zeros((*lead, *shape[:-1]))
            layers.append(Layer(kernel, offset))
        return tuple(layers)

    per_arm = [(mark, not shared) if bias else (mark,) for mark in kernel_per_arm]
    return Network(d, arms, sum(per_arm, ()), init, _apply, _gradient, factored=True)


def _matvec(kernel: Array, x: Array) -> Array:
    # Accelerators would round float32 to bfloat16 or TF32 by default, and choose other arms.
    return jnp.matmul(kernel, x, precision=lax.Precision.HIGHEST)


def _linear(layer: Layer, x: Array) -> Array:
    out = _matvec(layer.kernel, x)
    return out if layer.bias is None else out + layer.bias


def _apply(view: tuple[Layer, ...], x: Float[Array, " d"]) -> Float[Array, ""]:
    for layer in view[:-1]:
        x = jax.nn.relu(_linear(layer, x))
    return _linear(view[-1], x)


def _gradient(view: tuple[Layer, ...], x: Float[Array, " d"]) -> tuple[Float[Array, ""], Gradient]:
    """Reward and gradient: [Outer(error, input), error] for every layer."""
    inputs, active = [x], []
    for layer in view[:-1]:
        x = _linear(layer, x)
        active.append(x > 0)
        inputs.append(jax.nn.relu(x))
        x = inputs[-1]
    gradient = [inputs[-1]] if view[-1].bias is None else [inputs[-1], jnp.ones(())]
    back = view[-1].kernel
    for at in reversed(range(len(view) - 1)):
        error = jnp.where(active[at], back, 0.0)
        own = [Outer(error, inputs[at])] + ([] if view[at].bias is None else [error])
        gradient = own + gradient
        if at:
            back = _matvec(view[at].kernel.T, error)
    return _linear(view[-1], inputs[-1]), gradient
