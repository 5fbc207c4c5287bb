"""Intervals and tests against hand-worked numbers, exact formulas and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from jaxrag.evaluation.significance import (
    crossed_interval,
    holm,
    interval,
    interval_p,
    mcnemar_exact,
    paired_difference,
    resampled_means,
    seed_interval,
    sign_flip_test,
)


def test_resampled_means_are_the_bootstrap_distribution() -> None:
    # Of values 0, 1 two are drawn with replacement: the mean is 0, 1/2, 1 with 1/4, 1/2, 1/4.
    means = resampled_means(np.array([[0.0], [1.0]]), resamples=40_000)[:, 0]
    shares = [np.mean(means == value) for value in (0, 0.5, 1)]
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.25], atol=0.01)


def test_columns_share_their_resamples() -> None:
    values = np.random.default_rng(2).normal(size=(50, 1))
    means = resampled_means(np.concatenate([values, 3 - 2 * values], axis=1), resamples=100)
    np.testing.assert_allclose(means[:, 1], 3 - 2 * means[:, 0])


def test_resampling_in_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).normal(size=(70, 2))
    whole = resampled_means(values, resamples=500)
    monkeypatch.setattr("jaxrag.evaluation.significance._CHUNK", 700)
    np.testing.assert_allclose(resampled_means(values, resamples=500), whole)


def test_undefined_questions_leave_the_mean_but_not_the_draw() -> None:
    values = np.array([1.0, np.nan, 2.0, np.nan, 6.0])
    found = interval(values)
    assert found.mean == 3 and found.n == 3
    # Questions are drawn, so the number of defined ones varies and the interval is wider than
    # that of the three values alone would be.
    means = resampled_means(values[:, None], resamples=2000)
    assert np.isnan(means).any() and np.nanmax(means) == 6


def test_interval_of_a_share_near_the_binomial_one() -> None:
    values = np.r_[np.ones(60), np.zeros(140)]
    found = interval(values)
    # 0.3 +- 1.96 sqrt(0.3 * 0.7 / 200) = 0.3 +- 0.0635
    assert found.mean == pytest.approx(0.3) and found.n == 200
    assert found.low == pytest.approx(0.2365, abs=0.006)
    assert found.high == pytest.approx(0.3635, abs=0.006)


def test_no_success_still_has_an_upper_end() -> None:
    # Wilson with x = 0: high = z^2 / (n + z^2) = 3.8415 / 203.8415
    assert interval(np.zeros(200)) == pytest.approx((0, 0, 0.018845, 200), abs=1e-6)
    assert interval(np.ones(200)) == pytest.approx((1, 1 - 0.018845, 1, 200), abs=1e-6)
    assert interval(np.full(5, 3.5)) == (3.5, 3.5, 3.5, 5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30), st.integers(0, 5))
def test_interval_holds_its_mean_and_stays_in_range(values: list[float], seed: int) -> None:
    array = np.array(values)
    found = interval(array, resamples=500, seed=seed)
    assert found == interval(array, resamples=500, seed=seed)
    if set(values) - {0.0, 1.0}:
        assert array.min() - 1e-9 <= found.low <= found.high <= array.max() + 1e-9


def test_paired_difference_by_hand() -> None:
    ours = np.array([1.0, 1, 1, 1, 0, 0, 1, np.nan])
    theirs = np.array([0.0, 0, 0, 0, 1, 0, 1, 1])
    found = paired_difference(ours, theirs)
    # Differences 1 1 1 1 -1 0 0: mean 3/7; McNemar with 4 wins and 1 loss:
    # 2 * (C(5,0) + C(5,1)) / 2^5 = 12/32.
    assert found.mean == pytest.approx(3 / 7) and found.n == 7
    assert found.p == pytest.approx(0.375)
    assert found.low < 0 < found.high


def test_sign_flip_matches_all_sign_patterns() -> None:
    differences = np.array([0.9, 0.4, -0.2, 0.7, 0.0, 0.3, 0.1, -0.05, 0.6])
    moved = differences[differences != 0]
    sums = [abs(np.dot(s, moved)) for s in itertools.product((-1, 1), repeat=len(moved))]
    exact = np.mean(np.array(sums) >= abs(moved.sum()) - 1e-12)
    assert sign_flip_test(differences, resamples=60_000) == pytest.approx(exact, abs=4e-3)


def test_sign_flip_is_symmetric_and_ignores_ties() -> None:
    differences = np.random.default_rng(6).normal(0.1, 1, size=80)
    p = sign_flip_test(differences)
    assert sign_flip_test(-differences) == p
    assert sign_flip_test(np.r_[differences, np.zeros(50)]) == p
    assert sign_flip_test(np.zeros(4)) == 1


@pytest.mark.parametrize(
    ("wins", "losses", "p"),
    [(0, 0, 1), (1, 0, 1), (5, 0, 2 / 32), (3, 3, 1), (8, 2, 2 * (1 + 10 + 45) / 1024)],
)
def test_mcnemar_by_hand(wins: int, losses: int, p: float) -> None:
    assert mcnemar_exact(wins, losses) == pytest.approx(p)
    assert mcnemar_exact(losses, wins) == mcnemar_exact(wins, losses)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exact match", "f1"])
def test_interval_covers_the_truth(kind: str) -> None:
    rng, hits, trials = np.random.default_rng(8), 0, 600
    for trial in range(trials):
        values = (rng.random(200) < 0.3).astype(float)
        if kind == "f1":  # many zeros, some ones, the rest between: mean 0.3 * 0.75
            values *= np.where(rng.random(200) < 0.5, 1.0, rng.random(200))
        truth = 0.3 if kind == "exact match" else 0.225
        found = interval(values, resamples=2000, seed=trial)
        hits += found.low <= truth <= found.high
    assert 0.92 <= hits / trials <= 0.975


def test_the_interval_over_seeds_is_students() -> None:
    # mean 3, sample standard deviation sqrt(2.5); 2.7764 (4 degrees of freedom) * 1.5811 / sqrt(5)
    found = seed_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert found == pytest.approx((3.0, 1.0368, 4.9632, 5), abs=1e-4)
    assert seed_interval(np.array([0.7])) == (0.7, 0.7, 0.7, 1)


def test_the_interval_over_seeds_and_questions_by_hand() -> None:
    # means of seeds 1/2 and 7/2, of questions 1 and 3, of all 2: M_q = 2 * 2, M_s = 2 * 9/2; the
    # residuals are 1/2 and -1/2, M_e = 1. So var = (4 + 9 - 1) / 4 = 3 and
    # df = 12^2 / (4^2 / 1 + 9^2 / 1 + 1^2 / 1) = 72/49.
    found = crossed_interval(np.array([[0.0, 1], [2, 5]]))
    assert found.mean == 2 and found.n == 2 and found.low == pytest.approx(4 - found.high)
    assert special.stdtr(72 / 49, (found.high - 2) / 3**0.5) == pytest.approx(0.975)
    # M_q = M_e = 1/4, and seeds that differ by less than chance, M_s = 0, are no negative variance:
    # var = (1/4) / 4, df = (1/16) / (1/16 + 0 + 1/16) = 1/2
    found = crossed_interval(np.array([[1.0, 0], [0.5, 0.5]]))
    assert special.stdtr(0.5, (found.high - 0.5) / 0.25) == pytest.approx(0.975)


@pytest.mark.parametrize(
    ("questions", "seeds", "covered"),
    [(0.2, 0.0, 0.95), (0.2, 0.0005, 0.95), (0.2, 0.003, 0.95), (0.02, 0.003, 0.925)],
)
def test_the_interval_over_seeds_and_questions_covers_the_truth(
    questions: float, seeds: float, covered: float
) -> None:
    """Normal effects of 200 questions and three seeds, with these variances, and 0.05 of both.

    The interval of one seed over questions covers 72 % in the third case, 48 % in the last, where
    nearly all variance of the mean is between seeds.
    """
    rng, trials = np.random.default_rng(5), 2000
    each = rng.normal(size=(trials, 1, 200)) * questions**0.5
    shifts = rng.normal(size=(trials, 3, 1)) * seeds**0.5
    values = each + shifts + rng.normal(size=(trials, 3, 200)) * 0.05**0.5
    found = [crossed_interval(one) for one in values]
    share = np.mean([one.low <= 0 <= one.high for one in found])
    assert abs(share - covered) < 0.02  # 4 standard errors of a share of 0.95 in 2,000


def test_p_values_are_adjusted_by_holm() -> None:
    # sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1, which is raised to the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0] and holm([]) == []


def test_the_p_value_that_an_interval_implies() -> None:
    # half a width of 1.95996 is a standard deviation of 1
    assert interval_p(1, -0.95996, 2.95996) == pytest.approx(0.3173, abs=1e-4)
    assert interval_p(-2, -4, 0) == pytest.approx(0.05)
    assert interval_p(0, 0, 0) == 1 and interval_p(1, 1, 1) == 0
    # Student's with 2 degrees: half a width of 4.30265 is a standard error of 1, and
    # P(|t| > 10) = 1 - 10 / sqrt(102)
    small = interval_p(10, 10 - 4.30265, 10 + 4.30265, freedom=2)
    assert small == pytest.approx(1 - 10 / math.sqrt(102), rel=1e-3)


def test_the_interval_over_seeds_and_questions_falls_back_on_one_axis() -> None:
    values = np.array([1.0, 0, 1, 1, 0, 1])
    assert crossed_interval(values[None]) == interval(values)
    assert crossed_interval(np.ones((3, 20))) == interval(np.ones(20))
    assert crossed_interval(values[:, None]) == (*seed_interval(values)[:3], 1)
