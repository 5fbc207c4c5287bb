"""How unsure a language model was of its answer, and whether to retrieve because of it.

docs/methods.md, "DTR: uncertainty (equations 2 and 3)". Log-probabilities are natural and unscaled
by temperature, one answer's padded tokens [t]; ``where`` marks the real ones, which stand first.
``ends`` says whether the last of them is the end token (`Generation.finish_reason` "end").

Rules: "paper" leaves the end token out; "released" leaves the last token out, whatever it is, as
the released code does (which also takes a token of probability 0 for a certain one and fails on
one token; here such answers are infinitely uncertain under both rules).
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Rule = Literal["paper", "released"]


def answer_tokens(
    where: Bool[Array, " t"], *, ends: bool | Bool[Array, ""], rule: Rule = "paper"
) -> Bool[Array, " t"]:
    """Which tokens make up the answer: the real ones without the end (or last) token."""
    last = where & (jnp.cumsum(where[::-1])[::-1] == 1)
    return where & ~(last & (ends if rule == "paper" else True))


def mean_nll(
    logprobs: Float[Array, " t"],
    *,
    where: Bool[Array, " t"],
    ends: bool | Bool[Array, ""],
    rule: Rule = "paper",
) -> Float[Array, ""]:
    """u, the mean negative log-likelihood of the answer's tokens in nats (DTR eq 3).

    An answer without tokens is infinitely uncertain: +inf.
    """
    tokens = answer_tokens(where, ends=ends, rule=rule)
    total = -jnp.sum(jnp.where(tokens, logprobs, 0.0))
    count = jnp.sum(tokens)
    return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.inf)


def min_token_probability(
    logprobs: Float[Array, " t"],
    *,
    where: Bool[Array, " t"],
    ends: bool | Bool[Array, ""],
    rule: Rule = "paper",
) -> Float[Array, ""]:
    """Probability of the answer's least probable token; 0 for an answer without tokens."""
    tokens = answer_tokens(where, ends=ends, rule=rule)
    lowest = jnp.min(jnp.where(tokens, logprobs, 0.0))
    return jnp.where(jnp.any(tokens), jnp.exp(lowest), 0.0)


def predictive_entropy(
    logprobs: Float[Array, "n t"], *, where: Bool[Array, "n t"]
) -> Float[Array, ""]:
    """Entropy of the distribution over answers, estimated from n sampled ones, in nats.

    -1/n sum_i log p(answer_i) with log p the sum over its tokens (Malinin & Gales 2021;
    Kuhn et al. 2023). The end tokens belong to it: without them p is not a distribution over
    answers. Samples of temperature 1; +inf for no samples.
    """
    n = logprobs.shape[0]
    return -jnp.sum(jnp.where(where, logprobs, 0.0)) / n if n else jnp.asarray(jnp.inf)


def token_entropy(logits: Float[Array, "t v"], *, where: Bool[Array, " t"]) -> Float[Array, ""]:
    """Mean entropy of the next-token distributions along an answer, in nats.

    The answer's own choice of tokens does not enter, only how spread the alternatives were
    (token-level predictive uncertainty, Malinin & Gales 2021). +inf for no tokens.
    """
    logp = jax.nn.log_softmax(logits, axis=-1)
    possible = logp > -jnp.inf
    entropies = -jnp.sum(jnp.exp(logp) * jnp.where(possible, logp, 0.0), axis=-1)
    count = jnp.sum(where)
    total = jnp.sum(jnp.where(where, entropies, 0.0))
    return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.inf)


def trigger(
    u: float | Float[Array, "*b"], threshold: float | Float[Array, ""], *, rule: Rule = "paper"
) -> Bool[Array, "*b"]:
    """Whether to retrieve, from an uncertainty in nats such as `mean_nll`.

    "paper" accepts an answer if u <= threshold, "released" if u < threshold. At threshold 0 both
    always retrieve: the true u is positive, and a float32 u of 0 is one that was rounded. An
    infinite or NaN u always retrieves. So the trigger ratio falls with the threshold, from 1 at
    0, and what remains at an infinite threshold are empty answers.
    """
    accepted = u <= threshold if rule == "paper" else u < threshold
    return ~(accepted & jnp.isfinite(u) & (jnp.asarray(threshold) > 0.0))
