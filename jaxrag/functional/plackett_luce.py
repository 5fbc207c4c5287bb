"""Random rankings: the Plackett-Luce model over candidates (Luce 1959; Plackett 1975).

Each rank is drawn from the remaining candidates, with probabilities proportional to
exp(log_weights). Equivalently, without a loop, candidates are sorted by log-weight plus a Gumbel
variable each (Yellott 1977; Kool et al. 2019).
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
    """(1 + s')^alpha / temperature, where s' are the scores scaled to [0, 1] by their range.

    With temperature 1, the log-weights of retrieval scores in the released code of Fair RAG (Kim &
    Diaz 2024). Equal scores become 0: all orders are then equally probable, as with alpha 0.
    Temperature towards 0 gives the order of the scores.
    """
    scores = scores / 16  # keeps the range and its reciprocal within float32
    low, high = jnp.min(scores), jnp.max(scores)
    width = jnp.where(high > low, high - low, 1.0)
    return (1.0 + (scores - low) / width) ** alpha / temperature


def sample(key: Key[Array, ""], log_weights: Float[Array, " n"], *, k: int) -> Int[Array, " k"]:
    """The first ``k`` candidates of one random ranking, as positions.

    Raises:
      InputError: fewer than ``k`` candidates.
    """
    (n,) = log_weights.shape
    if not 1 <= k <= n:
        raise InputError(f"k is {k}; of {n} candidates 1 to {n} can be drawn.")
    return lax.top_k(log_weights + jax.random.gumbel(key, (n,), log_weights.dtype), k)[1]


def log_probability(log_weights: Float[Array, " n"], order: Int[Array, " k"]) -> Float[Array, ""]:
    """Natural log-probability that a ranking begins with ``order`` (distinct positions).

    sum_i (w[o_i] - log sum over j not in o_1 .. o_{i-1} of exp w_j). Each sum is computed anew:
    subtracting the chosen weights from the total would cancel where they make up most of it.
    """
    chosen = order[:, None] == jnp.arange(log_weights.shape[0])
    taken = jnp.cumsum(chosen, axis=0) - chosen > 0  # [k n]: chosen before rank k
    remaining = jax.nn.logsumexp(jnp.where(taken, -jnp.inf, log_weights), axis=-1)
    return jnp.sum(log_weights[order] - remaining)
