"""Mixtures of a language model's distributions after several passages (REPLUG)."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float


def log_mixture(
    scores: Float[Array, " m"], logprobs: Float[Array, "m y"], *, temperature: float = 1.0
) -> Float[Array, " y"]:
    """log p(y|q) = log sum_d lambda(d) p(y|q,d), natural logarithms.

    lambda is the softmax of the retrieval scores divided by ``temperature`` (Shi et al. 2023,
    REPLUG, section 3.2).

    Args:
      scores: relevance of m passages.
      logprobs: log p(y|q,d) of each answer y after each passage.
      temperature: above 0; towards 0, the best passage alone counts.
    """
    weights = jax.nn.log_softmax(scores / temperature)
    return jax.nn.logsumexp(weights[:, None] + logprobs, axis=0)
