"""How sure a neural bandit is of each arm: the width sigma^2 = g' Z^-1 g (ARS eq 10).

g is the gradient of an arm's reward by its weights, Z = lambda I + the sum of g g' over the rounds
that played the arm (eq 12). Separate networks have a Z each, a shared one has one Z. Forms:

- `diagonal`: only Z's diagonal, as large as the weights; the inverse of its entries is kept, so
  that a round reads one number a weight.
- all of Z: `confidence_full.full` keeps its inverse, p x p, and `confidence_dual.dual` what is
  needed of it while pulls are fewer than weights.

All are functions over a state, and take gradients as `bandit_networks` gives them, written out or
as outer products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.networks import Gradient, Network, Outer, Params, View, put, take
from jaxrag.types import InputError

Belief = Any
"""The state of a confidence matrix: a pytree of arrays."""

Positive = float | Float[Array, ""]

Choose = Callable[[Array, Array, Array], Array]

_EXACT = lax.Precision.HIGHEST
"""Full float32 on accelerators, too: a rounded inverse would play other arms."""


class Confidence(NamedTuple):
    """A confidence matrix as pure functions over a state.

    Attributes:
      init: parameters -> state, Z = lambda I.
      look: state, parameters, context [d] -> mean [a] and squared width [a] of every arm.
      update: state, parameters, context, arm -> state with the arm's g g' added.
      update_batch: state, parameters, contexts [b d], arms [b] -> state; the same as ``update``
        row by row, faster where that is possible.
      rounds: state, parameters, contexts [b d], choose -> state and arms [b]: ``look``, choose and
        ``update`` row after row, choose being (mean, squared width, row) -> arm. Or None.
    """

    init: Callable[[Params], Belief]
    look: Callable[[Belief, Params, Array], tuple[Array, Array]]
    update: Callable[[Belief, Params, Array, Array], Belief]
    update_batch: Callable[[Belief, Params, Array, Array], Belief]
    rounds: Callable[[Belief, Params, Array, Choose], tuple[Belief, Array]] | None = None


def check_positive(**numbers: Positive) -> None:
    """Refuses what must be above 0; what is traced (under `jax.vmap`) is the caller's to check."""
    for name, number in numbers.items():
        if not isinstance(number, Tracer) and not np.all(np.asarray(number) > 0):
            why = " (Z starts at that times the identity)" if name == "regularization" else ""
            raise InputError(f"{name} is {number}: it must be above 0{why}.")


def scaled(gradient: Gradient, scale: Positive) -> Gradient:
    """The gradient times ``scale`` (Zhou et al. divide by the square root of the width)."""
    if isinstance(scale, float | int) and scale == 1:
        return gradient
    times = lambda leaf: (  # noqa: E731
        Outer(leaf.left * scale, leaf.right) if isinstance(leaf, Outer) else leaf * scale
    )
    return [times(leaf) for leaf in gradient]


def ignorant(network: Network) -> Confidence:
    """No confidence matrix: widths are 0, for policies that explore otherwise."""

    def look(belief: Belief, params: Params, x: Float[Array, " d"]) -> tuple[Array, Array]:
        mean = network.rewards(params, x)
        return mean, jnp.zeros_like(mean)

    keep = lambda belief, params, x, arm: belief  # noqa: E731
    return Confidence(lambda params: (), look, keep, keep)


