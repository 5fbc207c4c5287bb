"""Settings of a bandit's training: reward schemes, policies, and the length of the training."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxrag.core.checks import check_choices, check_limits, check_positive, check_range
from jaxrag.functional import rewards
from jaxrag.functional.bandits import neural_ucb
from jaxrag.functional.bandits.confidence import Confidence, diagonal, full, zero_width
from jaxrag.functional.bandits.confidence_dual import dual
from jaxrag.functional.bandits.interaction import Bandit
from jaxrag.functional.bandits.policies import epsilon_greedy, linear_ucb, thompson
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class RewardScheme:
    """The reward of an arm, from the base reward and K.

    Attributes:
      first, slope: reward = base * w_k with w_k = first - slope * k.
      penalty: lambda; if set, reward = base - lambda * k instead.
    """

    first: float = rewards.FIRST
    slope: float = rewards.SLOPE
    penalty: float | None = None

    def __post_init__(self) -> None:
        for name in ("first", "slope", "penalty"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise InputError(f"{name} is {value!r}; give a finite number.")
        if self.penalty is not None and self.penalty < 0:
            raise InputError(
                f"penalty is {self.penalty}: lambda * k is subtracted, so give 0 or more."
            )

    @property
    def name(self) -> str:
        """The name in tables and file names."""
        return "weighted" if self.penalty is None else f"lambda {self.penalty:g}"

    def rewards(self, base: Float[np.ndarray, "q a"]) -> Float[np.ndarray, "q a"]:
        """The rewards, from base rewards; InputError where a weight is below 0."""
        raw = jnp.asarray(base, jnp.float32)
        if self.penalty is not None:
            return np.asarray(rewards.penalised(raw, self.penalty))
        weights = rewards.falling_weights(raw.shape[1], first=self.first, slope=self.slope)
        if weights.min() < 0:
            raise InputError(
                f"The weights {self.first:g} - {self.slope:g} k fall to {weights.min():g} at "
                f"K = {raw.shape[1]}; a right answer must not earn less than a wrong one. Set a "
                "higher first or a smaller slope."
            )
        return np.asarray(rewards.weighted(raw, weights))


ConfidenceForm = Literal["diagonal", "full", "dual"]


@dataclasses.dataclass(frozen=True)
class NeuralUcb:
    """ARS-RAG's bandit: a network and a matrix Z for every arm (eqs 10-12).

    Attributes:
      beta: exploration factor (not in the paper). If it is small against the rewards, which reach
        2.8, each question keeps playing the first arm with a reward above 0.
      regularization: lambda; Z starts as lambda times the identity.
      learning_rate: of SGD (not in the paper; 0.01 in Zhou et al.'s public code).
      confidence: "diagonal" keeps the diagonal of Z, as Zhou et al.'s code does; "full" the whole
        of it, as printed, p x p for p weights of an arm: for few hidden units and dimensions;
        "dual" the same from the gradients that were played, for few rounds.
      pulls: plays of an arm that "dual" keeps; exact if no fewer than the rounds of a training.
    """

    width: int = 100
    beta: float = 10.0
    regularization: float = 1.0
    learning_rate: float = 1e-2
    confidence: ConfidenceForm = "diagonal"
    pulls: int = 3000

    def __post_init__(self) -> None:
        check_choices(self, confidence=ConfidenceForm)
        check_limits(pulls=self.pulls, width=self.width)
        check_range(beta=self.beta)
        check_positive(regularization=self.regularization, learning_rate=self.learning_rate)

    name = "NeuralUCB"

    def bandit(
        self, d: int, arms: int, batch: int, *, matrix: Callable[..., Confidence] | None = None
    ) -> Bandit:
        """The policy for contexts of ``d`` features; ``matrix`` replaces the confidence matrix."""
        of_pulls = functools.partial(dual, pulls=self.pulls)
        forms = {"diagonal": diagonal, "full": full, "dual": of_pulls}
        return neural_ucb.paper(
            d,
            arms,
            hidden=(self.width,),
            beta=self.beta,
            regularization=self.regularization,
            learning_rate=self.learning_rate,
            batch=batch,
            confidence=matrix or forms[self.confidence],
        )


@dataclasses.dataclass(frozen=True)
class ReleasedNeuralUcb:
    """Zhou et al.'s public code: one network for all arms, the exploration factor inside the root.

    It plays one question at a time (``training.batch=1``), and fits the network after each of the
    first 2,000 and then every 100th.

    Attributes:
      width, regularization, learning_rate: as of `NeuralUcb`; lambda also decays the weights.
      steps: most gradient steps of a fit.
      capacity: plays that are kept to fit on; no fewer than 2,000 and a hundredth of the others.
    """

    width: int = 100
    nu: float = 1.0
    regularization: float = 1e-3
    learning_rate: float = 1e-2
    steps: int = 1000
    capacity: int = 10_000

    name = "NeuralUCB (released)"

    def __post_init__(self) -> None:
        check_limits(width=self.width, steps=self.steps, capacity=self.capacity)
        check_positive(
            nu=self.nu, regularization=self.regularization, learning_rate=self.learning_rate
        )

    def bandit(self, d: int, arms: int, batch: int) -> Bandit:
        """The policy for contexts of ``d`` features; InputError for batches of several."""
        if batch != 1:
            raise InputError(
                f"batch is {batch}: the released NeuralUCB learns after single questions; set "
                "training.batch=1."
            )
        return neural_ucb.released(
            d,
            arms,
            capacity=self.capacity,
            hidden=(self.width,),
            nu=self.nu,
            regularization=self.regularization,
            learning_rate=self.learning_rate,
            steps=self.steps,
        )


@dataclasses.dataclass(frozen=True)
class Thompson:
    """NeuralTS: samples every arm's reward from N(f, (beta sigma)^2) of the same networks."""

    networks: NeuralUcb = NeuralUcb()

    name = "Thompson sampling"

    def bandit(self, d: int, arms: int, batch: int) -> Bandit:
        """The policy for contexts of ``d`` features."""
        return thompson(self.networks.bandit(d, arms, batch))


@dataclasses.dataclass(frozen=True)
class EpsilonGreedy:
    """The best arm by the same networks; a random arm with probability ``epsilon``."""

    epsilon: float = 0.1
    networks: NeuralUcb = NeuralUcb()

    name = "epsilon-greedy"

    def __post_init__(self) -> None:
        check_range(1.0, epsilon=self.epsilon)

    def bandit(self, d: int, arms: int, batch: int) -> Bandit:
        """The policy for contexts of ``d`` features."""
        # an epsilon-greedy policy needs no confidence matrix
        networks = self.networks.bandit(
            d, arms, batch, matrix=lambda network, **_: zero_width(network)
        )
        return epsilon_greedy(networks, self.epsilon)


@dataclasses.dataclass(frozen=True)
class LinUcb:
    """Rewards linear in the context, with a d x d inverse for every arm."""

    alpha: float = 1.0
    regularization: float = 1.0

    name = "LinUCB"

    def __post_init__(self) -> None:
        check_range(alpha=self.alpha)
        check_positive(regularization=self.regularization)

    def bandit(self, d: int, arms: int, batch: int) -> Bandit:
        """The policy for contexts of ``d`` features."""
        return linear_ucb(d, arms, alpha=self.alpha, regularization=self.regularization)


Learner = NeuralUcb | ReleasedNeuralUcb
"""Policies whose trained networks can be used."""
Policy = Learner | Thompson | EpsilonGreedy | LinUcb


@dataclasses.dataclass(frozen=True)
class BanditTraining:
    """The length and batches of a bandit's training; defaults are the paper's.

    Attributes:
      dimensions: number of principal axes that contexts are projected onto; 0 does not project.
    """

    epochs: int = 500
    batch: int = 32
    dimensions: int = 0

    def __post_init__(self) -> None:
        check_limits(epochs=self.epochs, batch=self.batch)
        check_range(dimensions=self.dimensions)
