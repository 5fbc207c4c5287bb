"""Proximal policy optimisation of a text generator: rewards, advantages, losses, KL control.

    >>> rewards, values = jnp.array([[0.0, 1.0]]), jnp.array([[0.5, 0.5]])  # of one rollout
    >>> advantages = jax.jit(jax.vmap(partial(generalized_advantages, decay=1.0)))
    >>> advantages(rewards, values, where=jnp.array([[True, True]])).returns
    Array([[1., 1.]], dtype=float32)

Schulman et al. (2017), "Proximal policy optimization algorithms", with generalised advantage
estimation (Schulman et al., 2016). The KL penalty and its control are those of Ziegler et al.
(2019), "Fine-tuning language models from human preferences", as trainable RRR uses them (Ma et al.,
2023; docs/methods, "ERRR: PPO").

Symbols: a rollout is one generated text of T tokens, the actions a_t; states s_t are the tokens
before them. pi is the policy that is trained, pi_old the one that generated the rollout, pi_ref the
reference; rho_t = pi(a_t | s_t) / pi_old(a_t | s_t). ``where`` marks the real tokens of rollouts
that are padded on the right; padding has no effect. Logarithms are natural. Functions of [t] are
for one rollout; means are over arrays of any shape.
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
    """r_t = -beta (log pi_old(a_t | s_t) - log pi_ref(a_t | s_t)) + [t = T] R.

    Ziegler et al. (2019), equation 2. R is the ``score`` of the whole text, which a rollout without
    tokens loses; ``logprobs`` and ``reference`` are the two logarithms; beta (``coefficient``) is
    the weight of the KL penalty.
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
    """A_t = sum over l >= 0 of (gamma lambda)^l delta_(t+l), delta_t = r_t + gamma V_(t+1) - V_t.

    V_t (``values``) is the expected return before each token, 0 after the last one (Schulman et
    al., 2016, equations 11 to 16). gamma is the ``discount``, lambda the ``decay``: 0 gives the
    one-step differences, 1 returns minus values. Gradients are stopped; padding gets 0.
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
    """sum_i [where_i] x_i / sum_i [where_i]: mean of the values where true; 0 if there are none."""
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
    """(x - mean x) / sqrt(var x + epsilon), with mean and variance over ``where``; 0 outside it.

    x are ``values``, such as the advantages of a batch; without ``shift`` their mean is kept.
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
    """L = -mean_t min(rho_t A_t, clip(rho_t, 1 - epsilon, 1 + epsilon) A_t).

    Schulman et al. (2017), equation 7. The gradient of a token is 0 if its ratio is beyond the clip
    in the direction of its advantage, or if its advantage is 0, also where the ratio overflows. An
    overflowing ratio with a negative advantage gives an infinite loss. ``logprobs`` are
    log pi(a_t | s_t), ``old`` log pi_old(a_t | s_t), ``advantages`` A_t; epsilon is ``clip``.
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
    """L = 1/2 mean_t max((V_t - R_t)^2, (V'_t - R_t)^2), V' = V_old + clip(V - V_old, -c, c).

    As in Ziegler et al.'s code. V are the ``values``, V_old (``old``) those when the text was
    generated, R the ``returns``, c ``clip``; an infinite one does not clip.
    """
    values, old, returns = (jnp.where(where, x, 0.0) for x in (values, old, returns))
    clipped = old + jnp.clip(values - old, -clip, clip)
    larger = jnp.maximum(jnp.square(values - returns), jnp.square(clipped - returns))
    return 0.5 * masked_mean(larger, where=where)


def entropy(logits: Float[Array, "*n v"]) -> Float[Array, "*n"]:
    """H = -sum_v p_v log p_v of each distribution p = softmax(logits) over the vocabulary, in nats.

    A logit of -inf is a token of probability 0: it adds 0 to the entropy and has gradient 0.
    """
    logprobs = jax.nn.log_softmax(logits, axis=-1)
    possible = logprobs > -jnp.inf
    return -jnp.sum(jnp.exp(logprobs) * jnp.where(possible, logprobs, 0.0), axis=-1)


def approximate_kl(
    logprobs: Float[Array, "*n"], old: Float[Array, "*n"], *, where: Bool[Array, "*n"]
) -> Float[Array, ""]:
    """mean_t (rho_t - 1 - log rho_t) >= 0: estimate of KL(pi_old || pi) per token, in nats.

    From tokens of pi_old; estimator k3 of Schulman (2020), "Approximating KL divergence".
    Arguments as of `policy_loss`.
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
    """mean_t [|rho_t - 1| > epsilon]: share of clipped ratios. Arguments as of `policy_loss`."""
    ratio = jnp.exp(jnp.where(where, logprobs - old, 0.0))
    return masked_mean((jnp.abs(ratio - 1.0) > clip).astype(ratio.dtype), where=where)


def explained_variance(
    values: Float[Array, "*n"], returns: Float[Array, "*n"], *, where: Bool[Array, "*n"]
) -> Float[Array, ""]:
    """1 - Var(R - V) / Var(R), R returns, V values: 1 for perfect values, NaN for equal returns."""
    total, residual = _variance(returns, where), _variance(returns - values, where)
    return jnp.where(total > 0, 1.0 - residual / jnp.where(total > 0, total, 1.0), jnp.nan)


def adapted_coefficient(
    coefficient: Float[Array, ""], kl: Float[Array, ""], *, target: float, rate: float
) -> Float[Array, ""]:
    """beta (1 + K clip(KL / KL_target - 1, -0.2, 0.2)) (Ziegler et al., 2019, section 2.2).

    Args:
      coefficient: beta, weight of the KL penalty so far.
      kl: KL, measured, in nats per token (per text in the paper).
      target: KL_target, in the same unit.
      rate: K, 0.1 in the paper; in code with a horizon, texts of a batch / horizon. 0 keeps beta.
    """
    error = jnp.clip(kl / target - 1.0, -0.2, 0.2)
    return coefficient * (1.0 + rate * error)
