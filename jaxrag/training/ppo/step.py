"""Compiled functions of a PPO step: values, advantages and updates of a text-generating policy.

The equations are those of `jaxrag.functional.ppo`. A token's value is a linear function of the
hidden state that predicts it; the value loss has no gradient to that state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jaxrag.functional import ppo
from jaxrag.training.ppo.rollouts import Rollouts, target_mask
from jaxrag.training.ppo.settings import PPOTraining
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.student import TokenPairs

Params = dict[str, Any]


class PPOState(NamedTuple):
    """What a PPO step changes.

    Attributes:
      params: the network's under "policy", and {"weight" [d], "bias"} under "value".
      optimiser: of both.
      coefficient: beta of the KL penalty.
    """

    params: Params
    optimiser: Any
    coefficient: Float[Array, ""]


class PPOStep(NamedTuple):
    """The functions of a training step, compiled once.

    Attributes:
      begin: parameters of the policy -> initial state.
      score: (parameters, pairs) -> log-probabilities and values [b t].
      advantages: (beta, pairs, rewards of texts, log-probabilities, reference log-probabilities,
        values) -> rollouts.
      update: (state, rollouts, rows of the batch) -> (state, metrics); donates the given state.
      control: (state, rollouts) -> (state with the next beta, metrics); donates the given state.
    """

    begin: Callable[[Params], PPOState]
    score: Callable[[Params, TokenPairs], tuple[Array, Array]]
    advantages: Callable[..., Rollouts]
    update: Callable[[PPOState, Rollouts, Int[np.ndarray, " b"]], tuple[PPOState, dict[str, Array]]]
    control: Callable[[PPOState, Rollouts], tuple[PPOState, dict[str, Array]]]


def zero_value(module: Any) -> Params:
    """Weights of a value function that predicts 0."""
    features = getattr(module.config, "d_model", None) or module.config.hidden_size
    return {"weight": jnp.zeros(features), "bias": jnp.zeros(())}


def predict_values(value: Params, hidden: Float[Array, "*n d"]) -> Float[Array, "*n"]:
    """Predicted returns, linear in the hidden states, without gradient to them."""
    return jax.lax.stop_gradient(hidden) @ value["weight"] + value["bias"]


@functools.cache
def make_step(module: Any, settings: PPOTraining) -> PPOStep:
    """The functions of a training step; equal arguments give the same compiled ones."""
    optimiser = settings.optimiser()
    objective = partial(_objective, module, settings)

    def begin(policy: Params) -> PPOState:
        # copies, since the state is used up and the reference is needed to the end
        params = {"policy": jax.tree.map(jnp.array, policy), "value": zero_value(module)}
        return PPOState(params, optimiser.init(params), jnp.float32(settings.kl.coefficient))

    def score(params: Params, pairs: TokenPairs) -> tuple[Array, Array]:
        def score_batch(part: TokenPairs) -> tuple[Array, Array]:
            logprobs, hidden = target_logprobs(module, params["policy"], part)
            return logprobs, predict_values(params["value"], hidden)

        def parts(array: Array) -> Array:
            return array.reshape(-1, settings.batch, *array.shape[1:])

        found = jax.lax.map(score_batch, jax.tree.map(parts, pairs))
        return jax.tree.map(lambda array: array.reshape(-1, array.shape[-1]), found)

    def update(
        state: PPOState, rollouts: Rollouts, rows: Int[Array, " b"]
    ) -> tuple[PPOState, dict[str, Array]]:
        batch = jax.tree.map(lambda array: array[rows], rollouts)
        (_, metrics), gradients = jax.value_and_grad(objective, has_aux=True)(state.params, batch)
        updates, inner = optimiser.update(gradients, state.optimiser, state.params)
        params: Any = optax.apply_updates(state.params, updates)  # pyright: ignore
        new = PPOState(params, inner, state.coefficient)
        if settings.kl_bound:  # beyond it nothing changes
            near = metrics["approximate_kl"] <= settings.kl_bound
            new = jax.tree.map(partial(jnp.where, near), new, state)
        return new, metrics | {"norm": optax.tree.norm(gradients["policy"])}

    def control(state: PPOState, rollouts: Rollouts) -> tuple[PPOState, dict[str, Array]]:
        where, how = rollouts.where, settings.kl
        kl = ppo.masked_mean(rollouts.logprobs - rollouts.reference, where=where)
        beta = ppo.adapted_coefficient(state.coefficient, kl, target=how.target, rate=how.rate)
        surprisal = ppo.masked_mean(-rollouts.logprobs, where=where)
        return state._replace(coefficient=beta), {"kl": kl, "surprisal": surprisal}

    return PPOStep(
        begin,
        jax.jit(score),
        jax.jit(partial(_advantages, settings)),
        jax.jit(update, donate_argnums=0),
        jax.jit(control, donate_argnums=0),
    )


def _advantages(
    settings: PPOTraining,
    coefficient: Float[Array, ""],
    pairs: TokenPairs,
    scores: Float[Array, " b"],
    logprobs: Float[Array, "b t"],
    reference: Float[Array, "b t"],
    values: Float[Array, "b t"],
) -> Rollouts:
    """Rewards, advantages and returns of each token."""
    where = target_mask(pairs)

    def token_rewards(score: Array, own: Array, initial: Array, mask: Array) -> Array:
        return ppo.token_rewards(score, own, initial, coefficient=coefficient, where=mask)

    def estimate(rewards: Array, values: Array, mask: Array) -> ppo.Advantages:
        how = {"discount": settings.discount, "decay": settings.decay}
        return ppo.generalized_advantages(rewards, values, where=mask, **how)

    rewards = jax.vmap(token_rewards)(scores, logprobs, reference, where)
    if settings.whiten_rewards:
        rewards = ppo.whiten(rewards, where=where, shift=False)
    advantages, returns = jax.vmap(estimate)(rewards, values, where)
    advantages = ppo.whiten(advantages, where=where)
    return Rollouts(pairs, scores, logprobs, reference, values, advantages, returns)


def _objective(
    module: Any, settings: PPOTraining, params: Params, batch: Rollouts
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Loss of a batch, and its metrics."""
    where, old = batch.where, batch.logprobs
    logprobs, hidden = target_logprobs(module, params["policy"], batch.pairs)
    values = predict_values(params["value"], hidden)
    policy = ppo.policy_loss(logprobs, old, batch.advantages, clip=settings.clip, where=where)
    clip = settings.value_clip or float("inf")
    value = ppo.value_loss(values, batch.values, batch.returns, clip=clip, where=where)
    loss, metrics = policy + settings.value_weight * value, {}
    if settings.entropy_weight:
        entropy = ppo.masked_mean(_entropy(module, params["policy"], hidden), where=where)
        loss, metrics = loss - settings.entropy_weight * entropy, {"entropy": entropy}
    return loss, metrics | {
        "loss": loss,
        "policy_loss": policy,
        "value_loss": value,
        "approximate_kl": ppo.approximate_kl(logprobs, old, where=where),
        "clip_fraction": ppo.clip_fraction(logprobs, old, clip=settings.clip, where=where),
    }


def _entropy(module: Any, policy: Params, hidden: Float[Array, "b t d"]) -> Float[Array, "b t"]:
    flat = hidden.reshape(-1, hidden.shape[-1]).astype(module.dtype)
    logits: Any = module.apply({"params": policy}, flat, method="logits")
    return ppo.entropy(logits).reshape(hidden.shape[:-1])
