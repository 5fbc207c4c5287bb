"""What a step of PPO computes: values, advantages and updates of a policy that writes text.

The equations are those of `jaxrag.functional.ppo`. What is expected of a token is a linear function
of the state that predicts it; its loss changes that function alone, not the state.
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
from jaxrag.training.ppo_rollouts import Rollouts, written
from jaxrag.training.ppo_settings import Training
from jaxrag.training.students import Pairs, target_logprobs

Params = dict[str, Any]


class State(NamedTuple):
    """What training changes.

    Attributes:
      params: the network's under "policy", the value's {"weight" [d], "bias"} under "value".
      optimiser: of both.
      coefficient: beta of the KL penalty.
    """

    params: Params
    optimiser: Any
    coefficient: Float[Array, ""]


class Step(NamedTuple):
    """The functions of a training step, compiled once.

    Attributes:
      begin: parameters of the policy -> the state that training begins with.
      look: (parameters, pairs) -> log-probabilities and values [b t].
      judge: (beta, pairs, scores, log-probabilities, those of the reference, values) -> rollouts.
      update: (state, rollouts, rows of them) -> (state, figures); the given state is used up.
      control: (state, rollouts) -> (state with the next beta, figures).
    """

    begin: Callable[[Params], State]
    look: Callable[[Params, Pairs], tuple[Array, Array]]
    judge: Callable[..., Rollouts]
    update: Callable[[State, Rollouts, Int[np.ndarray, " b"]], tuple[State, dict[str, Array]]]
    control: Callable[[State, Rollouts], tuple[State, dict[str, Array]]]


def no_value(module: Any) -> Params:
    """A value function of a network's states that expects nothing."""
    features = getattr(module.config, "d_model", None) or module.config.hidden_size
    return {"weight": jnp.zeros(features), "bias": jnp.zeros(())}


def value_of(value: Params, hidden: Float[Array, "*n d"]) -> Float[Array, "*n"]:
    """Linear in the states, which its gradient does not reach."""
    return jax.lax.stop_gradient(hidden) @ value["weight"] + value["bias"]


@functools.cache
def make_step(module: Any, settings: Training) -> Step:
    """The functions of a training; the same ones, compiled once, for equal arguments.

    Args:
      module: a student's network.
      settings: how.
    """
    optimiser = settings.optimiser()
    objective = partial(_objective, module, settings)

    def begin(policy: Params) -> State:
        # copies, since the state is used up and the reference is needed to the end
        params = {"policy": jax.tree.map(jnp.array, policy), "value": no_value(module)}
        return State(params, optimiser.init(params), jnp.float32(settings.kl.coefficient))

    def look(params: Params, pairs: Pairs) -> tuple[Array, Array]:
        def some(part: Pairs) -> tuple[Array, Array]:
            logprobs, hidden = target_logprobs(module, params["policy"], part)
            return logprobs, value_of(params["value"], hidden)

        def parts(array: Array) -> Array:
            return array.reshape(-1, settings.batch, *array.shape[1:])

        found = jax.lax.map(some, jax.tree.map(parts, pairs))
        return jax.tree.map(lambda array: array.reshape(-1, array.shape[-1]), found)

    def update(
        state: State, rollouts: Rollouts, rows: Int[Array, " b"]
    ) -> tuple[State, dict[str, Array]]:
        batch = jax.tree.map(lambda array: array[rows], rollouts)
        (_, figures), slopes = jax.value_and_grad(objective, has_aux=True)(state.params, batch)
        updates, inner = optimiser.update(slopes, state.optimiser, state.params)
        params: Any = optax.apply_updates(state.params, updates)  # pyright: ignore
        new = State(params, inner, state.coefficient)
        if settings.kl_bound:  # beyond it nothing changes
            near = figures["approximate_kl"] <= settings.kl_bound
            new = jax.tree.map(partial(jnp.where, near), new, state)
        return new, figures | {"norm": optax.tree.norm(slopes["policy"])}

    def control(state: State, rollouts: Rollouts) -> tuple[State, dict[str, Array]]:
        where, how = rollouts.where, settings.kl
        kl = ppo.mean(rollouts.logprobs - rollouts.reference, where=where)
        beta = ppo.controlled(state.coefficient, kl, target=how.target, rate=how.rate)
        surprisal = ppo.mean(-rollouts.logprobs, where=where)
        return state._replace(coefficient=beta), {"kl": kl, "surprisal": surprisal}

    return Step(
        begin,
        jax.jit(look),
        jax.jit(partial(_judge, settings)),
        jax.jit(update, donate_argnums=0),
        jax.jit(control, donate_argnums=0),
    )


def _judge(
    settings: Training,
    coefficient: Float[Array, ""],
    pairs: Pairs,
    scores: Float[Array, " b"],
    logprobs: Float[Array, "b t"],
    reference: Float[Array, "b t"],
    values: Float[Array, "b t"],
) -> Rollouts:
    """What each token was worth."""
    where = written(pairs)

    def paid(score: Array, mine: Array, first: Array, there: Array) -> Array:
        return ppo.token_rewards(score, mine, first, coefficient=coefficient, where=there)

    def found(rewards: Array, values: Array, there: Array) -> ppo.Advantages:
        how = {"discount": settings.discount, "decay": settings.decay}
        return ppo.estimate(rewards, values, where=there, **how)

    rewards = jax.vmap(paid)(scores, logprobs, reference, where)
    if settings.whiten_rewards:
        rewards = ppo.whiten(rewards, where=where, shift=False)
    advantages, returns = jax.vmap(found)(rewards, values, where)
    advantages = ppo.whiten(advantages, where=where)
    return Rollouts(pairs, scores, logprobs, reference, values, advantages, returns)


def _objective(
    module: Any, settings: Training, params: Params, batch: Rollouts
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The loss of a batch and its figures."""
    where, old = batch.where, batch.logprobs
    logprobs, hidden = target_logprobs(module, params["policy"], batch.pairs)
    values = value_of(params["value"], hidden)
    policy = ppo.policy_loss(logprobs, old, batch.advantages, clip=settings.clip, where=where)
    near = settings.value_clip or float("inf")
    value = ppo.value_loss(values, batch.values, batch.returns, clip=near, where=where)
    loss, figures = policy + settings.value_weight * value, {}
    if settings.entropy_weight:
        entropy = ppo.mean(_entropy(module, params["policy"], hidden), where=where)
        loss, figures = loss - settings.entropy_weight * entropy, {"entropy": entropy}
    return loss, figures | {
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
