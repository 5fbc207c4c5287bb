"""Settings of PPO for a text generator: rollouts, epochs over them, objective, KL control."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable

import optax

from jaxrag.training.optimisation import check_length, make_optimiser
from jaxrag.types import InputError


def check(name: str, value: float, *, high: float = math.inf) -> None:
    """Raises InputError, naming the setting, where it is below 0, above ``high`` or not finite."""
    if not (0 <= value <= high and math.isfinite(value)):
        allowed = f"from 0 to {high:g}" if math.isfinite(high) else "0 or more"
        raise InputError(f"{name} is {value}; it must be {allowed}.")


@dataclasses.dataclass(frozen=True)
class KlControl:
    """The penalty on KL divergence from the initial policy, with adaptive coefficient beta.

    Attributes:
      coefficient: initial beta.
      target: target divergence, nats per token.
      rate: K of Ziegler et al. (2019), how fast beta adapts; 0 keeps it constant. For a "horizon",
        rate = texts per step / horizon.
    """

    coefficient: float = 0.001
    target: float = 0.2
    rate: float = 0.1

    def __post_init__(self) -> None:
        check("kl.coefficient", self.coefficient)
        check("kl.rate", self.rate, high=1.0)
        if not 0 < self.target < math.inf:
            raise InputError(f"kl.target is {self.target}; it must be above 0.")


@dataclasses.dataclass(frozen=True)
class PPOTraining:
    """PPO of trainable RRR (Ma et al., 2023; docs/methods.md, "ERRR: PPO").

    Defaults are those of the released code where they apply: learning rate 2e-6, 2 passes, beta
    0.001 with target 0.2, gamma 0.99, lambda 0.95, clip 0.2, values not clipped, value loss
    weighted by 0.5, gradient norm at most 0.5, no entropy bonus, advantages whitened. The released
    code differs: its batches are of 16 tokens out of 4,096 of a step, and its values come from a
    separate network; here a batch is of texts, and values are a linear function of the policy's
    hidden states, without gradient to them. It does not state the number of steps.

    Attributes:
      steps: how many; 0 derives them from ``epochs``. A step samples, rewards and updates.
      epochs: how often each question is sampled for.
      rollouts: texts of a step, each for another question.
      batch: texts of an update.
      passes: passes over a step's texts.
      discount, decay: gamma and lambda of generalised advantage estimation.
      clip: epsilon of the clipped objective, on the ratio of probabilities.
      value_clip: the same for values; 0 does not clip.
      value_weight, entropy_weight: weights of value loss and entropy bonus.
      whiten_rewards: whether a step's token rewards are scaled to a standard deviation of 1.
      kl: control of the divergence from the initial policy.
      kl_bound: divergence from the sampling policy, nats per token, beyond which the rest of a
        step's updates is skipped; 0 skips none.
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
    value_clip: float = 0.0
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    whiten_rewards: bool = False
    kl: KlControl = KlControl()
    kl_bound: float = 0.0
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
        for name in ("discount", "decay"):
            check(name, getattr(self, name), high=1.0)
        if not 0 < self.clip < 1:
            raise InputError(f"clip is {self.clip}; it must be above 0 and below 1.")
        for name in ("value_clip", "value_weight", "entropy_weight", "kl_bound", "learning_rate"):
            check(name, getattr(self, name))
        for name in ("value_learning_rate", "weight_decay", "clip_norm"):
            check(name, getattr(self, name))

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
