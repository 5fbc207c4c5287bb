"""The whole confidence matrix of a bandit from its pulls, for fewer pulls than weights.

    sigma^2 = g' Z^-1 g = (g'g - k' M k) / lambda,    k = G g,    M = (lambda I + G G')^-1

    g       gradient of an arm's reward with respect to its p weights
    G       gradients of the n pulls of the arm, as rows [n p]
    Z       lambda I + G' G, the confidence matrix [p p] (ARS eq 12); never written out
    M       the inverse of the pulls' regularised Gram matrix [n n], which stands for Z^-1
    k       inner products of g with the gradients of the pulls [n]
    lambda  ``regularization``

The widths are those of `confidence.full`, from numbers that grow with the rounds, not the weights.
The state is compiled and mapped as in `confidence`: ``jax.jit(dual(network, pulls=n).evaluate)``.

Where gradients are outer products an inner product of two is, layer by layer, (left . left')
(right . right'), so G is never written out either: a pull keeps out + in numbers a layer, not
out x in.

Both forms subtract nearly equal numbers when lambda is far below g'g; the error of sigma^2 in
float32 is some 1e-7 g'g / lambda in either.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.confidence import Confidence, Positive, check_positive
from jaxrag.functional.bandits.networks import Gradient, Network, Outer, Params, View, put, take
from jaxrag.types import InputError

_EXACT = lax.Precision.HIGHEST


class Dual(NamedTuple):
    """The pulls of every arm, c = a; or all pulls, c = 1, for a shared network.

    There is one row more than pulls that are kept: later pulls are written to it, and M, zero
    there, leaves it out.

    Attributes:
      rows: gradients of the pulls, leaf by leaf with axes [c n+1] in front; zeros in unused rows.
      arms: arm that each row played.
      inner: M, zero beyond the stored pulls.
      pulls: number of pulls; pulls beyond the first n are counted but not in Z.
    """

    rows: list[Any]
    arms: Int[Array, "c n+1"]
    inner: Float[Array, "c n+1 n+1"]
    pulls: Int[Array, " c"]


def dual(network: Network, *, pulls: int, regularization: Positive = 1.0) -> Confidence:
    """The whole of Z, as `confidence.full`, by the Gram matrix of the pulls (see above).

        M <- [[M + (M k)(M k)' / s, -M k / s], [-(M k)' / s, 1 / s]],    s = lambda + g'g - k' M k

    Args:
      network: network whose gradients the pulls give.
      pulls: n, the pulls of one arm (or of a shared network) that are kept. As many as there are
        rounds is always enough. Z of an arm that is pulled more often stays that of its first n
        pulls: its width is then an upper bound, because each pull makes a width smaller.
      regularization: lambda.
    """
    check_positive(regularization=regularization)
    if pulls < 1:
        raise InputError(f"{pulls} pulls: room for one at least; the number of rounds is enough.")
    count = network.arms if network.separate else 1

    def init(params: Params) -> Dual:
        def one(params: Params, x: Array) -> Gradient:
            return network.gradient(network.view(params, jnp.asarray(0)), x)[1]

        shapes = jax.eval_shape(one, params, jax.ShapeDtypeStruct((network.features,), jnp.float32))
        return Dual(
            jax.tree.map(lambda leaf: jnp.zeros((count, pulls + 1, *leaf.shape)), shapes),
            jnp.zeros((count, pulls + 1), jnp.int32),
            jnp.zeros((count, pulls + 1, pulls + 1)),
            jnp.zeros(count, jnp.int32),
        )

    def evaluate(belief: Dual, params: Params, x: Float[Array, " d"]) -> tuple[Array, Array]:
        def one(view: View, mine: _Pulls, arm: Array, x: Array) -> tuple[Array, Array]:
            value, gradient = network.gradient(view, x)
            return value, _rest(mine, gradient, own(arm))[0]

        mine = _Pulls(belief.rows, belief.arms, belief.inner)
        each = 0 if network.separate else None
        mine = mine if network.separate else jax.tree.map(lambda leaf: leaf[0], mine)
        axes = (network.in_axes(params), each, 0, None)
        mean, rest = jax.vmap(one, axes)(params, mine, jnp.arange(network.arms), x)
        return mean, rest / regularization

    def own(arm: Int[Array, ""]) -> list[Array | None]:
        """For every leaf, the arm whose pulls alone count; None where all do."""
        return [None if network.separate or not mark else arm for mark in network.per_arm]

    def update(belief: Dual, params: Params, x: Float[Array, " d"], arm: Int[Array, ""]) -> Dual:
        gradient = network.arm_gradient(params, x, arm)
        at = jnp.asarray(arm if network.separate else 0, jnp.int32)
        mine = _Pulls(belief.rows, belief.arms, belief.inner)
        mine = jax.tree.map(lambda leaf: take(leaf, at), mine)
        rest, weights = _rest(mine, gradient, own(arm))
        # `rest` is a number. Asking whether it is one makes XLA read the rows before it writes one
        # of them; otherwise it copies all of them to be safe.
        count = take(belief.pulls, at) + jnp.isnan(rest)
        row = jnp.minimum(count, pulls)
        edge = put(weights, row, take(weights, row) - 1.0)
        inner = mine.inner + jnp.outer(edge, edge / (regularization + rest))

        def written(rows: Array, leaf: Array) -> Array:
            start = (at, row, *[jnp.zeros((), jnp.int32)] * leaf.ndim)
            return lax.dynamic_update_slice(rows, leaf[None, None].astype(rows.dtype), start)

        return Dual(
            jax.tree.map(written, belief.rows, gradient),
            written(belief.arms, jnp.asarray(arm)),
            put(belief.inner, at, jnp.where(row < pulls, inner, mine.inner)),
            put(belief.pulls, at, count + 1),
        )

    def update_batch(
        belief: Dual, params: Params, xs: Float[Array, "b d"], arms: Int[Array, " b"]
    ) -> Dual:
        step = lambda belief, seen: (update(belief, params, *seen), None)  # noqa: E731
        return lax.scan(step, belief, (xs, arms))[0]

    return Confidence(init, evaluate, update, update_batch)


class _Pulls(NamedTuple):
    """The pulls that one arm's width depends on: `Dual` without its first axis."""

    rows: list[Any]
    arms: Int[Array, " n"]
    inner: Float[Array, "n n"]


