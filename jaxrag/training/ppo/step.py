"""Settings of PPO and the compiled functions of a step: values, advantages, updates.

The equations are in `jaxrag.functional.ppo`. A token's value is a linear function of the
hidden state that predicts it; the value loss has no gradient to that state.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jaxrag.core.checks import check_positive, check_range
from jaxrag.functional import ppo
from jaxrag.models.precision import matmul_precision
from jaxrag.training.optimisation import check_length, make_optimiser
from jaxrag.training.ppo.rollouts import Rollouts, target_mask
from jaxrag.training.step import TrainState, descend
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.student import TokenPairs
from jaxrag.types import InputError

Params = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class KlControl:
    """The penalty on KL divergence from the initial policy, with adaptive coefficient beta.

    ``coefficient`` is the initial beta, ``target`` the divergence in nats per token, ``rate`` K of
    Ziegler et al. (2019), how fast beta adapts; 0 keeps it constant. For a "horizon", rate = texts
    per step / horizon.
    """

    coefficient: float = 0.001
    target: float = 0.2
    rate: float = 0.1

    def __post_init__(self) -> None:
        check_range(**{"kl.coefficient": self.coefficient})
        check_range(1.0, **{"kl.rate": self.rate})
        check_positive(**{"kl.target": self.target})


@dataclasses.dataclass(frozen=True)
class PPOTraining:
    """PPO of trainable RRR (Ma et al., 2023; docs/methods, "ERRR: PPO").

    Defaults are those of the released code where they apply. Here a batch is of texts (there of 16
    tokens out of 4,096 of a step), and values are a linear function of the policy's hidden states
    (there a network).

    Attributes:
      steps: how many; 0 derives them from ``epochs``. A step samples, rewards and updates.
      epochs: how often each question is sampled for.
      rollouts: texts of a step, each for another question.
      batch: texts of an update.
      passes: passes over a step's texts.
      discount, decay: gamma and lambda of generalised advantage estimation.
      clip: epsilon of the clipped objective, on the ratio of probabilities.
      value_weight: weight of the value loss.
      learning_rate: of the network, constant.
      value_learning_rate: of the value weights, which start at 0.
      weight_decay: AdamW's, of the network.
      clip_norm: largest norm of the network's gradient; 0 does not clip.
      seed: of the order of questions and of sampling.
      save_every, evaluate_every: steps between checkpoints, and between evaluations on held-out
        questions; 0 never evaluates.
    """

    steps: int = 0
    epochs: float = 3.0
    rollouts: int = 128
    batch: int = 16
    passes: int = 2
    discount: float = 0.99
    decay: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    kl: KlControl = KlControl()
    learning_rate: float = 2e-6
    value_learning_rate: float = 1e-3
    weight_decay: float = 0.0
    clip_norm: float = 0.5
    seed: int = 0
    save_every: int = 5
    evaluate_every: int = 0

    def __post_init__(self) -> None:
        check_length(self.steps, self.epochs, self.seed)
        if min(self.rollouts, self.batch, self.passes) < 1 or self.rollouts % self.batch:
            raise InputError(
                f"rollouts is {self.rollouts}, batch {self.batch} and passes {self.passes}: each "
                "must be at least 1, and rollouts a multiple of batch."
            )
        check_range(1.0, discount=self.discount, decay=self.decay)
        if not 0 < self.clip < 1:
            raise InputError(f"clip is {self.clip}; it must be above 0 and below 1.")
        check_range(
            value_weight=self.value_weight,
            learning_rate=self.learning_rate,
            value_learning_rate=self.value_learning_rate,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
        )

    def steps_over(self, questions: int) -> int:
        """Steps of a training on ``questions`` questions."""
        return self.steps or max(1, round(self.epochs * questions / self.rollouts))

    def optimiser(self) -> optax.GradientTransformation:
        """AdamW for the policy, Adam for the value weights: {"policy": ..., "value": ...}."""
        parts: dict[Hashable, optax.GradientTransformation] = {
            "policy": make_optimiser(
                self.learning_rate, weight_decay=self.weight_decay, clip=self.clip_norm
            ),
            "value": optax.adam(self.value_learning_rate),
        }
        return optax.multi_transform(parts, {"policy": "policy", "value": "value"})


class PPOState(NamedTuple):
    """State of a PPO training; ``coefficient`` is beta of the KL penalty.

    ``params`` has the network under "policy", and {"weight" [d], "bias"} under "value".
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
    with matmul_precision(hidden.dtype):
        return jax.lax.stop_gradient(hidden) @ value["weight"] + value["bias"]


@functools.cache
def make_step(module: Any, settings: PPOTraining) -> PPOStep:
    """The functions of a training step; cached, so equal arguments compile once."""
    optimiser = settings.optimiser()
    objective = partial(_objective, module, settings)

    def begin(policy: Params) -> PPOState:
        # copies: the state is donated, but the reference parameters are needed to the end
        params = {"policy": jax.tree.map(jnp.array, policy), "value": zero_value(module)}
        return PPOState(params, optimiser.init(params), jnp.float32(settings.kl.coefficient))

    def score(params: Params, pairs: TokenPairs) -> tuple[Array, Array]:
        def score_batch(part: TokenPairs) -> tuple[Array, Array]:
            logprobs, hidden = target_logprobs(module, params["policy"], part)
            return logprobs, predict_values(params["value"], hidden)

        def parts(array: Array) -> Array:
            return array.reshape(-1, settings.batch, *array.shape[1:])

        outputs = jax.lax.map(score_batch, jax.tree.map(parts, pairs))
        return jax.tree.map(lambda array: array.reshape(-1, array.shape[-1]), outputs)

    def update(
        state: PPOState, rollouts: Rollouts, rows: Int[Array, " b"]
    ) -> tuple[PPOState, dict[str, Array]]:
        batch = jax.tree.map(lambda array: array[rows], rollouts)
        (_, metrics), gradients = jax.value_and_grad(objective, has_aux=True)(state.params, batch)
        trained = TrainState(state.params, state.optimiser)
        new = PPOState(*descend(optimiser, trained, gradients), state.coefficient)
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

    def token_rewards(score: Array, policy: Array, initial: Array, mask: Array) -> Array:
        return ppo.token_rewards(score, policy, initial, coefficient=coefficient, where=mask)

    def estimate(rewards: Array, values: Array, mask: Array) -> ppo.Advantages:
        how = {"discount": settings.discount, "decay": settings.decay}
        return ppo.generalized_advantages(rewards, values, where=mask, **how)

    rewards = jax.vmap(token_rewards)(scores, logprobs, reference, where)
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
    value = ppo.value_loss(values, batch.values, batch.returns, clip=float("inf"), where=where)
    loss = policy + settings.value_weight * value
    return loss, {
        "loss": loss,
        "policy_loss": policy,
        "value_loss": value,
        "approximate_kl": ppo.approximate_kl(logprobs, old, where=where),
        "clip_fraction": ppo.clip_fraction(logprobs, old, clip=settings.clip, where=where),
    }
