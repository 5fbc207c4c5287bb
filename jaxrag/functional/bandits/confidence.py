"""Confidence matrices of neural bandits: how uncertain the reward of each arm is (ARS eqs 10, 12).

    sigma_a^2(x) = g_a' Z_a^-1 g_a,    Z_a = lambda I + sum of g_t g_t' over the rounds t of a

    x         context of a question [d]
    g_a       gradient of arm a's reward f_a(x; theta_a) with respect to its p weights theta_a
    Z_a       confidence matrix [p p]; networks of their own have one each, a shared network has one
    lambda    ``regularization``
    sigma_a^2 squared width [a]

Three forms of Z, from the cheapest to the exact ones:

    `diagonal`              the diagonal of Z, p numbers
    `full`                  all of Z and its inverse, p^2 numbers
    `confidence_dual.dual`  all of Z by the n gradients that were played, n^2 numbers: exact at the
                            paper's sizes, where p^2 is too large

All are pure functions over a state, to be compiled, and mapped over contexts, seeds or settings:

    matrix = diagonal(network, regularization=1.0)
    state = matrix.init(params)
    mean, squared = jax.jit(matrix.evaluate)(state, params, x)  # [d] -> [a], [a]
    mean, squared = jax.vmap(matrix.evaluate, (None, None, 0))(state, params, xs)  # [b d] -> [b a]
    state = jax.jit(matrix.update)(state, params, x, arm)
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
"""State of a confidence matrix: a pytree of arrays."""

Positive = float | Float[Array, ""]

Choose = Callable[[Array, Array, int], Array]

_EXACT = lax.Precision.HIGHEST  # float32 on accelerators too: a rounded inverse chooses other arms
_BLOCK = 8  # gradients added at once: reading the inverse then takes as long as computing with it
_DRIFT = 1e-2  # largest |Z Z^-1 g - g| / |g| after an update before the inverse is recomputed


class Confidence(NamedTuple):
    """A confidence matrix as pure functions over a state.

    Attributes:
      init: parameters -> state, Z = lambda I.
      evaluate: state, parameters, context [d] -> mean [a] and squared width [a] of all arms.
      update: state, parameters, context, arm -> state with the arm's g g' added.
      update_batch: state, parameters, contexts [b d], arms [b] -> state; equals ``update`` row by
        row, but may be faster.
      rounds: state, parameters, contexts [b d], choose -> state and arms [b]; equals ``evaluate``,
        choose and ``update`` row by row, but faster. choose: mean, squared width, row -> arm. None
        if there is no such implementation.
    """

    init: Callable[[Params], Belief]
    evaluate: Callable[[Belief, Params, Array], tuple[Array, Array]]
    update: Callable[[Belief, Params, Array, Array], Belief]
    update_batch: Callable[[Belief, Params, Array, Array], Belief]
    rounds: Callable[[Belief, Params, Array, Choose], tuple[Belief, Array]] | None = None


def check_positive(**numbers: Positive) -> None:
    """Raises `InputError` for numbers that are not above 0; traced ones (`jax.vmap`) pass."""
    for name, number in numbers.items():
        if not isinstance(number, Tracer) and not np.all(np.asarray(number) > 0):
            why = " (Z starts at that times the identity)" if name == "regularization" else ""
            raise InputError(f"{name} is {number}: it must be above 0{why}.")


def zero_width(network: Network) -> Confidence:
    """No confidence matrix, all widths 0: for policies with another kind of exploration."""

    def evaluate(belief: Belief, params: Params, x: Float[Array, " d"]) -> tuple[Array, Array]:
        mean = network.rewards(params, x)
        return mean, jnp.zeros_like(mean)

    unchanged = lambda belief, params, x, arm: belief  # noqa: E731
    return Confidence(lambda params: (), evaluate, unchanged, unchanged)


def diagonal(network: Network, *, regularization: Positive = 1.0) -> Confidence:
    """The diagonal of Z, kept as the inverse of its entries, in the shape of the parameters.

        sigma^2 = sum_j g_j^2 / Z_jj,    1 / Z_jj <- (1 / Z_jj) / (1 + g_j^2 / Z_jj)

    g_j is the j-th component of the gradient, Z_jj that of the diagonal, at first lambda
    (``regularization``). A layer's gradient is the outer product l r' of its backpropagated error l
    and its input r, and its share of the sum l^2 . ((1 / Z) r^2): 1/Z is read once, and no gradient
    is written out.
    """
    check_positive(regularization=regularization)

    def init(params: Params) -> list[Array]:
        return [jnp.full_like(leaf, 1.0) / regularization for leaf in jax.tree.leaves(params)]

    def evaluate(
        inverse: list[Array], params: Params, x: Float[Array, " d"]
    ) -> tuple[Array, Array]:
        def one(view: View, inverse: list[Array], x: Array) -> tuple[Array, Array]:
            value, gradient = network.gradient(view, x)
            products = map(_product, inverse, gradient)
            return value, sum(map(_share, inverse, gradient, products), jnp.zeros(()))

        axes = (network.in_axes(params), network.in_axes(inverse), None)
        return jax.vmap(one, axes, axis_size=network.arms)(params, inverse, x)

    def update(
        inverse: list[Array], params: Params, x: Float[Array, " d"], arm: Int[Array, ""]
    ) -> list[Array]:
        gradient = network.arm_gradient(params, x, arm)
        return [
            put(old, arm, _updated(take(old, arm), _square(leaf)))
            if per_arm
            else _updated(old, _square(leaf))
            for old, leaf, per_arm in zip(inverse, gradient, network.per_arm, strict=True)
        ]

    def update_batch(
        inverse: list[Array], params: Params, xs: Float[Array, "b d"], arms: Int[Array, " b"]
    ) -> list[Array]:
        gradients = jax.vmap(network.arm_gradient, (None, 0, 0))(params, xs, arms)
        chosen = jax.nn.one_hot(arms, network.arms)
        return [
            _updated(old, _sum_of_squares(leaf, chosen if per_arm else None))
            for old, leaf, per_arm in zip(inverse, gradients, network.per_arm, strict=True)
        ]

    def rounds(
        inverse: list[Array], params: Params, xs: Float[Array, "b d"], choose: Choose
    ) -> tuple[list[Array], Int[Array, " b"]]:
        """Evaluates all rows at once; after each round, the remaining rows of the played arm again.

        The weights and 1/Z are then read once for all rows, as matrix products, and 1/Z of one
        arm once a round. The loop is unrolled, since each round has one remaining row less: the
        size of the program grows with the number of rows, so call it with few, such as eight.
        """

        def one(view: View, inverse: list[Array], x: Array) -> tuple[Array, Gradient, list[Any]]:
            value, gradient = network.gradient(view, x)
            return value, gradient, list(map(_product, inverse, gradient))

        over = jax.vmap(one, (None, None, 0), (0, 0, -1))  # then arms in front: [a b ..], [a .. b]
        over = jax.vmap(over, (network.in_axes(params), network.in_axes(inverse), None))
        mean, gradients, products = over(params, inverse, xs)

        def play(t: int, inverse: list[Array], products: Any) -> tuple[Array, list[Array], Any]:
            current = jax.tree.map(lambda leaf: leaf[:, t], gradients)
            at_t = jax.tree.map(lambda leaf: leaf[..., 0], products)
            squared = sum(map(jax.vmap(_share), inverse, current, at_t), jnp.zeros(()))
            arm = choose(mean[:, t], squared, t)
            played = jax.tree.map(lambda leaf: take(leaf, arm), current)
            own = [_updated(take(old, arm), _square(leaf)) for old, leaf in zip(inverse, played)]  # noqa: B905
            rows = jax.tree.map(lambda leaf: take(leaf, arm)[t + 1 :], gradients)
            again = list(map(jax.vmap(_product, (None, 0), -1), own, rows))
            inverse = [put(old, arm, new) for old, new in zip(inverse, own)]  # noqa: B905
            products = jax.tree.map(lambda old, new: put(old[..., 1:], arm, new), products, again)
            return arm, inverse, products

        arms = []
        for t in range(len(xs)):
            arm, inverse, products = play(t, inverse, products)
            arms.append(arm)
        return inverse, jnp.stack(arms)

    fast = network.factored and network.separate
    return Confidence(init, evaluate, update, update_batch, rounds if fast else None)


def _product(inverse: Array, leaf: Array | Outer) -> Array | None:
    """1/Z times right^2, the part of a layer's share of sigma^2 that reads all of 1/Z."""
    if isinstance(leaf, Outer):
        return jnp.matmul(inverse, jnp.square(leaf.right), precision=_EXACT)
    return None


