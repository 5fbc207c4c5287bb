"""Threshold curves against hand-worked gates and brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.evaluation.curves import accepted_curve, ratio_curve, separation, thresholds


def test_accepted_by_hand() -> None:
    u, right = np.arange(40.0), np.repeat([1.0, 0.0], 20)
    curve = accepted_curve(u, right, points=5)
    # Ranks 0, 9, 19, 29, 39; those that accept fewer than ten questions are left out.
    np.testing.assert_allclose(curve.query_ratio, [10 / 40, 20 / 40, 30 / 40, 1, 1])
    np.testing.assert_allclose(curve.mean, [1, 1, 20 / 30, 0.5, 0.5])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 5) | st.just(math.inf), min_size=1, max_size=40))
def test_query_ratio_rises_from_none_to_all(values: list[float]) -> None:
    u = np.array(values)
    at = thresholds(u, points=9)
    ratio = [(u <= t).mean() for t in at]
    assert ratio[0] == 0 and ratio[-1] == 1 and ratio == sorted(ratio) and len(at) <= 11


def test_separation_by_hand_and_by_brute_force() -> None:
    # Wrong u: 3, inf; right u: 1, 3. Pairs: 3 > 1, 3 = 3 (half), inf > 1, inf > 3: 3.5 / 4.
    assert separation(np.array([3.0, np.inf, 1, 3]), np.array([0.0, 0, 1, 1])) == 0.875
    rng = np.random.default_rng(0)
    u, right = rng.integers(6, size=50).astype(float), rng.integers(2, size=50).astype(float)
    pairs = [(a > b) + (a == b) / 2 for a in u[right == 0] for b in u[right == 1]]
    assert separation(u, right) == pytest.approx(np.mean(pairs))
    assert math.isnan(separation(u, np.ones(50)))


def test_ratio_curve_by_hand() -> None:
    u, direct = np.array([0.1, 0.2, 0.2, 0.7, np.inf]), np.array([1.0, 0, 1, 0, 0])
    # by u: 1 0 1 0 0; the first 20 %: 1; 60 %: 2 / 3; half of five is rounded up to three
    curve = ratio_curve(u, direct, ratios=(0.2, 0.5, 0.6, 1.0))
    np.testing.assert_allclose(curve.mean, [1, 2 / 3, 2 / 3, 2 / 5])
    np.testing.assert_allclose(curve.query_ratio, [0.2, 0.6, 0.6, 1])
    np.testing.assert_allclose(curve.threshold, [0.1, 0.2, 0.2, np.inf])
