"""Rewards of the bandit, worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional import rewards

BASE = jnp.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [0.5, 0.25, 0.0], [0.0, 0.0, 0.0]])


def test_weights_of_the_paper() -> None:
    # 3.0 - 0.2 k: 2.8, 2.6, ..., 1.0
    expected = [2.8, 2.6, 2.4, 2.2, 2.0, 1.8, 1.6, 1.4, 1.2, 1.0]
    np.testing.assert_allclose(rewards.falling_weights(10), expected, rtol=1e-6)
    # 2 - 0.5 k at k = 1, 2, 3
    found = rewards.falling_weights(3, first=2.0, slope=0.5)
    np.testing.assert_allclose(found, [1.5, 1.0, 0.5])


def test_weighted_and_penalised_by_hand() -> None:
    paid = rewards.weighted(BASE, jnp.array([2.0, 1.0, 0.5]))
    assert paid.tolist() == [[0, 1, 0.5], [2, 0, 0.5], [1, 0.25, 0], [0, 0, 0]]
    less = rewards.penalised(BASE, 0.25)  # 0.25, 0.5 and 0.75 for 1, 2 and 3 rewrites
    assert less.tolist() == [
        [-0.25, 0.5, 0.25],
        [0.75, -0.5, 0.25],
        [0.25, -0.25, -0.75],
        [-0.25, -0.5, -0.75],
    ]


@pytest.mark.parametrize("strength", [0.0, 0.04, 1.5])
def test_jit_and_vmap_over_strengths_change_nothing(strength: float) -> None:
    plain = rewards.penalised(BASE, strength)
    several = jax.jit(jax.vmap(rewards.penalised, (None, 0)))(BASE, jnp.array([strength, 1.0]))
    np.testing.assert_allclose(several[0], plain, rtol=0, atol=1e-7)