def _share(inverse: Array, leaf: Array | Outer, product: Array | None) -> Float[Array, ""]:
    """Sum of g^2 / Z over a leaf."""
    if isinstance(leaf, Outer) and product is not None:
        return jnp.dot(jnp.square(leaf.left), product, precision=_EXACT)
    return jnp.sum(inverse * _square(leaf))


def _square(leaf: Array | Outer) -> Array:
    if isinstance(leaf, Outer):
        return jnp.square(leaf.left)[:, None] * jnp.square(leaf.right)
    return jnp.square(leaf)


def _sum_of_squares(leaf: Array | Outer, chosen: Float[Array, "b a"] | None) -> Array:
    """Squares summed over a batch; with ``chosen``, for each arm over the rows that played it."""
    left, right = (leaf.left, leaf.right) if isinstance(leaf, Outer) else (leaf, None)
    left = jnp.square(left)
    if chosen is not None:
        left = jnp.expand_dims(chosen, tuple(range(2, left.ndim + 1))) * left[:, None]
    if right is None:
        return jnp.sum(left, axis=0)
    return jnp.tensordot(left, jnp.square(right), axes=((0,), (0,)), precision=_EXACT)


def _updated(inverse: Array, added: Array) -> Array:
    """1 / (Z + added) from 1 / Z: never negative, and with the relative error of a sum."""
    return inverse / (1.0 + inverse * added)


