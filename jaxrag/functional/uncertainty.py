"""Uncertainty of an answer from its token log-probabilities, and the decision to retrieve.

docs/methods.md, "DTR: uncertainty (equations 2 and 3)". Log-probabilities are natural and at
temperature 1, one answer's padded tokens [t]; ``where`` marks the real ones, which come first.
``ends`` says whether the last of them is the end token (`Generation.finish_reason` "end").

Rules: "paper" excludes the end token; "released" excludes the last token, whatever it is, as the
released code does. (That code also counts a token of probability 0 as certain and fails for one
token; here such answers are infinitely uncertain under both rules.)
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Rule = Literal["paper", "released"]


def answer_tokens(
    where: Bool[Array, " t"], *, ends: bool | Bool[Array, ""], rule: Rule = "paper"
) -> Bool[Array, " t"]:
    """Mask of the answer's tokens: real tokens without the end token (or the last token)."""
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

    +inf for an answer without tokens.
    """
    tokens = answer_tokens(where, ends=ends, rule=rule)
    total = -jnp.sum(jnp.where(tokens, logprobs, 0.0))
    count = jnp.sum(tokens)
    return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.inf)


def trigger(
    u: float | Float[Array, "*b"], threshold: float | Float[Array, ""], *, rule: Rule = "paper"
) -> Bool[Array, "*b"]:
    """Whether to retrieve, given an uncertainty in nats such as `mean_nll`.

    "paper" accepts an answer if u <= threshold, "released" if u < threshold. At threshold 0 both
    always retrieve: the exact u is positive, and a float32 u of 0 was rounded. An infinite or NaN u
    always retrieves. So the trigger ratio is 1 at threshold 0, decreases with the threshold, and
    at an infinite threshold only empty answers retrieve.
    """
    accepted = u <= threshold if rule == "paper" else u < threshold
    return ~(accepted & jnp.isfinite(u) & (jnp.asarray(threshold) > 0.0))