def diagonal(
    network: Network, *, regularization: Positive = 1.0, scale: Positive = 1.0
) -> Confidence:
    """The diagonal of Z, kept as one over its entries, in the shape of the parameters.

    With gradients as outer products a layer's share of sigma^2 is left^2 . (1/Z right^2): 1/Z is
    read once and no gradient is written out.

    Args:
      network: whose gradients they are.
      regularization: lambda.
      scale: of the gradients; 1 / sqrt(width) in Zhou et al.
    """
    check_positive(regularization=regularization, scale=scale)

    def init(params: Params) -> list[Array]:
        return [jnp.full_like(leaf, 1.0) / regularization for leaf in jax.tree.leaves(params)]

    def look(inverse: list[Array], params: Params, x: Float[Array, " d"]) -> tuple[Array, Array]:
        def one(view: View, inverse: list[Array], x: Array) -> tuple[Array, Array]:
            value, gradient = network.gradient(view, x)
            through = map(_through, inverse, gradient)
            return value, sum(map(_share, inverse, gradient, through), jnp.zeros(()))

        axes = (network.axes(params), network.axes(inverse), None)
        mean, squared = jax.vmap(one, axes, axis_size=network.arms)(params, inverse, x)
        return mean, squared * scale**2

    def update(
        inverse: list[Array], params: Params, x: Float[Array, " d"], arm: Int[Array, ""]
    ) -> list[Array]:
        gradient = scaled(network.played(params, x, arm), scale)
        return [
            put(was, arm, _raised(take(was, arm), _square(leaf)))
            if own
            else _raised(was, _square(leaf))
            for was, leaf, own in zip(inverse, gradient, network.armed, strict=True)
        ]

    def update_batch(
        inverse: list[Array], params: Params, xs: Float[Array, "b d"], arms: Int[Array, " b"]
    ) -> list[Array]:
        gradients = jax.vmap(network.played, (None, 0, 0))(params, xs, arms)
        chosen = jax.nn.one_hot(arms, network.arms)
        return [
            _raised(was, _summed(leaf, chosen if own else None))
            for was, leaf, own in zip(inverse, scaled(gradients, scale), network.armed, strict=True)
        ]

    def rounds(
        inverse: list[Array], params: Params, xs: Float[Array, "b d"], choose: Choose
    ) -> tuple[list[Array], Int[Array, " b"]]:
        """All rows at once first; after each round, again for the arm that it played.

        The weights and 1/Z are then read once for all rows, as matrix products, and 1/Z of one
        arm once a round.
        """

        def one(view: View, inverse: list[Array], x: Array) -> tuple[Array, Gradient, list[Any]]:
            value, gradient = network.gradient(view, x)
            return value, gradient, list(map(_through, inverse, gradient))

        over = jax.vmap(one, (None, None, 0), (0, 0, -1))  # then arms in front: [a b ..], [a .. b]
        over = jax.vmap(over, (network.axes(params), network.axes(inverse), None))
        mean, gradients, through = over(params, inverse, xs)

        def step(carry: tuple[Any, Any], t: Array) -> tuple[tuple[Any, Any], Array]:
            inverse, through = carry
            now = jax.tree.map(lambda leaf: leaf[:, t], gradients)
            found = jax.tree.map(lambda leaf: leaf[..., t], through)
            squared = sum(map(jax.vmap(_share), inverse, now, found), jnp.zeros(()))
            arm = choose(mean[:, t], squared * scale**2, t)
            played = scaled(jax.tree.map(lambda leaf: take(leaf, arm), now), scale)
            mine = [_raised(take(was, arm), _square(leaf)) for was, leaf in zip(inverse, played)]  # noqa: B905
            rows = jax.tree.map(lambda leaf: take(leaf, arm), gradients)
            again = list(map(jax.vmap(_through, (None, 0), -1), mine, rows))
            inverse = [put(was, arm, new) for was, new in zip(inverse, mine)]  # noqa: B905
            through = jax.tree.map(lambda was, new: put(was, arm, new), through, again)
            return (inverse, through), arm

        (inverse, _), arms = lax.scan(step, (inverse, through), jnp.arange(len(xs)))
        return inverse, arms

    quick = network.factored and network.separate
    return Confidence(init, look, update, update_batch, rounds if quick else None)


def _through(inverse: Array, leaf: Array | Outer) -> Array | None:
    """1/Z times right^2: what a layer's share of sigma^2 takes from all of its 1/Z."""
    if isinstance(leaf, Outer):
        return jnp.matmul(inverse, jnp.square(leaf.right), precision=_EXACT)
    return None


def _share(inverse: Array, leaf: Array | Outer, through: Array | None) -> Float[Array, ""]:
    """Sum of g^2 / Z over a leaf."""
    if isinstance(leaf, Outer) and through is not None:
        return jnp.dot(jnp.square(leaf.left), through, precision=_EXACT)
    return jnp.sum(inverse * _square(leaf))


def _square(leaf: Array | Outer) -> Array:
    if isinstance(leaf, Outer):
        return jnp.square(leaf.left)[:, None] * jnp.square(leaf.right)
    return jnp.square(leaf)


def _summed(leaf: Array | Outer, chosen: Float[Array, "b a"] | None) -> Array:
    """Squares summed over a batch, for every arm those of the rows that played it."""
    left, right = (leaf.left, leaf.right) if isinstance(leaf, Outer) else (leaf, None)
    left = jnp.square(left)
    if chosen is not None:
        left = jnp.expand_dims(chosen, tuple(range(2, left.ndim + 1))) * left[:, None]
    if right is None:
        return jnp.sum(left, axis=0)
    return jnp.tensordot(left, jnp.square(right), axes=((0,), (0,)), precision=_EXACT)


def _raised(inverse: Array, added: Array) -> Array:
    """1 / (Z + added) from 1 / Z: never negative, and relative to 1 / Z as exact as a sum is."""
    return inverse / (1.0 + inverse * added)
