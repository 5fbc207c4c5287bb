"""The test functions of the NeuralUCB paper: rewards that are known, for regret curves.

Zhou et al. (2020) section 7.1, d = 20 and 4 arms: contexts x uniform on the unit sphere, standard
normal noise on the observed rewards, and expected rewards by one of

- linear: 10 x'a (not in the paper; LinUCB's assumption),
- quadratic: 10 (x'a)^2,
- matrix: x' A' A x,
- cosine: cos(3 x'a),

a uniform on the unit sphere, A of standard normal entries. In the paper every arm shows a context
of its own to one such function; here, as a retrieval question is one context for all arms, every
arm has a function of its own, an a or A drawn for it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrag.functional.bandits.interaction import Bandit, Values

Kind = Literal["linear", "quadratic", "matrix", "cosine"]


class Problem(NamedTuple):
    """Rounds of a bandit whose rewards are known.

    Attributes:
      contexts: context of every round.
      expected: expected reward of every arm, which regret is measured in.
      rewards: observed rewards, with noise.
    """

    contexts: Float[Array, "t d"]
    expected: Float[Array, "t a"]
    rewards: Float[Array, "t a"]


def problem(
    kind: Kind, key: jax.Array, *, rounds: int, d: int = 20, arms: int = 4, noise: float = 1.0
) -> Problem:
    """Draws a problem: its functions, contexts and noise.

    Args:
      kind: the reward function.
      key: seeds all draws.
      rounds: t.
      d: features of a context.
      arms: number of arms.
      noise: standard deviation of the noise on rewards.
    """
    for_x, for_h, for_noise = jax.random.split(key, 3)
    contexts = on_sphere(for_x, (rounds, d))
    if kind == "matrix":
        through = jnp.einsum("ade,te->tad", jax.random.normal(for_h, (arms, d, d)), contexts)
        expected = jnp.sum(through**2, axis=-1)
    else:
        along = contexts @ on_sphere(for_h, (arms, d)).T
        expected = {"linear": 10 * along, "quadratic": 10 * along**2, "cosine": jnp.cos(3 * along)}[
            kind
        ]
    rewards = expected + noise * jax.random.normal(for_noise, expected.shape)
    return Problem(contexts, expected, rewards)


def on_sphere(key: jax.Array, shape: tuple[int, int]) -> Float[Array, "n d"]:
    """Rows uniform on the unit sphere."""
    rows = jax.random.normal(key, shape)
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)


def random_arm(arms: int) -> Bandit:
    """Plays a random arm; does not learn, so values are zeros and ``greedy`` is arm 0."""
    zeros = Values(jnp.zeros(arms), jnp.zeros(arms), jnp.zeros(arms))
    return Bandit(
        init=lambda key: (),
        values=lambda state, x: zeros,
        select=lambda state, x, key: jax.random.randint(key, (), 0, arms),
        update=lambda state, x, arm, reward: state,
        fit=lambda state, key: state,
        greedy=lambda state, x: jnp.asarray(0),
        update_batch=lambda state, contexts, arms, rewards: state,
    )
