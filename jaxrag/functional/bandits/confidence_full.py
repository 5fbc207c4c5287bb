"""All of a bandit's confidence matrix: the inverse of Z, kept by Sherman-Morrison.

A round costs one pass over the inverses of all arms (a p^2 numbers) and a few over that of the
played arm; a batch of rounds is added at once by Woodbury's identity, in blocks of eight gradients
of one arm, so that a batch reads an inverse once in eight rounds.

Updates of an inverse in float32 drift away from it. So Z itself is kept beside it, and after every
update Z (Z^-1 g) is compared with g, one pass; when they differ by more than ``drift`` of |g|, the
inverse is made anew from Z by Cholesky.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.confidence import Confidence, Positive, check_positive, scaled
from jaxrag.functional.bandits.networks import Gradient, Network, Outer, Params, View
from jaxrag.types import InputError

_EXACT = lax.Precision.HIGHEST
_BLOCK = 8
"""Gradients added at once: reading the inverse and computing with it then take about as long."""


class Full(NamedTuple):
    """Z and its inverse, one a separate network: [a p p], or [1 p p] for a shared one.

    Attributes:
      inverse: of Z.
      z: Z itself, or None where drift is not looked after.
      renewed: how often an inverse was made anew because of drift.
    """

    inverse: Float[Array, "c p p"]
    z: Float[Array, "c p p"] | None
    renewed: Int[Array, ""]


def full(
    network: Network,
    *,
    regularization: Positive = 1.0,
    scale: Positive = 1.0,
    drift: float | None = 1e-2,
) -> Confidence:
    """The whole of Z (eq 10 and 12 as printed).

    Args:
      network: whose gradients they are.
      regularization: lambda.
      scale: of the gradients.
      drift: |Z Z^-1 g - g| / |g| after an update beyond which the inverse is made anew. None
        neither looks nor keeps Z, which saves half of the memory and a quarter of the time.
        (Under `jax.vmap` both branches run: there, None is much faster.)
    """
    check_positive(regularization=regularization, scale=scale)
    if drift is not None and not drift > 0:
        raise InputError(f"drift is {drift}: it must be above 0, or None for no look at it.")
    count = network.arms if network.separate else 1

    def init(params: Params) -> Full:
        size = sum(leaf.size for leaf in jax.tree.leaves(params)) // count
        each = jnp.broadcast_to(jnp.eye(size), (count, size, size))
        z = None if drift is None else each * regularization
        return Full(each / regularization, z, jnp.zeros((), jnp.int32))

    def vector(params: Params, x: Array, arm: Array) -> Float[Array, " p"]:
        gradient = network.gradient(network.view(params, arm), x)[1]
        return written_out(network, params, scaled(gradient, scale), arm)

    def look(belief: Full, params: Params, x: Float[Array, " d"]) -> tuple[Array, Array]:
        def one(view: View, arm: Array, x: Array) -> tuple[Array, Array]:
            value, gradient = network.gradient(view, x)
            return value, written_out(network, params, scaled(gradient, scale), arm)

        axes = (network.axes(params), 0, None)
        mean, g = jax.vmap(one, axes)(params, jnp.arange(network.arms), x)
        if network.separate:
            through = jnp.einsum("apq,aq->ap", belief.inverse, g, precision=_EXACT)
        else:
            through = jnp.einsum("pq,aq->ap", belief.inverse[0], g, precision=_EXACT)
        return mean, jnp.maximum(jnp.sum(g * through, axis=1), 0.0)

    def update(belief: Full, params: Params, x: Float[Array, " d"], arm: Int[Array, ""]) -> Full:
        at = arm if network.separate else 0
        return added(belief, at, vector(params, x, arm)[None], drift=drift)

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
            return first + jnp.sum(same), added(belief, at[first], rows, drift=drift)

        start = (jnp.zeros((), at.dtype), belief)
        return lax.while_loop(lambda carry: carry[0] < len(arms), block, start)[1]

    return Confidence(init, look, update, update_batch)


def added(
    belief: Full, at: int | Int[Array, ""], rows: Float[Array, "r p"], *, drift: float | None
) -> Full:
    """``belief`` with G' G added to the Z at ``at``, G being ``rows`` (rows of zeros add nothing).

    Z^-1 - Z^-1 G' (I + G Z^-1 G')^-1 G Z^-1, Woodbury's identity; Sherman-Morrison's for one row.
    """
    was = belief.inverse[at]
    through = jnp.matmul(rows, was, precision=_EXACT)
    inner = jnp.eye(len(rows)) + jnp.matmul(through, rows.T, precision=_EXACT)
    if len(rows) == 1:
        inverse = was - through.T * (through / inner)
    else:
        factor = jax.scipy.linalg.cho_factor(inner, lower=True)
        half = jax.scipy.linalg.solve_triangular(factor[0], through, lower=True)
        inverse = was - jnp.matmul(half.T, half, precision=_EXACT)
    if belief.z is None or drift is None:
        return belief._replace(inverse=belief.inverse.at[at].set(inverse))
    z = belief.z[at] + jnp.matmul(rows.T, rows, precision=_EXACT)
    back = jnp.matmul(jnp.matmul(rows[:1], inverse, precision=_EXACT), z, precision=_EXACT)
    apart = jnp.linalg.norm(back - rows[:1]) > drift * jnp.linalg.norm(rows[:1])
    inverse = lax.cond(apart, lambda: inverse_of(z), lambda: inverse)
    return Full(
        belief.inverse.at[at].set(inverse),
        belief.z.at[at].set(z),
        belief.renewed + apart.astype(jnp.int32),
    )


def inverse_of(z: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """The inverse of a positive definite matrix, by Cholesky; exactly symmetric."""
    half = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(z), jnp.eye(len(z)), lower=True)
    return jnp.matmul(half.T, half, precision=_EXACT)


def written_out(network: Network, params: Params, gradient: Gradient, arm: Array) -> Array:
    """A gradient as one vector: over the arm's view, or over all weights where some are shared."""
    leaves = [
        jnp.outer(leaf.left, leaf.right) if isinstance(leaf, Outer) else leaf for leaf in gradient
    ]
    if not network.separate:
        leaves = [
            jnp.zeros_like(whole).at[arm].set(leaf) if own else leaf
            for whole, leaf, own in zip(jax.tree.leaves(params), leaves, network.armed, strict=True)
        ]
    return jnp.concatenate([leaf.ravel() for leaf in leaves])
