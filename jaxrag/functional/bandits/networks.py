"""The networks of a neural bandit: rewards of arms, and gradients as outer products.

One network an arm (ARS), or one shared network into whose input the context is written at the
arm's block (Zhou et al. 2020). A block-encoded input only ever meets its own block of the first
kernel, so sharing means: a first kernel an arm, everything above it once. Both are parameters of
which some leaves have a first axis for arms; what one arm sees of them is its view.

A multilayer perceptron's gradient for one input is, layer by layer, the outer product of what
comes back and what went in. Left as two vectors (`Outer`) it costs a forward pass, and what a
confidence matrix needs of it (sums of squares, inner products) never needs it written out.
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
"""Weights that one arm's reward depends on."""


class Outer(NamedTuple):
    """The matrix of ``left`` [m] times ``right`` [n], not written out."""

    left: Float[Array, "*b m"]
    right: Float[Array, "*b n"]


Gradient = list[Any]
"""Of a view, leaf by leaf in the order of `jax.tree.leaves`: an array, or an `Outer`."""


class Layer(NamedTuple):
    """One linear map: kernel [out in] (the last one's [in]), bias [out] or None."""

    kernel: Array
    bias: Array | None


class Network(NamedTuple):
    """A function from contexts to the rewards of ``arms`` arms.

    Attributes:
      features: of a context.
      arms: how many.
      armed: which leaves of the parameters have a first axis for arms, in the order of
        `jax.tree.leaves`; the others are shared.
      init: key -> parameters.
      apply: view, context [d] -> the arm's reward, a scalar.
      gradient: view, context [d] -> that reward and its gradient.
      factored: whether ``gradient`` costs about as little as ``apply``.
    """

    features: int
    arms: int
    armed: tuple[bool, ...]
    init: Callable[[jax.Array], Params]
    apply: Callable[[View, Array], Array]
    gradient: Callable[[View, Array], tuple[Array, Gradient]]
    factored: bool

    @property
    def separate(self) -> bool:
        """Whether no leaf is shared: then every arm has a confidence matrix of its own."""
        return all(self.armed)

    def axes(self, tree: PyTree) -> PyTree:
        """``in_axes`` of `jax.vmap` over arms, for a tree of the parameters' structure."""
        marks = [0 if armed else None for armed in self.armed]
        return jax.tree.unflatten(jax.tree.structure(tree), marks)

    def rewards(self, params: Params, x: Float[Array, " d"]) -> Float[Array, " a"]:
        """f of every arm."""
        over = jax.vmap(self.apply, (self.axes(params), None), axis_size=self.arms)
        return over(params, x)

    def view(self, params: Params, arm: Int[Array, ""]) -> View:
        """What one arm sees of the parameters."""
        leaves, structure = jax.tree.flatten(params)
        seen = [
            take(leaf, arm) if own else leaf for leaf, own in zip(leaves, self.armed, strict=True)
        ]
        return jax.tree.unflatten(structure, seen)

    def played(self, params: Params, x: Float[Array, " d"], arm: Int[Array, ""]) -> Gradient:
        """The gradient of one arm's reward.

        Where gradients are cheap those of all arms are taken: in one program with `select` XLA
        finds that it has them, whereas one arm's weights would be read a second time.
        """
        if not self.factored:
            return self.gradient(self.view(params, arm), x)[1]
        over = jax.vmap(self.gradient, (self.axes(params), None), axis_size=self.arms)
        return jax.tree.map(lambda leaf: take(leaf, arm), over(params, x)[1])


def take(leaf: Array, arm: int | Int[Array, ""]) -> Array:
    """An arm's part of an array; without the bounds check of `leaf[arm]`, which costs a copy."""
    return lax.dynamic_index_in_dim(leaf, arm, keepdims=False)


def put(leaf: Array, arm: int | Int[Array, ""], part: Array) -> Array:
    """The array with an arm's part replaced; in place where it is not used again."""
    return lax.dynamic_update_index_in_dim(leaf, part, arm, 0)


def general(network: Network) -> Network:
    """The same network with gradients by `jax.grad`, written out: for any ``apply``."""

    def gradient(view: View, x: Array) -> tuple[Array, Gradient]:
        value, slopes = jax.value_and_grad(network.apply)(view, x)
        return value, jax.tree.leaves(slopes)

    return network._replace(gradient=gradient, factored=False)


