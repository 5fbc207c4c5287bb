"""SeaKR's uncertainty: numbers worked by hand, determinants in float64, masks, jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.functional import seakr

uncertainty = jax.jit(seakr.uncertainty)


def by_determinant(states: np.ndarray, alpha: float) -> float:
    """The formula as it stands, in float64."""
    k, d = states.shape
    z = states.astype(np.float64)
    centre = np.eye(d) - np.ones((d, d)) / d
    sign, value = np.linalg.slogdet(z @ centre @ z.T + alpha * np.eye(k))
    assert sign == 1
    return value / k


def score(states: np.ndarray, where: list[bool] | None = None, alpha: float = 1e-3) -> float:
    real = np.ones(len(states), bool) if where is None else np.array(where)
    return float(uncertainty(np.float32(states), where=real, alpha=alpha))


def test_uncertainty_by_hand() -> None:
    # rows (1, -1) and (2, 0), centred (1, -1) and (1, -1): Gram [[2, 2], [2, 2]], eigenvalues 4, 0
    states = np.array([[1.0, -1.0], [2.0, 0.0]])
    wanted = (np.log(4 + 0.1) + np.log(0.1)) / 2
    assert score(states, alpha=0.1) == pytest.approx(wanted, rel=1e-5)
    # one state (3, 1): centred (1, -1), Gram 2
    assert score(states[:1] * 0 + [[3.0, 1.0]], alpha=0.1) == pytest.approx(np.log(2.1), rel=1e-5)
    # states that are constant over features are 0 once centred
    assert score(np.ones((3, 5)), alpha=0.01) == pytest.approx(np.log(0.01), rel=1e-5)


def test_answers_that_agree_are_less_uncertain() -> None:
    rng = np.random.default_rng(0)
    one, noise = rng.normal(size=(1, 64)), rng.normal(size=(8, 64))
    found = [score(one + spread * noise) for spread in (0.0, 0.01, 0.1, 1.0)]
    assert found == sorted(found) and len(set(found)) == 4


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e3])
@pytest.mark.parametrize("n, d", [(1, 7), (5, 64), (6, 4)])
def test_float32_holds_alpha_beside_large_states(n: int, d: int, scale: float) -> None:
    states = np.float32(np.random.default_rng(n).normal(size=(n, d)) * scale)
    if n == 5:
        states[3] = states[1]  # the same answer twice: an eigenvalue of exactly 0
    assert score(states) == pytest.approx(by_determinant(states, 1e-3), abs=2e-4)


@pytest.mark.parametrize("norm", [2e5, 1e8, 1e15])
def test_equal_answers_by_hand_however_large_their_states(norm: float) -> None:
    # Five times (norm / sqrt 2) (1, -1): the Gram matrix has the eigenvalues 5 norm^2 and four 0.
    states = np.tile(np.float32(norm / np.sqrt(2)) * np.float32([1, -1]), (5, 1))
    largest = 5 * 2 * float(states[0, 0]) ** 2
    wanted = (np.log(largest + 1e-3) + 4 * np.log(1e-3)) / 5
    assert score(states) == pytest.approx(wanted, rel=1e-5)


def test_answers_that_differ_little_beside_large_states() -> None:
    # 1e5 (1, -1) and the same + (1, 0), which is (1/2, -1/2) when centred. With the unit vector
    # e = (1, -1) / sqrt 2 the rows are a e and (a + b) e, a = 1e5 sqrt 2 and b = 1 / sqrt 2, and
    # det(Gram + alpha) = (a^2 + alpha) ((a + b)^2 + alpha) - a^2 (a + b)^2
    # = alpha (a^2 + (a + b)^2) + alpha^2.
    states = np.array([[1e5, -1e5], [1e5 + 1, -1e5]])
    squares = 2e10 + (1e5 * np.sqrt(2) + np.sqrt(0.5)) ** 2
    wanted = np.log(1e-3 * squares + 1e-6) / 2
    assert score(states) == pytest.approx(wanted, rel=1e-5)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 6), st.integers(2, 9), st.integers(0, 2**31))
def test_masked_answers_change_nothing(k: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    padded = np.float32(rng.normal(size=(8, d)))
    where = np.sort(rng.permutation(8)[:k])
    found = score(padded, np.isin(np.arange(8), where).tolist())
    assert found == pytest.approx(by_determinant(padded[where], 1e-3), abs=1e-3)


def test_no_answers_are_infinitely_uncertain() -> None:
    assert score(np.ones((3, 4)), [False] * 3) == np.inf
    assert score(np.ones((0, 4))) == np.inf


def test_jit_changes_nothing() -> None:
    states = jnp.float32(np.random.default_rng(1).normal(size=(5, 16)))
    where = jnp.array([True, True, False, True, True])
    plain = seakr.uncertainty(states, where=where)
    np.testing.assert_allclose(uncertainty(states, where=where), plain, rtol=1e-5)


def test_the_least_uncertain() -> None:
    scores = jnp.array([3.0, -1.0, 2.0, -1.0])
    for where, best in [([1, 1, 1, 1], 1), ([1, 0, 1, 0], 2), ([1, 0, 0, 1], 3), ([0, 0, 0, 0], 0)]:
        assert int(seakr.least_uncertain(scores, where=jnp.array(where, bool))) == best
    nan = jnp.array([0.5, jnp.nan])
    assert int(seakr.least_uncertain(nan, where=jnp.ones(2, bool))) == 0
    assert int(seakr.least_uncertain(nan[::-1], where=jnp.ones(2, bool))) == 1
    infinite = jnp.array([jnp.inf, jnp.inf])
    assert int(seakr.least_uncertain(infinite, where=jnp.array([False, True]))) == 0
