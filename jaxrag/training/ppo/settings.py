"""How a text generator is trained by PPO: rollouts, passes over them, objective, KL control."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable

import optax

from jaxrag.types import InputError


def check(name: str, value: float, *, high: float = math.inf) -> None:
    """Refuses a setting that is below 0, above ``high`` or no number.

    Raises:
      InputError: naming it.
    """
    if not (0 <= value <= high and math.isfinite(value)):
        allowed = f"from 0 to {high:g}" if math.isfinite(high) else "0 or more"
        raise InputError(f"{name} is {value}; it is to be {allowed}.")


@dataclasses.dataclass(frozen=True)
class KlControl:
    """The penalty for moving away from the policy that training begins with.

    Attributes:
      coefficient: beta of the first step.
      target: the divergence that is wanted, in nats a token.
      rate: how fast beta follows, K of Ziegler et al. (2019); 0 keeps beta as it is. Where others
        give a horizon, it is texts of a step / horizon.
    """

    coefficient: float = 0.001
    target: float = 0.2
    rate: float = 0.1

    def __post_init__(self) -> None:
        check("kl.coefficient", self.coefficient)
        check("kl.rate", self.rate, high=1.0)
        if not 0 < self.target < math.inf:
            raise InputError(f"kl.target is {self.target}; it is to be above 0.")


@dataclasses.dataclass(frozen=True)
class Training:
    """The training of trainable RRR (Ma et al., 2023; METHODS section 4.4).

    Defaults are the released code's where it fits: learning rate 2e-6, 2 passes, beta 0.001 with
    target 0.2, gamma 0.99, lambda 0.95, clip 0.2, values not clipped, their loss by a half, norm at
    most 0.5, no entropy bonus, advantages whitened. It differs in that its batches are of 16
    tokens, out of 4,096 of a step, and its values come from a network of their own; here a batch is
    of texts, and values are a linear function of the policy's states, which they do not change. It
    gives no count of steps.

    Attributes:
      steps: how many; 0 takes ``epochs``. A step asks, rewards and learns.
      epochs: how often each question is asked.
      rollouts: texts of a step, each to another question.
      batch: texts of an update.
      passes: how often a step's texts are learned from.
      discount, decay: gamma and lambda of the advantages.
      clip: how far a token's probability may move in a step, as a ratio.
      value_clip: how far a value may; 0 does not clip.
      value_weight, entropy_weight: of the value's loss, and of the entropy that is wanted.
      whiten_rewards: whether a step's rewards of tokens get a standard deviation of 1.
      kl: control of the divergence from the first policy.
      kl_bound: divergence from the policy that wrote the texts, in nats a token, beyond which a
        step's other updates are left out; 0 leaves none out.
      learning_rate: of the network, constant.
      value_learning_rate: of the value's weights, which begin with 0.
      weight_decay: AdamW's, of the network.
      clip_norm: largest norm of the network's gradient; 0 clips nothing.
      seed: of the questions' order and of what is drawn.
      save_every, watch_every: steps between checkpoints, and between evaluations on the questions
        held out; 0 never evaluates.
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
    watch_every: int = 0

    def __post_init__(self) -> None:
        if self.steps < 0 or self.seed < 0 or not 0 < self.epochs < math.inf:
            raise InputError(
                f"steps is {self.steps}, epochs {self.epochs} and seed {self.seed}: epochs is to "
                "be above 0, the others 0 or more."
            )
        if min(self.rollouts, self.batch, self.passes) < 1 or self.rollouts % self.batch:
            raise InputError(
                f"rollouts is {self.rollouts}, batch {self.batch} and passes {self.passes}: each "
                "is to be at least 1, and a step's rollouts a whole number of batches."
            )
        for name in ("discount", "decay"):
            check(name, getattr(self, name), high=1.0)
        if not 0 < self.clip < 1:
            raise InputError(f"clip is {self.clip}; it is to be above 0 and below 1.")
        for name in ("value_clip", "value_weight", "entropy_weight", "kl_bound", "learning_rate"):
            check(name, getattr(self, name))
        for name in ("value_learning_rate", "weight_decay", "clip_norm"):
            check(name, getattr(self, name))

    def steps_over(self, questions: int) -> int:
        """Steps of a training on so many questions."""
        return self.steps or max(1, round(self.epochs * questions / self.rollouts))

    def optimiser(self) -> optax.GradientTransformation:
        """AdamW of the tree {"policy": ..., "value": ...}, each part at its own rate."""
        adamw = optax.adamw(self.learning_rate, weight_decay=self.weight_decay)
        clipped = optax.chain(optax.clip_by_global_norm(self.clip_norm), adamw)
        parts: dict[Hashable, optax.GradientTransformation] = {
            "policy": clipped if self.clip_norm else adamw,
            "value": optax.adam(self.value_learning_rate),
        }
        return optax.multi_transform(parts, {"policy": "policy", "value": "value"})
