"""Random rankings: the Plackett-Luce model over candidates (Luce 1959; Plackett 1975).

    >>> keys, weights = jax.random.split(jax.random.key(0), 5), jnp.array([0.0, 99.0])
    >>> jax.jit(jax.vmap(lambda key: sample(key, weights, k=1)))(keys).ravel()
    Array([1, 1, 1, 1, 1], dtype=int32)

Symbols: w_j is the log-weight of candidate j of n, o_i the candidate at rank i. Each rank is drawn
from the candidates that remain, with probabilities proportional to exp(w_j). Equivalently, without
a loop, candidates are sorted by w_j + g_j, with independent Gumbel variables g_j (Yellott 1977;
Kool et al. 2019).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from jaxrag.types import InputError


def log_weights(
    scores: Float[Array, " n"], *, alpha: float = 1.0, temperature: float = 1.0
) -> Float[Array, " n"]:
    """w_j = (1 + s'_j)^alpha / T, with s'_j = (s_j - min s) / (max s - min s).

    s are retrieval ``scores``, T the ``temperature``; T = 1 as in the released code of Fair RAG
    (Kim & Diaz 2024). All orders are equally probable if all scores are equal (s' is then 0) or
    alpha is 0. T towards 0 gives the order of the scores.
    """
    scores = scores / 16  # keeps the range and its reciprocal within float32
    low, high = jnp.min(scores), jnp.max(scores)
    width = jnp.where(high > low, high - low, 1.0)
    return (1.0 + (scores - low) / width) ** alpha / temperature


def sample(key: Key[Array, ""], log_weights: Float[Array, " n"], *, k: int) -> Int[Array, " k"]:
    """argtop-k over j of w_j + g_j: the first ``k`` candidates of one random ranking, as positions.

    InputError if there are fewer than ``k`` candidates.
    """
    (n,) = log_weights.shape
    if not 1 <= k <= n:
        raise InputError(f"k is {k}; of {n} candidates 1 to {n} can be drawn.")
    return lax.top_k(log_weights + jax.random.gumbel(key, (n,), log_weights.dtype), k)[1]


def log_probability(log_weights: Float[Array, " n"], order: Int[Array, " k"]) -> Float[Array, ""]:
    """log P(o_1 .. o_k) = sum_i (w_(o_i) - log sum over j not in o_1 .. o_(i-1) of exp w_j).

    The natural log-probability that a ranking begins with ``order``, o_1 .. o_k, which are distinct
    positions. Each sum is computed anew: subtracting the chosen weights from the total would cancel
    where they make up most of it.
    """
    chosen = order[:, None] == jnp.arange(log_weights.shape[0])
    taken = jnp.cumsum(chosen, axis=0) - chosen > 0  # [k n]: chosen before rank k
    remaining = jax.nn.logsumexp(jnp.where(taken, -jnp.inf, log_weights), axis=-1)
    return jnp.sum(log_weights[order] - remaining)