class Full(NamedTuple):
    """Z and its inverse for each separate network [a p p], or for the shared one [1 p p].

    ``renewed`` counts how often an inverse was recomputed from Z because of drift.
    """

    inverse: Float[Array, "c p p"]
    z: Float[Array, "c p p"]
    renewed: Int[Array, ""]


def full(network: Network, *, regularization: Positive = 1.0) -> Confidence:
    """All of Z (eqs 10 and 12 as printed), its inverse updated by Sherman-Morrison.

        sigma^2 = g' Z^-1 g,    Z^-1 <- Z^-1 - Z^-1 g g' Z^-1 / (1 + g' Z^-1 g)

    g is the gradient of an arm's reward [p], Z [p p] is lambda I (``regularization``) at first. A
    round reads the inverses of all arms once (a p^2 numbers). A batch is added by Woodbury's
    identity in blocks of eight gradients of one arm. As a float32 inverse drifts away from Z, Z is
    kept too, and after each update Z (Z^-1 g) is compared with g: beyond 1 % the inverse is
    recomputed by Cholesky.
    """
    check_positive(regularization=regularization)
    count = network.arms if network.separate else 1

    def init(params: Params) -> Full:
        size = sum(leaf.size for leaf in jax.tree.leaves(params)) // count
        identity = jnp.broadcast_to(jnp.eye(size), (count, size, size))
        zero = jnp.zeros((), jnp.int32)
        return Full(identity / regularization, identity * regularization, zero)

    def vector(params: Params, x: Array, arm: Array) -> Float[Array, " p"]:
        gradient = network.gradient(network.view(params, arm), x)[1]
        return _written_out(network, params, gradient, arm)

    def evaluate(belief: Full, params: Params, x: Float[Array, " d"]) -> tuple[Array, Array]:
        def one(view: View, arm: Array, x: Array) -> tuple[Array, Array]:
            value, gradient = network.gradient(view, x)
            return value, _written_out(network, params, gradient, arm)

        axes = (network.in_axes(params), 0, None)
        mean, g = jax.vmap(one, axes)(params, jnp.arange(network.arms), x)
        if network.separate:
            product = jnp.einsum("apq,aq->ap", belief.inverse, g, precision=_EXACT)
        else:
            product = jnp.einsum("pq,aq->ap", belief.inverse[0], g, precision=_EXACT)
        return mean, jnp.maximum(jnp.sum(g * product, axis=1), 0.0)

    def update(belief: Full, params: Params, x: Float[Array, " d"], arm: Int[Array, ""]) -> Full:
        at = arm if network.separate else 0
        return add_gradients(belief, at, vector(params, x, arm)[None])

    def update_batch(
        belief: Full, params: Params, xs: Float[Array, "b d"], arms: Int[Array, " b"]
    ) -> Full:
        order = jnp.argsort(arms if network.separate else jnp.zeros_like(arms))
        arms, xs = arms[order], xs[order]
        g = jax.vmap(vector, (None, 0, 0))(params, xs, arms)
        at = arms if network.separate else jnp.zeros_like(arms)
        at = jnp.pad(at, (0, _BLOCK), constant_values=-1)
        g = jnp.pad(g, ((0, _BLOCK), (0, 0)))

        def block(carry: tuple[Array, Full]) -> tuple[Array, Full]:
            first, belief = carry
            same = lax.dynamic_slice_in_dim(at, first, _BLOCK) == at[first]
            rows = lax.dynamic_slice_in_dim(g, first, _BLOCK) * same[:, None]
            return first + jnp.sum(same), add_gradients(belief, at[first], rows)

        start = (jnp.zeros((), at.dtype), belief)
        return lax.while_loop(lambda carry: carry[0] < len(arms), block, start)[1]

    return Confidence(init, evaluate, update, update_batch)


