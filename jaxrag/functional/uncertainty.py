"""Uncertainty of an answer from its token log-probabilities, and the decision to retrieve.

    >>> logprobs = jnp.array([[-1.0, -2.0, -9.0], [-0.5, 0.0, 0.0]])  # of two answers
    >>> where = jnp.array([[True, True, True], [True, False, False]])
    >>> jax.jit(jax.vmap(mean_nll))(logprobs, where=where, ends=jnp.array([True, False]))
    Array([1.5, 0.5], dtype=float32)

docs/methods, "DTR: uncertainty (equations 2 and 3)". Symbols: q is the prompt, a_1 .. a_T are
the answer's tokens. Arrays [t] are one answer's padded tokens; ``where`` marks the real ones, which
come first. ``ends`` says whether the last of them is the end token (`Generation.finish_reason`
"end").

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
    """Mask of a_1 .. a_T: real tokens without the end token (rule "released": the last token)."""
    last = where & (jnp.cumsum(where[::-1])[::-1] == 1)
    return where & ~(last & (ends if rule == "paper" else True))


def mean_nll(
    logprobs: Float[Array, " t"],
    *,
    where: Bool[Array, " t"],
    ends: bool | Bool[Array, ""],
    rule: Rule = "paper",
) -> Float[Array, ""]:
    """u = -1/T sum_t log P(a_t | q, a_<t): mean negative log-likelihood, in nats (DTR eq 3).

    +inf for an answer without tokens. ``logprobs``: log P(a_t | q, a_<t), natural, at temperature
    1. a_1 .. a_T are the `answer_tokens`.
    """
    tokens = answer_tokens(where, ends=ends, rule=rule)
    total = -jnp.sum(jnp.where(tokens, logprobs, 0.0))
    count = jnp.sum(tokens)
    return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.inf)


def trigger(
    u: float | Float[Array, "*b"], threshold: float | Float[Array, ""], *, rule: Rule = "paper"
) -> Bool[Array, "*b"]:
    """Decides to retrieve where u > tau (rule "released": u >= tau).

    u is an uncertainty in nats, such as `mean_nll`, tau the ``threshold``. At tau = 0 both rules
    always retrieve: the exact u is positive, and a float32 u of 0 was rounded. An infinite or NaN u
    always retrieves. So the trigger ratio is 1 at tau = 0, decreases with tau, and at an infinite
    tau only empty answers retrieve.
    """
    accepted = u <= threshold if rule == "paper" else u < threshold
    return ~(accepted & jnp.isfinite(u) & (jnp.asarray(threshold) > 0.0))
