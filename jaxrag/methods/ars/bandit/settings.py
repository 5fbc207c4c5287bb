"""Settings of a selector's training: what is paid, who learns, and how."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxrag.functional import rewards
from jaxrag.functional.bandits import neural_ucb
from jaxrag.functional.bandits.confidence import Confidence, zero_width
from jaxrag.functional.bandits.interaction import Bandit
from jaxrag.functional.bandits.policies import epsilon_greedy, linear_ucb, thompson
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class Scheme:
    """What a question pays under an arm.

    Attributes:
      first, slope: of the weights w_k = first - slope * k that base rewards are multiplied by.
      penalty: lambda; base rewards are then not multiplied, but lose lambda * k.
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
        """What it is called in tables and file names."""
        return "weighted" if self.penalty is None else f"lambda {self.penalty:g}"

    def rewards(self, base: Float[np.ndarray, "q a"]) -> Float[np.ndarray, "q a"]:
        """The rewards of a table's questions.

        Raises:
          InputError: a weight is below 0, so that a right answer would pay less than a wrong one.
        """
        given = jnp.asarray(base, jnp.float32)
        if self.penalty is not None:
            return np.asarray(rewards.penalised(given, self.penalty))
        weights = rewards.falling_weights(given.shape[1], first=self.first, slope=self.slope)
        if weights.min() < 0:
            raise InputError(
                f"The weights {self.first:g} - {self.slope:g} k fall to {weights.min():g} at "
                f"K = {given.shape[1]}; a right answer must not pay less than a wrong one. Set a "
                "higher first or a smaller slope."
            )
        return np.asarray(rewards.weighted(given, weights))


@dataclasses.dataclass(frozen=True)
class NeuralUcb:
    """ARS's bandit: a network and a diagonal Z for every arm (eqs 10-12).

    Attributes:
      width: hidden units of each network.
      beta: exploration factor, of which the paper says nothing. Where it is small for the rewards,
        which the weights take to 2.8, each question stays with the first arm that paid.
      regularization: lambda of Z at the beginning.
      learning_rate: of the step after each batch; Zhou et al.'s public code has 0.01.
    """

    width: int = 100
    beta: float = 10.0
    regularization: float = 1.0
    learning_rate: float = 1e-2

    def __post_init__(self) -> None:
        if self.width < 1 or not (math.isfinite(self.beta) and self.beta >= 0):
            raise InputError(f"width is {self.width} and beta {self.beta}: give at least 1 and 0.")
        for name in ("regularization", "learning_rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value!r}; give a number above 0.")

    name = "NeuralUCB"

    def bandit(self, d: int, arms: int, batch: int) -> Bandit:
        """The policy for contexts of d features."""
        return self._with(d, arms, batch, neural_ucb.diagonal)

    def without_confidence(self, d: int, arms: int, batch: int) -> Bandit:
        """The same networks, for policies that explore otherwise."""
        return self._with(d, arms, batch, lambda network, **_: zero_width(network))

    def _with(self, d: int, arms: int, batch: int, confidence: Callable[..., Confidence]) -> Bandit:
        return neural_ucb.paper(
            d,
            arms,
            hidden=(self.width,),
            beta=self.beta,
            regularization=self.regularization,
            learning_rate=self.learning_rate,
            batch=batch,
            confidence=confidence,
        )


@dataclasses.dataclass(frozen=True)
class Thompson:
    """Draws every arm's reward from N(f, (beta sigma)^2) of the same networks (NeuralTS)."""

    networks: NeuralUcb = NeuralUcb()

    name = "Thompson sampling"

    def bandit(self, d: int, arms: int, batch: int) -> Bandit:
        """The policy for contexts of d features."""
        return thompson(self.networks.bandit(d, arms, batch))


@dataclasses.dataclass(frozen=True)
class EpsilonGreedy:
    """The best arm by the same networks, any arm with probability ``epsilon``."""

    epsilon: float = 0.1
    networks: NeuralUcb = NeuralUcb()

    name = "epsilon-greedy"

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise InputError(f"epsilon is {self.epsilon}; a probability lies between 0 and 1.")

    def bandit(self, d: int, arms: int, batch: int) -> Bandit:
        """The policy for contexts of d features."""
        return epsilon_greedy(self.networks.without_confidence(d, arms, batch), self.epsilon)


@dataclasses.dataclass(frozen=True)
class LinUcb:
    """Rewards linear in the context, an inverse of d x d for every arm."""

    alpha: float = 1.0
    regularization: float = 1.0

    name = "LinUCB"

    def __post_init__(self) -> None:
        if not self.alpha >= 0 or not self.regularization > 0:
            raise InputError(
                f"alpha is {self.alpha} and regularization {self.regularization}: give at least 0 "
                "and more than 0."
            )

    def bandit(self, d: int, arms: int, batch: int) -> Bandit:
        """The policy for contexts of d features."""
        return linear_ucb(d, arms, alpha=self.alpha, regularization=self.regularization)


Policy = NeuralUcb | Thompson | EpsilonGreedy | LinUcb


@dataclasses.dataclass(frozen=True)
class Training:
    """How a selector is trained; the paper's by default where it says.

    Attributes:
      epochs: how often every question is played.
      batch: questions that are chosen for and learned from together.
      dimensions: principal axes that contexts are projected onto; 0 keeps them whole.
      exploring: whether the policy watched at every epoch explores; it is greedy by default.
    """

    epochs: int = 500
    batch: int = 32
    dimensions: int = 0
    exploring: bool = False

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch) < 1 or self.dimensions < 0:
            raise InputError(
                f"epochs, batch and dimensions are {self.epochs}, {self.batch} and "
                f"{self.dimensions}: give at least 1, 1 and 0."
            )
