"""Mixtures of a language model's distributions after several passages (REPLUG).

    >>> logprobs = jnp.log(jnp.array([[[0.5, 0.5], [1.0, 0.0]]]))  # one question, two passages
    >>> mixed = jax.jit(jax.vmap(log_mixture))(jnp.zeros((1, 2)), logprobs)
    >>> np.exp(jax.device_get(mixed)).round(2)
    array([[0.75, 0.25]], dtype=float32)

Source: docs/methods, "REPLUG".
"""

from __future__ import annotations

import jax
from jaxtyping import Array, Float


def log_mixture(
    scores: Float[Array, " m"], logprobs: Float[Array, "m y"], *, temperature: float = 1.0
) -> Float[Array, " y"]:
    """log p(y | q) = log sum_d lambda(d) p(y | q, d), lambda(d) = softmax_d(s(d) / T).

    Natural logarithms, for a question q and its m passages d (Shi et al. 2023, REPLUG, section
    3.2). ``scores`` are s(d), the relevance of each passage, ``logprobs`` log p(y | q, d) of each
    answer y. T is the ``temperature``, above 0; towards 0, the best passage alone counts.
    """
    weights = jax.nn.log_softmax(scores / temperature)
    return jax.nn.logsumexp(weights[:, None] + logprobs, axis=0)
