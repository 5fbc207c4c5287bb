"""SeaKR (Yao et al. 2024): self-aware uncertainty, from hidden states of sampled answers.

    >>> states = jnp.array([[[1.0, -1.0], [1.0, -1.0]], [[1.0, -1.0], [-1.0, 1.0]]])  # two prompts
    >>> u = jax.jit(jax.vmap(uncertainty))(states, where=jnp.ones((2, 2), bool))
    >>> jax.jit(jax.vmap(least_uncertain))(u[None], where=jnp.ones((1, 2), bool))
    Array([0], dtype=int32)

The score is EigenScore of INSIDE (Chen et al. 2024): how far the hidden states of a model's answers
to one prompt are apart.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def uncertainty(
    states: Float[Array, "n d"], *, where: Bool[Array, " n"], alpha: float = 1e-3
) -> Float[Array, ""]:
    """U = 1/k log det(Z J Z^T + alpha I) of the k answers to one prompt; +inf without answers.

    Z (``states``) has in each row the hidden state of a sampled answer's last token, at one layer;
    J = I - 11^T/d centres each row over its d features; alpha makes the determinant positive. For
    similar answers the Gram matrix is nearly singular, and in float32 its rounding would hide
    alpha. So the determinant is that of B B^T, B = [Z J, sqrt(alpha) I], and comes from a QR
    decomposition of B after the first answer's row is subtracted from the others, which leaves it
    unchanged: states that are equal differ by exactly 0, however large they are. ``where`` marks
    the real answers; the released code leaves out blank ones.
    """
    n = len(states)
    if not n:
        return jnp.asarray(jnp.inf)
    first = jnp.argmax(where)
    others = where & (jnp.arange(n) != first)
    subtracted = jnp.where(others[:, None], states[first], 0.0)
    rows = jnp.where(where[:, None], states, 0.0) - subtracted
    rows -= rows.mean(axis=1, keepdims=True)
    identity = jnp.eye(n)
    # A missing answer gets a unit vector: a factor of 1.
    ridge = jnp.where(where, jnp.sqrt(alpha), 1.0)[:, None] * identity
    ridge -= jnp.where(others[:, None], jnp.sqrt(alpha) * identity[first], 0.0)
    triangle = jnp.linalg.qr(jnp.concatenate([rows, ridge], axis=1).T, mode="r")
    total = 2.0 * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(triangle))))
    count = jnp.sum(where)
    return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.inf)


def least_uncertain(scores: Float[Array, " n"], *, where: Bool[Array, " n"]) -> Int[Array, ""]:
    """argmin_i U_i among ``where``, of uncertainties U (``scores``); ties go to the first.

    NaN counts as infinite. The result is 0 where no score is finite.
    """
    return jnp.argmin(jnp.where(where & ~jnp.isnan(scores), scores, jnp.inf))
