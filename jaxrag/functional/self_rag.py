"""Self-RAG's scores (Asai et al. 2024, section 3.3 and its appendix on inference).

A language model critiques passages and answers by reflection tokens. Their natural
log-probabilities give a score of each segment of an answer: is the passage relevant, does it
support the segment, is the segment useful, and how probable is it. Log-probabilities are in the
order: relevant, irrelevant; fully, partially, not supported; utility 1 to 5; retrieval, no
retrieval.

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
    """Probabilities of the tokens, normalised to sum to 1; all 0 if none is possible."""
    top = jnp.max(logprobs)
    possible = top != -jnp.inf  # NaN stays NaN
    odds = jnp.where(possible, jnp.exp(logprobs - jnp.where(possible, top, 0.0)), 0.0)
    return odds / jnp.where(possible, jnp.sum(odds), 1.0)


def retrieval_probability(
    logprobs: Float[Array, " a"], *, rule: Rule = "paper"
) -> Float[Array, ""]:
    """P(retrieval) / (P(retrieval) + P(no retrieval)), to be compared with a threshold.

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
    """P(relevant) / (P(relevant) + P(irrelevant)), in [0, 1]."""
    return shares(logprobs)[0]


def support_score(logprobs: Float[Array | np.ndarray, " a"]) -> Float[Array, ""]:
    """Share of "fully supported" plus half the share of "partially", in [0, 1]."""
    fully, partially, _ = shares(logprobs)
    return fully + 0.5 * partially


def utility_score(logprobs: Float[Array | np.ndarray, " a"]) -> Float[Array, ""]:
    """Mean of `UTILITIES`, weighted by the shares of the five grades, in [-1, 1]."""
    return jnp.sum(shares(logprobs) * jnp.asarray(UTILITIES))


def sequence_score(
    logprobs: Float[Array, " t"], *, where: Bool[Array, " t"] | None = None
) -> Float[Array, ""]:
    """exp of the mean token log-probability of a segment, in [0, 1]; 0 without tokens.

    The paper has p(segment); the mean over tokens is the released code's.
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
    """All parts of one segment's score, and their weighted sum (the paper's eqs 3 and 4).

    Args:
      critique: -inf for relevance and support, if there is no passage, gives scores of 0.
      logprobs: of the segment's own tokens.
      where: real tokens.
      weights: of the parts.
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
    """The score of an answer of several segments; 0 without segments.

    The paper does not say how segments' scores are combined; under its rule they are averaged, so
    that longer answers have no advantage. The released code multiplies them.
    """
    where = jnp.ones_like(scores, bool) if where is None else where
    count = jnp.sum(where)
    if rule == "released":
        return jnp.where(count > 0, jnp.prod(jnp.where(where, scores, 1.0)), 0.0)
    return jnp.sum(jnp.where(where, scores, 0.0)) / jnp.maximum(count, 1)


def option_scores(
    scores: Float[Array, " n"], options: Int[Array, " n"], *, count: int
) -> Float[Array, " a"]:
    """Sum of the scores of the passages with each of ``count`` options; the largest is the answer.

    ``options`` are the options, from 0, that closed questions' passages lead to; negative for none.
    """
    return jax.ops.segment_sum(scores, jnp.where(options < 0, count, options), count + 1)[:count]
