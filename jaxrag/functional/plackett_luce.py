"""Random rankings: the Plackett-Luce model over candidates (Luce 1959; Plackett 1975).

Each place is filled by a draw among the candidates that are left, with probabilities proportional
to exp(log_weights). Drawing one Gumbel variable for each candidate and ranking by log-weight plus
variable is the same (Yellott 1977; Kool et al. 2019), without a loop.
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
    """(1 + s')^alpha / temperature, where s' are the scores brought to [0, 1] by their range.

    With temperature 1 it is how the released code of Fair RAG (Kim & Diaz 2024) makes log-weights
    of retrieval scores, whatever their scale. Scores that are all equal count as 0 each: every
    order is then equally probable, as it is with alpha 0. Temperature towards 0 gives the order of
    the scores.
    """
    low, high = jnp.min(scores), jnp.max(scores)
    width = jnp.where(high > low, high - low, 1.0)
    return (1.0 + (scores - low) / width) ** alpha / temperature


def sample(key: Key[Array, ""], log_weights: Float[Array, " n"], *, k: int) -> Int[Array, " k"]:
    """The first ``k`` places of one random ranking: positions of candidates, each at most once.

    Raises:
      InputError: there are no ``k`` candidates.
    """
    (n,) = log_weights.shape
    if not 1 <= k <= n:
        raise InputError(f"k is {k}; of {n} candidates 1 to {n} can be drawn.")
    return lax.top_k(log_weights + jax.random.gumbel(key, (n,), log_weights.dtype), k)[1]


def log_probability(log_weights: Float[Array, " n"], order: Int[Array, " k"]) -> Float[Array, ""]:
    """Log-probability that a ranking begins with ``order`` (distinct positions), natural.

    sum_i (w[o_i] - log sum over what is not in o_1 .. o_{i-1} of exp w), each sum in its own right:
    taking the chosen weights off one total would cancel where they make up most of it.
    """
    earlier = jnp.tril(jnp.ones((order.shape[0],) * 2, bool), -1)
    found = order[:, None] == jnp.arange(log_weights.shape[0])
    taken = (earlier.astype(int) @ found.astype(int)) > 0  # [k n]: chosen before place k
    left = jax.nn.logsumexp(jnp.where(taken, -jnp.inf, log_weights), axis=-1)
    return jnp.sum(log_weights[order] - left)
