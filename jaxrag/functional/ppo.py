"""Proximal policy optimisation of a text generator: rewards, advantages, losses, KL control.

Schulman et al. (2017), "Proximal policy optimization algorithms", with generalised advantage
estimation (Schulman et al., 2016). The KL penalty and its control are those of Ziegler et al.
(2019), "Fine-tuning language models from human preferences", as trainable RRR uses them (Ma et al.,
2023; docs/methods.md, "ERRR: PPO"). A rollout is one generated text: actions are tokens, states the
tokens before them. ``where`` marks the real tokens of rollouts that are padded on the right;
padding has no effect. Logarithms are natural. Functions of [t] are for one rollout, to be
``vmap``ped; means are over arrays of any shape.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float


class Advantages(NamedTuple):
    """Advantages A_t, and returns A_t + V_t, the targets of the value function."""

    advantages: Float[Array, " t"]
    returns: Float[Array, " t"]


def token_rewards(
    score: Float[Array, ""],
    logprobs: Float[Array, " t"],
    reference: Float[Array, " t"],
    *,
    coefficient: Float[Array, ""] | float,
    where: Bool[Array, " t"],
) -> Float[Array, " t"]:
    """r_t = -beta (log pi(a_t) - log pi_ref(a_t)), plus the text's score at its last token.

    Ziegler et al. (2019), equation 2. The score of a rollout without tokens is lost.

    Args:
      score: reward of the whole text.
      logprobs: of the tokens under the policy that generated them.
      reference: under the reference policy.
      coefficient: beta.
      where: real tokens.
    """
    log_ratio = jnp.where(where, logprobs - reference, 0.0)
    last = where & ~jnp.append(where[1:], False)
    return -coefficient * log_ratio + jnp.where(last, score, 0.0)


def generalized_advantages(
    rewards: Float[Array, " t"],
    values: Float[Array, " t"],
    *,
    discount: float = 1.0,
    decay: float = 0.95,
    where: Bool[Array, " t"],
) -> Advantages:
    """A_t = sum over l of (gamma lambda)^l delta_(t + l), with stopped gradients; 0 at padding.

    delta_t = r_t + gamma V_(t+1) - V_t, with V = 0 after the last token (Schulman et al., 2016,
    equations 11 to 16).

    Args:
      rewards: of the tokens.
      values: V_t, the expected return before each token.
      discount: gamma.
      decay: lambda; 0 gives the one-step differences, 1 returns minus values.
      where: real tokens.
    """
    rewards, values = jnp.where(where, rewards, 0.0), jnp.where(where, values, 0.0)
    deltas = rewards + discount * jnp.append(values[1:], 0.0) - values

    def step(following: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, real = inputs
        advantage = jnp.where(real, delta + discount * decay * following, 0.0)
        return advantage, advantage

    _, advantages = lax.scan(step, jnp.zeros_like(deltas[0]), (deltas, where), reverse=True)
    return Advantages(*map(lax.stop_gradient, (advantages, advantages + values)))


def masked_mean(values: Float[Array, "*n"], *, where: Bool[Array, "*n"]) -> Float[Array, ""]:
    """Mean over ``where``; 0 if it is empty (`jnp.mean` gives NaN)."""
    return jnp.where(where, values, 0.0).sum() / jnp.maximum(where.sum(), 1)


def _centred(values: Float[Array, "*n"], where: Bool[Array, "*n"]) -> Float[Array, "*n"]:
    """Values minus their mean; exactly 0 if all are equal, although the mean is rounded."""
    low = jnp.min(values, where=where, initial=jnp.inf)
    shifted = jnp.where(where, values - low, 0.0)
    return jnp.where(where, shifted - masked_mean(shifted, where=where), 0.0)


def _variance(values: Float[Array, "*n"], where: Bool[Array, "*n"]) -> Float[Array, ""]:
    return masked_mean(jnp.square(_centred(values, where)), where=where)


def whiten(
    values: Float[Array, "*n"],
    *,
    where: Bool[Array, "*n"],
    shift: bool = True,
    epsilon: float = 1e-8,
) -> Float[Array, "*n"]:
    """Values divided by their standard deviation; 0 outside ``where``.

    Args:
      values: for example the advantages of all tokens of a batch.
      where: the values that count.
      shift: whether the mean becomes 0; otherwise it is kept.
      epsilon: added to the variance.
    """
    white = _centred(values, where) * lax.rsqrt(_variance(values, where) + epsilon)
    mean = 0.0 if shift else masked_mean(values, where=where)
    return jnp.where(where, white + mean, 0.0)


def policy_loss(
    logprobs: Float[Array, "*n"],
    old: Float[Array, "*n"],
    advantages: Float[Array, "*n"],
    *,
    clip: float,
    where: Bool[Array, "*n"],
) -> Float[Array, ""]:
    """-mean of min(rho A, clip(rho, 1 - clip, 1 + clip) A), rho = pi(a) / pi_old(a).

    Schulman et al. (2017), equation 7. The gradient of a token is 0 if its ratio is beyond the clip
    in the direction of its advantage, or if its advantage is 0, also where the ratio overflows. An
    overflowing ratio with a negative advantage gives an infinite loss.

    Args:
      logprobs: of the tokens under the policy that is trained.
      old: under the policy that generated them.
      advantages: of the tokens.
      clip: epsilon.
      where: real tokens.
    """
    log_ratio = jnp.where(where, logprobs - old, 0.0)
    ratio = lax.stop_gradient(jnp.exp(log_ratio))
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    # Where the clipped term is the minimum, the exponential must not be in the graph: its
    # derivative may be infinite, and 0 times inf is NaN.
    constant = (advantages == 0.0) | (clipped * advantages < ratio * advantages)
    ratio = jnp.where(constant, clipped, jnp.exp(jnp.where(constant, 0.0, log_ratio)))
    return -masked_mean(ratio * advantages, where=where)


def value_loss(
    values: Float[Array, "*n"],
    old: Float[Array, "*n"],
    returns: Float[Array, "*n"],
    *,
    clip: float,
    where: Bool[Array, "*n"],
) -> Float[Array, ""]:
    """Half the mean of max((V - R)^2, (V_clipped - R)^2).

    V_clipped is V kept within ``clip`` of ``old``, the value when the text was generated (Ziegler
    et al.'s code). An infinite ``clip`` does not clip.
    """
    values, old, returns = (jnp.where(where, x, 0.0) for x in (values, old, returns))
    clipped = old + jnp.clip(values - old, -clip, clip)
    larger = jnp.maximum(jnp.square(values - returns), jnp.square(clipped - returns))
    return 0.5 * masked_mean(larger, where=where)


def entropy(logits: Float[Array, "*n v"]) -> Float[Array, "*n"]:
    """Entropy of each distribution over the vocabulary, in nats.

    A logit of -inf is a token of probability 0: it adds 0 to the entropy and has gradient 0.
    """
    logprobs = jax.nn.log_softmax(logits, axis=-1)
    possible = logprobs > -jnp.inf
    return -jnp.sum(jnp.exp(logprobs) * jnp.where(possible, logprobs, 0.0), axis=-1)


def approximate_kl(
    logprobs: Float[Array, "*n"], old: Float[Array, "*n"], *, where: Bool[Array, "*n"]
) -> Float[Array, ""]:
    """KL(pi_old || pi) per token, estimated from tokens of pi_old: mean of rho - 1 - log rho >= 0.

    Estimator k3 of Schulman (2020), "Approximating KL divergence".
    """
    log_ratio = jnp.where(where, logprobs - old, 0.0)
    small = jnp.abs(log_ratio) < 0.05
    x = jnp.where(small, log_ratio, 0.0)
    series = jnp.square(x) * (1 / 2 + x * (1 / 6 + x / 24))  # the difference would cancel
    return masked_mean(jnp.where(small, series, jnp.expm1(log_ratio) - log_ratio), where=where)


def clip_fraction(
    logprobs: Float[Array, "*n"],
    old: Float[Array, "*n"],
    *,
    clip: float,
    where: Bool[Array, "*n"],
) -> Float[Array, ""]:
    """Share of tokens whose ratio is outside [1 - clip, 1 + clip]."""
    ratio = jnp.exp(jnp.where(where, logprobs - old, 0.0))
    return masked_mean((jnp.abs(ratio - 1.0) > clip).astype(ratio.dtype), where=where)


def explained_variance(
    values: Float[Array, "*n"], returns: Float[Array, "*n"], *, where: Bool[Array, "*n"]
) -> Float[Array, ""]:
    """1 - Var(returns - values) / Var(returns): 1 for perfect values, NaN for equal returns."""
    total, residual = _variance(returns, where), _variance(returns - values, where)
    return jnp.where(total > 0, 1.0 - residual / jnp.where(total > 0, total, 1.0), jnp.nan)


def adapted_coefficient(
    coefficient: Float[Array, ""], kl: Float[Array, ""], *, target: float, rate: float
) -> Float[Array, ""]:
    """beta (1 + K e) with e = clip(kl / target - 1, -0.2, 0.2) (Ziegler et al., 2019, section 2.2).

    Args:
      coefficient: current beta.
      kl: measured, in nats per token (per text in the paper).
      target: desired KL.
      rate: K, 0.1 in the paper; in code with a horizon, texts of a batch / horizon. 0 keeps beta.
    """
    error = jnp.clip(kl / target - 1.0, -0.2, 0.2)
    return coefficient * (1.0 + rate * error)