Initializer = Callable[[jax.Array, tuple[int, ...]], Array]
"""key, shape [... in] -> weights; also of biases, by the shape of their layer's kernel."""


def he_normal(key: jax.Array, shape: tuple[int, ...]) -> Array:
    """Normal with variance 2 / inputs, which keeps a ReLU network's scale."""
    return jax.random.normal(key, shape) * jnp.sqrt(2.0 / shape[-1])


def linear_uniform(key: jax.Array, shape: tuple[int, ...]) -> Array:
    """Uniform within 1 / sqrt(inputs): what PyTorch's linear layers start from."""
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
    """A ReLU network of any depth from a context of d features to one reward.

    Args:
      d: features of a context.
      arms: how many arms.
      hidden: units of the hidden layers, from the input up.
      shared: one network with block-encoded arms, instead of one network an arm.
      bias: whether layers add a bias. A bias starts at zero unless ``initializer`` is
        `linear_uniform`, which PyTorch uses for both.
      initializer: of the kernels.

    Raises:
      InputError: a size below 1, or no hidden layer (that is `linear_ucb`).
    """
    if min((d, arms, *hidden), default=0) < 1 or not hidden:
        raise InputError(
            f"a network of {d} features, {arms} arms and hidden layers {hidden}: every size must "
            "be at least 1, and there must be a hidden layer (a model without one is linear_ucb)."
        )
    shapes = [*zip(hidden, (d, *hidden[:-1]), strict=True), (hidden[-1],)]
    own = [not shared or at == 0 for at in range(len(shapes))]

    def init(key: jax.Array) -> tuple[Layer, ...]:
        keys = jax.random.split(key, (len(shapes), 2))
        return tuple(
            _layer(key, ((arms,) if armed else ()), shape, bias, initializer, not shared)
            for key, shape, armed in zip(keys, shapes, own, strict=True)
        )

    armed = tuple(
        mark for at, mark in enumerate(own) for mark in ((mark, not shared) if bias else (mark,))
    )
    return Network(d, arms, armed, init, _apply, _gradient, factored=True)


def _layer(
    keys: Array,
    lead: tuple[int, ...],
    shape: tuple[int, ...],
    bias: bool,
    initializer: Initializer,
    separate: bool,
) -> Layer:
    kernel = initializer(keys[0], (*lead, *shape))
    if not bias:
        return Layer(kernel, None)
    flat = (*(lead if separate else ()), *shape[:-1])
    if initializer is linear_uniform:
        return Layer(kernel, initializer(keys[1], (*flat, shape[-1]))[..., 0])
    return Layer(kernel, jnp.zeros(flat))


def _matvec(kernel: Array, x: Array) -> Array:
    # Accelerators would round float32 to bfloat16 or TF32 by default, and play other arms.
    return jnp.matmul(kernel, x, precision=jax.lax.Precision.HIGHEST)


def _linear(layer: Layer, x: Array) -> Array:
    out = _matvec(layer.kernel, x)
    return out if layer.bias is None else out + layer.bias


def _apply(view: tuple[Layer, ...], x: Float[Array, " d"]) -> Float[Array, ""]:
    for layer in view[:-1]:
        x = jax.nn.relu(_linear(layer, x))
    return _linear(view[-1], x)


def _gradient(view: tuple[Layer, ...], x: Float[Array, " d"]) -> tuple[Float[Array, ""], Gradient]:
    """The reward, and its gradient: [delta_l (outer) input_l, delta_l] for every layer."""
    inputs, active = [x], []
    for layer in view[:-1]:
        x = _linear(layer, x)
        active.append(x > 0)
        inputs.append(jax.nn.relu(x))
        x = inputs[-1]
    gradient = [inputs[-1]] if view[-1].bias is None else [inputs[-1], jnp.ones(())]
    back = view[-1].kernel
    for at in reversed(range(len(view) - 1)):
        left = jnp.where(active[at], back, 0.0)
        here = [Outer(left, inputs[at])] + ([] if view[at].bias is None else [left])
        gradient = here + gradient
        if at:
            back = _matvec(view[at].kernel.T, left)
    return _linear(view[-1], inputs[-1]), gradient
