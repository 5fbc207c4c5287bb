"""Rewards of the selector: values worked by hand, and what must hold for any table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxrag.functional import rewards
from jaxrag.functional.bandits import policies

BASE = jnp.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [0.5, 0.25, 0.0], [0.0, 0.0, 0.0]])


def test_weights_of_the_paper() -> None:
    # 3.0 - 0.2 k: 2.8, 2.6, ..., 1.0
    expected = [2.8, 2.6, 2.4, 2.2, 2.0, 1.8, 1.6, 1.4, 1.2, 1.0]
    np.testing.assert_allclose(rewards.falling_weights(10), expected, rtol=1e-6)
    # 2 - 0.5 k at k = 1, 2, 3
    found = rewards.falling_weights(3, first=2.0, slope=0.5)
    np.testing.assert_allclose(found, [1.5, 1.0, 0.5])


def test_open_answers_are_paid_by_f1_unless_they_match() -> None:
    found = rewards.exact_or_f1(jnp.array([[1.0, 0.0, 0.0]]), jnp.array([[0.5, 0.5, 0.0]]))
    assert found.tolist() == [[1.0, 0.5, 0.0]]


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


def test_regret_by_hand() -> None:
    chosen = jnp.array([2, 1, 1, 2])
    assert rewards.obtained(BASE, chosen).tolist() == [1.0, 0.0, 0.25, 0.0]
    assert rewards.regret(BASE, chosen).tolist() == [0.0, 1.0, 0.25, 0.0]


TABLES = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6),
    elements=st.floats(0, 1, width=32),
)


@settings(deadline=None, max_examples=40)
@given(TABLES, st.integers(0, 5))
def test_regret_is_what_the_oracle_has_more(table: np.ndarray, at: int) -> None:
    q, a = table.shape
    fixed = jnp.full((q,), at % a)
    found = np.asarray(rewards.regret(table, fixed))
    assert np.all(found >= 0)
    won = np.asarray(rewards.obtained(table, fixed))
    np.testing.assert_array_equal(won, table[:, at % a])
    best = policies.oracle(table)
    np.testing.assert_allclose(won + found, best.rewards, atol=1e-6)
    assert not np.any(rewards.regret(table, best.arms))


@pytest.mark.parametrize("strength", [0.0, 0.04, 1.5])
def test_jit_and_vmap_over_strengths_change_nothing(strength: float) -> None:
    plain = rewards.penalised(BASE, strength)
    several = jax.jit(jax.vmap(rewards.penalised, (None, 0)))(BASE, jnp.array([strength, 1.0]))
    np.testing.assert_allclose(several[0], plain, rtol=0, atol=1e-7)
