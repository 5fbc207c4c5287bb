"""Proximal policy optimisation of a text generator: rewards, advantages, objectives, KL control.

Schulman et al. (2017), "Proximal policy optimization algorithms", with generalised advantages
(Schulman et al., 2016); rewards with a KL penalty and its control are those of Ziegler et al.
(2019), "Fine-tuning language models from human preferences", as trainable RRR has them (Ma et al.,
2023; docs/methods.md, "ERRR: PPO"). A rollout is one generated text: an action is a token, and what
was generated before it is the state. Rollouts are padded on the right: ``where`` tells which tokens
are there, and the rest change nothing. All logarithms are natural.

What is written for one rollout [t] is ``vmap``ped by its caller; what is a mean takes any shape.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float


class Advantages(NamedTuple):
    """How much better a token did than was expected, and what was to be expected.

    Attributes:
      advantages: A_t.
      returns: A_t + V_t, which the value is to learn.
    """

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
    """r_t = -beta (log pi(a_t) - log pi_ref(a_t)), and the task's reward beside it at the last one.

    Ziegler et al. (2019), equation 2. A rollout without a token has no rewards, and its score is
    lost.

    Args:
      score: what the whole text is worth.
      logprobs: of each token by the policy that wrote it.
      reference: by the policy that it is to stay near to.
      coefficient: beta.
      where: which tokens are there.
    """
    apart = jnp.where(where, logprobs - reference, 0.0)
    last = where & ~jnp.append(where[1:], False)
    return -coefficient * apart + jnp.where(last, score, 0.0)


def estimate(
    rewards: Float[Array, " t"],
    values: Float[Array, " t"],
    *,
    discount: float = 1.0,
    decay: float = 0.95,
    where: Bool[Array, " t"],
) -> Advantages:
    """Generalised advantages: A_t = sum over l of (gamma lambda)^l delta_(t + l).

    delta_t = r_t + gamma V_(t+1) - V_t, with V = 0 after the last token, where the text is over
    (Schulman et al., 2016, equations 11 to 16). The gradient does not go through what is returned.

    Args:
      rewards: of each token.
      values: expected return before each token is written.
      discount: gamma.
      decay: lambda; 0 is the one-step difference, 1 the return less the value.
      where: which tokens are there.

    Returns:
      Zeros where no token is.
    """
    rewards, values = jnp.where(where, rewards, 0.0), jnp.where(where, values, 0.0)
    deltas = rewards + discount * jnp.append(values[1:], 0.0) - values

    def step(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, there = now
        found = jnp.where(there, delta + discount * decay * later, 0.0)
        return found, found

    _, advantages = lax.scan(step, jnp.zeros_like(deltas[0]), (deltas, where), reverse=True)
    return Advantages(*map(lax.stop_gradient, (advantages, advantages + values)))


def mean(values: Float[Array, "*n"], *, where: Bool[Array, "*n"]) -> Float[Array, ""]:
    """The mean of what is there; 0 of nothing."""
    return jnp.where(where, values, 0.0).sum() / jnp.maximum(where.sum(), 1)


def variance(values: Float[Array, "*n"], *, where: Bool[Array, "*n"]) -> Float[Array, ""]:
    """The mean squared distance from the mean, of what is there; 0 of nothing."""
    return mean(jnp.square(values - mean(values, where=where)), where=where)


def whiten(
    values: Float[Array, "*n"],
    *,
    where: Bool[Array, "*n"],
    shift: bool = True,
    epsilon: float = 1e-8,
) -> Float[Array, "*n"]:
    """Values over their standard deviation, with mean 0; zeros where there is none.

    Args:
      values: such as the advantages of all tokens of a batch.
      where: which of them count.
      shift: whether the mean becomes 0; otherwise it is kept as it was.
      epsilon: added to the variance.
    """
    middle = mean(values, where=where)
    white = (values - middle) * lax.rsqrt(variance(values, where=where) + epsilon)
    return jnp.where(where, white if shift else white + middle, 0.0)


def policy_loss(
    logprobs: Float[Array, "*n"],
    old: Float[Array, "*n"],
    advantages: Float[Array, "*n"],
    *,
    clip: float,
    where: Bool[Array, "*n"],
) -> Float[Array, ""]:
    """-mean of min(rho A, clip(rho, 1 - clip, 1 + clip) A), rho = pi(a) / pi_old(a).

    Schulman et al. (2017), equation 7. A token whose ratio is beyond the clip in the direction of
    its advantage has no gradient, nor has a token of advantage 0, even if the ratio overflows. An
    overflowing ratio of a negative advantage gives an infinite loss.

    Args:
      logprobs: of each token by the policy that learns.
      old: by the policy that wrote it.
      advantages: of each token.
      clip: epsilon.
      where: which tokens are there.
    """
    log_ratio = jnp.where(where, logprobs - old, 0.0)
    ratio = lax.stop_gradient(jnp.exp(log_ratio))
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    # Where the clipped term is the minimum, the exponential must not be in the graph: its
    # derivative may be infinite, and 0 times inf is NaN.
    constant = (advantages == 0.0) | (clipped * advantages < ratio * advantages)
    ratio = jnp.where(constant, clipped, jnp.exp(jnp.where(constant, 0.0, log_ratio)))
    return -mean(ratio * advantages, where=where)


def value_loss(
    values: Float[Array, "*n"],
    old: Float[Array, "*n"],
    returns: Float[Array, "*n"],
    *,
    clip: float,
    where: Bool[Array, "*n"],
) -> Float[Array, ""]:
    """Half the mean squared error of the values, the worse one of two.

    The other one is of values that are kept within ``clip`` of what they were when the text was
    written (the clipped value loss of Ziegler et al.'s code); infinity does not clip.
    """
    values, old, returns = (jnp.where(where, x, 0.0) for x in (values, old, returns))
    near = old + jnp.clip(values - old, -clip, clip)
    worse = jnp.maximum(jnp.square(values - returns), jnp.square(near - returns))
    return 0.5 * mean(worse, where=where)


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
    """KL(pi_old || pi) for each token, from tokens that pi_old drew: mean of rho - 1 - log rho.

    Never below 0, and its mean over draws is the divergence (Schulman, 2020, "Approximating KL
    divergence", estimator k3).
    """
    log_ratio = jnp.where(where, logprobs - old, 0.0)
    return mean(jnp.expm1(log_ratio) - log_ratio, where=where)


def clip_fraction(
    logprobs: Float[Array, "*n"],
    old: Float[Array, "*n"],
    *,
    clip: float,
    where: Bool[Array, "*n"],
) -> Float[Array, ""]:
    """Share of the tokens whose ratio lies beyond 1 - clip or 1 + clip."""
    ratio = jnp.exp(jnp.where(where, logprobs - old, 0.0))
    return mean((jnp.abs(ratio - 1.0) > clip).astype(ratio.dtype), where=where)


def explained_variance(
    values: Float[Array, "*n"], returns: Float[Array, "*n"], *, where: Bool[Array, "*n"]
) -> Float[Array, ""]:
    """1 - Var(returns - values) / Var(returns): 1 of perfect values; NaN where all are alike."""
    spread = variance(returns, where=where)
    left = variance(returns - values, where=where)
    return jnp.where(spread > 0, 1.0 - left / jnp.where(spread > 0, spread, 1.0), jnp.nan)


def controlled(
    coefficient: Float[Array, ""],
    kl: Float[Array, ""],
    *,
    target: float,
    rate: float,
) -> Float[Array, ""]:
    """beta (1 + K e) with e = clip((kl - target) / target, -0.2, 0.2) (Ziegler et al., 2019, 2.2).

    Args:
      coefficient: beta so far.
      kl: what was measured, in nats a token (Ziegler et al.: a text).
      target: what is wanted.
      rate: K, 0.1 in the paper; where a horizon is given, texts of a batch / horizon. 0 fixes beta.
    """
    error = jnp.clip(kl / target - 1.0, -0.2, 0.2)
    return coefficient * (1.0 + rate * error)