def add_gradients(belief: Full, at: int | Int[Array, ""], rows: Float[Array, "r p"]) -> Full:
    """``belief`` with G' G added to the Z at ``at``; G is ``rows``, rows of zeros add nothing.

    Z^-1 - Z^-1 G' (I + G Z^-1 G')^-1 G Z^-1, Woodbury's identity; Sherman-Morrison's for one row.
    """
    old = belief.inverse[at]
    product = jnp.matmul(rows, old, precision=_EXACT)
    inner = jnp.eye(len(rows)) + jnp.matmul(product, rows.T, precision=_EXACT)
    if len(rows) == 1:
        inverse = old - product.T * (product / inner)
    else:
        factor = jax.scipy.linalg.cho_factor(inner, lower=True)
        half = jax.scipy.linalg.solve_triangular(factor[0], product, lower=True)
        inverse = old - jnp.matmul(half.T, half, precision=_EXACT)
    z = belief.z[at] + jnp.matmul(rows.T, rows, precision=_EXACT)
    back = jnp.matmul(jnp.matmul(rows[:1], inverse, precision=_EXACT), z, precision=_EXACT)
    drift = jnp.linalg.norm(back - rows[:1])
    renew = ~(drift <= _DRIFT * jnp.linalg.norm(rows[:1]))  # also where drift is NaN
    inverse = lax.cond(renew, lambda: inverse_of(z), lambda: inverse)
    return Full(
        belief.inverse.at[at].set(inverse),
        belief.z.at[at].set(z),
        belief.renewed + renew.astype(jnp.int32),
    )


def inverse_of(z: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """The inverse of a positive definite matrix, by Cholesky; exactly symmetric."""
    half = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(z), jnp.eye(len(z)), lower=True)
    return jnp.matmul(half.T, half, precision=_EXACT)


def _written_out(network: Network, params: Params, gradient: Gradient, arm: Array) -> Array:
    """A gradient as one vector: over the arm's view, or over all weights if some are shared."""
    leaves = [
        jnp.outer(leaf.left, leaf.right) if isinstance(leaf, Outer) else leaf for leaf in gradient
    ]
    if not network.separate:
        leaves = [
            jnp.zeros_like(whole).at[arm].set(leaf) if per_arm else leaf
            for whole, leaf, per_arm in zip(
                jax.tree.leaves(params), leaves, network.per_arm, strict=True
            )
        ]
    return jnp.concatenate([leaf.ravel() for leaf in leaves])
