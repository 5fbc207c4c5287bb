"""Self-RAG's scores (Asai et al. 2024, section 3.3 and its appendix on inference).

    >>> logprobs = jnp.log(jnp.array([[0.4, 0.1], [0.1, 0.3]]))  # of two passages
    >>> jax.device_get(jax.jit(jax.vmap(relevance_score))(logprobs)).round(2)
    array([0.8 , 0.25], dtype=float32)

A language model critiques passages and answers by reflection tokens. Their natural
log-probabilities give a score of each segment of an answer: is the passage relevant, does it
support the segment, is the segment useful, and how probable is it. Log-probabilities are in the
order: relevant, irrelevant; fully, partially, not supported; utility 1 to 5; retrieval, no
retrieval. Symbols: P(x) is the model's probability of reflection token x, p(x) its share among the
tokens of its kind, see `shares`.

``rule`` decides where the released code disagrees with the paper.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

Rule = Literal["paper", "released"]

UTILITIES = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Values of the five grades of utility."""


class Critique(NamedTuple):
    """Log-probabilities of the reflection tokens of one segment: 2, 3 and 5 of them."""

    relevance: Float[Array | np.ndarray, " a"]
    support: Float[Array | np.ndarray, " a"]
    utility: Float[Array | np.ndarray, " a"]


class Weights(NamedTuple):
    """Weights of the parts of a segment's score; the paper's by default."""

    relevance: float | Float[Array, ""] = 1.0
    support: float | Float[Array, ""] = 1.0
    utility: float | Float[Array, ""] = 0.5
    sequence: float | Float[Array, ""] = 1.0


WEIGHTS = Weights()


class Scores(NamedTuple):
    """Unweighted parts of a segment's score, and their weighted sum."""

    relevance: Float[Array, ""]
    support: Float[Array, ""]
    utility: Float[Array, ""]
    sequence: Float[Array, ""]
    total: Float[Array, ""]


def shares(logprobs: Float[Array | np.ndarray, " a"]) -> Float[Array, " a"]:
    """p(x) = P(x) / sum over y of P(y): shares of tokens of one kind; all 0 if none is possible."""
    top = jnp.max(logprobs)
    possible = top != -jnp.inf  # NaN stays NaN
    odds = jnp.where(possible, jnp.exp(logprobs - jnp.where(possible, top, 0.0)), 0.0)
    return odds / jnp.where(possible, jnp.sum(odds), 1.0)


def retrieval_probability(
    logprobs: Float[Array, " a"], *, rule: Rule = "paper"
) -> Float[Array, ""]:
    """p(retrieval) = P(retrieval) / (P(retrieval) + P(no retrieval)), compared with a threshold.

    The released code for short answers omits the exponentials: ln P(retrieval) / (ln P(retrieval) +
    ln P(no retrieval)) decreases as retrieval becomes more probable (rule "released"; 0.5 if both
    logarithms are 0).
    """
    if rule == "paper":
        return shares(logprobs)[0]
    total = jnp.sum(logprobs)
    # the limit if retrieval is, or both are, impossible
    ratio = jnp.where(logprobs[0] == -jnp.inf, 1.0, logprobs[0] / jnp.where(total, total, 1.0))
    return jnp.where(total == 0.0, 0.5, ratio)


def relevance_score(logprobs: Float[Array | np.ndarray, " a"]) -> Float[Array, ""]:
    """s_rel = p(relevant) = P(relevant) / (P(relevant) + P(irrelevant)), in [0, 1]."""
    return shares(logprobs)[0]


def support_score(logprobs: Float[Array | np.ndarray, " a"]) -> Float[Array, ""]:
    """s_sup = p(fully supported) + p(partially supported) / 2, in [0, 1]."""
    fully, partially, _ = shares(logprobs)
    return fully + 0.5 * partially


def utility_score(logprobs: Float[Array | np.ndarray, " a"]) -> Float[Array, ""]:
    """s_use = sum over grades g = 1 .. 5 of (g - 3) / 2 p(g), in [-1, 1]; see `UTILITIES`."""
    return jnp.sum(shares(logprobs) * jnp.asarray(UTILITIES))


def sequence_score(
    logprobs: Float[Array, " t"], *, where: Bool[Array, " t"] | None = None
) -> Float[Array, ""]:
    """s_seq = exp(1/T sum_t log P(y_t | y_<t)) of a segment y_1 .. y_T, in [0, 1]; 0 if T = 0.

    The paper has P(segment); the mean over tokens is the released code's.
    """
    where = jnp.ones_like(logprobs, bool) if where is None else where
    count = jnp.sum(where)
    mean = jnp.sum(jnp.where(where, logprobs, 0.0)) / jnp.maximum(count, 1)
    return jnp.where(count > 0, jnp.exp(mean), 0.0)


def segment_scores(
    critique: Critique,
    logprobs: Float[Array, " t"],
    *,
    where: Bool[Array, " t"] | None = None,
    weights: Weights = WEIGHTS,
) -> Scores:
    """S = w_seq s_seq + w_rel s_rel + w_sup s_sup + w_use s_use, and its parts (eqs 3 and 4).

    Args:
      critique: -inf for relevance and support, if there is no passage, gives scores of 0.
      logprobs: log P(y_t | y_<t) of the segment's own tokens.
      where: real tokens.
      weights: w.
    """
    relevance = relevance_score(critique.relevance)
    support = support_score(critique.support)
    utility = utility_score(critique.utility)
    sequence = sequence_score(logprobs, where=where)
    total = (
        weights.sequence * sequence
        + weights.relevance * relevance
        + weights.support * support
        + weights.utility * utility
    )
    return Scores(relevance, support, utility, sequence, total)


def path_score(
    scores: Float[Array, " n"],
    *,
    where: Bool[Array, " n"] | None = None,
    rule: Rule = "paper",
) -> Float[Array, ""]:
    """mean_i S_i (rule "released": prod_i S_i) of an answer's n segments; 0 without segments.

    The paper does not say how segments' ``scores`` S_i are combined; under its rule they are
    averaged, so that longer answers have no advantage. The released code multiplies them.
    """
    where = jnp.ones_like(scores, bool) if where is None else where
    count = jnp.sum(where)
    if rule == "released":
        return jnp.where(count > 0, jnp.prod(jnp.where(where, scores, 1.0)), 0.0)
    return jnp.sum(jnp.where(where, scores, 0.0)) / jnp.maximum(count, 1)


def option_scores(
    scores: Float[Array, " n"], options: Int[Array, " n"], *, count: int
) -> Float[Array, " a"]:
    """sum of S_i over passages i with option a, for each of a closed question's ``count`` options.

    The option with the largest sum is the answer. ``scores`` are the S_i, ``options`` the option
    that the model answers from each passage, from 0; negative for none.
    """
    return jax.ops.segment_sum(scores, jnp.where(options < 0, count, options), count + 1)[:count]