def _rest(
    mine: _Pulls, gradient: Gradient, own: list[Array | None]
) -> tuple[Float[Array, ""], Float[Array, " n"]]:
    """lambda sigma^2, and M k."""
    products = [
        _products(rows, leaf, mine.arms, arm)
        for rows, leaf, arm in zip(mine.rows, gradient, own, strict=True)
    ]
    k = sum(products[1:], products[0])
    weights = jnp.matmul(mine.inner, k, precision=_EXACT)
    size = sum(map(_squared_norm, gradient), jnp.zeros(()))
    return jnp.maximum(size - jnp.dot(k, weights, precision=_EXACT), 0.0), weights


def _products(
    rows: Array | Outer, leaf: Array | Outer, arms: Int[Array, " n"], arm: Array | None
) -> Float[Array, " n"]:
    """Inner products of a leaf with every pull's; given ``arm``, 0 with those of other arms."""
    if isinstance(rows, Outer) and isinstance(leaf, Outer):
        products = _flat(rows.left, leaf.left) * _flat(rows.right, leaf.right)
    else:
        products = _flat(rows, leaf)
    return products if arm is None else jnp.where(arms == arm, products, 0.0)


def _flat(rows: Any, leaf: Any) -> Float[Array, " n"]:
    return jnp.matmul(rows.reshape(len(rows), -1), leaf.ravel(), precision=_EXACT)


def _squared_norm(leaf: Array | Outer) -> Float[Array, ""]:
    if isinstance(leaf, Outer):
        return jnp.sum(jnp.square(leaf.left)) * jnp.sum(jnp.square(leaf.right))
    return jnp.sum(jnp.square(leaf))
