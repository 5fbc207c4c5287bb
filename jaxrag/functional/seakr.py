"""SeaKR (Yao et al. 2024): self-aware uncertainty, from hidden states of sampled answers.

The score is EigenScore of INSIDE (Chen et al. 2024): how far the answers that a model gives to one
prompt lie apart in the space of its hidden states.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def uncertainty(
    states: Float[Array, "n d"], *, where: Bool[Array, " n"], alpha: float = 1e-3
) -> Float[Array, ""]:
    """1/k log det(Z J Z^T + alpha I) over the k real answers; +inf where there are none.

    Z holds a state a row and J = I - 11^T/d centres each row over its d features. Answers that are
    one in meaning make the Gram matrix nearly singular, and the score falls to log(alpha) plus a
    share of the one direction left. It is found from the singular values s of ZJ, as
    1/k sum log(s^2 + alpha): the squares of a Gram matrix in float32 would drown alpha.

    Args:
      states: hidden state of each sampled answer's last token, one layer's.
      where: real answers; the released code counts those that are not blank.
      alpha: keeps the determinant above 0.
    """
    n, d = states.shape
    if not n:
        return jnp.asarray(jnp.inf)
    centred = jnp.where(where[:, None], states - states.mean(axis=1, keepdims=True), 0.0)
    singular = jnp.linalg.svd(centred, compute_uv=False)
    count = jnp.sum(where)
    # of n eigenvalues those beyond the singular values are 0, and so are those of missing answers
    none = (n - min(n, d)) - (n - count)
    total = jnp.sum(jnp.log(singular**2 + alpha)) + none * jnp.log(alpha)
    return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.inf)


def least_uncertain(scores: Float[Array, " n"], *, where: Bool[Array, " n"]) -> Int[Array, ""]:
    """Which of several steps or answers is the least uncertain one, of equal ones the first.

    Those that ``where`` leaves out (empty ones) come last; with none left it is the first.
    """
    return jnp.argmin(jnp.where(where, scores, jnp.inf))
