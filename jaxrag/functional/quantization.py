"""Product quantization of vectors: codes whose inner products are close to those of the vectors.

    >>> centers = jnp.array([[[0.0], [1.0]], [[0.0], [1.0]]])  # of two blocks
    >>> vectors = jnp.array([[[[0.9], [0.2]]]])  # one index of one vector
    >>> codes = jax.jit(jax.vmap(anisotropic_codes, (0, 0, 0, None)))
    >>> codes(vectors, vectors, jnp.zeros((1, 1)), centers)
    Array([[[1, 0]]], dtype=int32)

A vector's dimensions are cut into blocks, and each block is replaced by one of its centers (Jégou
et al. 2011, "Product Quantization for Nearest Neighbor Search"). Errors along the vector itself
change its inner products with the queries that it answers, so that they weigh more (Guo et al.
2020, "Accelerating Large-Scale Inference with Anisotropic Vector Quantization").

Symbols: x_i is one of n vectors [d], m the number of blocks of s dimensions, c_j one of the c
centers. The functions with n vectors are compiled already.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int


@jax.jit
def nearest_center(vectors: Float[Array, "n d"], centers: Float[Array, "c d"]) -> Int[Array, " n"]:
    """argmin_j |x_i - c_j|^2: the nearest center of each vector."""
    return jnp.argmax(vectors @ centers.T - 0.5 * jnp.sum(centers**2, axis=1), axis=1)


@jax.jit
def center_sums(
    vectors: Float[Array, "n d"], weights: Float[Array, " n"], centers: Float[Array, "c d"]
) -> tuple[Float[Array, "c d"], Float[Array, " c"]]:
    """sum_i w_i x_i and sum_i w_i over the vectors nearest to each center: a step of k-means."""
    nearest = nearest_center(vectors, centers)
    sums = jax.ops.segment_sum(vectors * weights[:, None], nearest, len(centers))
    return sums, jax.ops.segment_sum(weights, nearest, len(centers))


@jax.jit
def block_sums(
    targets: Float[Array, "n m s"], weights: Float[Array, " n"], centers: Float[Array, "m c s"]
) -> tuple[Float[Array, "m c s"], Float[Array, "m c"]]:
    """`center_sums` of every block, without a loop over blocks; ``targets`` are the vectors."""
    nearest = anisotropic_codes(targets, targets, jnp.zeros_like(weights), centers, sweeps=0)
    member = jax.nn.one_hot(nearest, centers.shape[1]) * weights[:, None, None]
    return jnp.einsum("nmc,nms->mcs", member, targets), member.sum(axis=0)


def anisotropic_weight(
    squared_norms: Float[Array, " n"], dimension: int, threshold: float
) -> Float[Array, " n"]:
    """eta = max((d - 1) T^2 / (|x|^2 - T^2) - 1, 0): how much more an error along x counts.

    The fraction is h_parallel / h_orthogonal of Guo et al., theorem 3.3, for queries of unit length
    of which those with an inner product <q, x> >= T (``threshold``) count; d is the ``dimension``.
    0 where |x| <= T.
    """
    rest = squared_norms - threshold**2
    ratio = (dimension - 1) * threshold**2 / jnp.where(rest > 0, rest, jnp.inf)
    return jnp.maximum(ratio - 1, 0)


@functools.partial(jax.jit, static_argnames="sweeps")
def anisotropic_codes(
    targets: Float[Array, "n m s"],
    directions: Float[Array, "n m s"],
    weights: Float[Array, " n"],
    centers: Float[Array, "m c s"],
    *,
    sweeps: int = 3,
) -> Int[Array, "n m"]:
    """Codes that minimise |e|^2 + eta <e, u>^2, e = x - (center of each block), by block descent.

    x are the ``targets``, u the ``directions``, of unit length over all blocks, eta the
    ``weights``, see `anisotropic_weight`. Coordinate descent begins at the nearest centers and
    passes ``sweeps`` times over the blocks; with eta = 0 the nearest centers are the minimum.
    """
    blocks = (targets.transpose(1, 2, 0), directions.transpose(1, 2, 0), centers)
    zero = jnp.zeros_like(weights)

    def begin(total, block):
        code, along = _best_center(*block, others=zero, weights=zero)
        return total + along, (code, along)

    def improve(total, item):
        block, (_, before) = item
        code, along = _best_center(*block, others=total - before, weights=weights)
        return total - before + along, (code, along)

    total, chosen = lax.scan(begin, zero, blocks)
    for _ in range(sweeps):
        total, chosen = lax.scan(improve, total, (blocks, chosen))
    return chosen[0].T


def _best_center(
    target: Float[Array, "s n"],
    direction: Float[Array, "s n"],
    centers: Float[Array, "c s"],
    *,
    others: Float[Array, " n"],
    weights: Float[Array, " n"],
) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """The center of one block with the least loss, and its error along the direction.

    ``others``: error of the other blocks along the direction. One loop over rows, without arrays
    of all centers, is several times as fast on CPUs as an argmin.
    """
    best = jnp.full_like(others, jnp.inf)
    code, chosen = jnp.zeros(others.shape, jnp.int32), jnp.zeros_like(others)
    for number in range(centers.shape[0]):
        errors = [target[i] - centers[number, i] for i in range(centers.shape[1])]
        along = sum(error * direction[i] for i, error in enumerate(errors))
        loss = sum(error**2 for error in errors) + weights * (others + along) ** 2
        better = loss < best
        best, chosen = jnp.where(better, loss, best), jnp.where(better, along, chosen)
        code = jnp.where(better, number, code)
    return code, chosen
