"""The pairwise loss and the figures of an order, against numbers by hand and plain loops."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.functional.ranking import (
    auc,
    kendall_tau,
    ndcg,
    pair_targets,
    pairwise_accuracy,
    ranknet_loss,
)
from jaxrag.types import InputError

NAN = float("nan")


def plain_loss(scores: Any, labels: Any, ties: str) -> float:
    """Eqs 7-9 pair by pair in float64."""
    costs = []
    for i, j in itertools.permutations(range(len(scores)), 2):
        if ties == "drop" and labels[i] == labels[j]:
            continue
        wanted = (1 + np.sign(float(labels[i]) - float(labels[j]))) / 2
        p = 1 / (1 + math.exp(-(float(scores[i]) - float(scores[j]))))
        costs.append(-(wanted * math.log(p) + (1 - wanted) * math.log(1 - p)))
    return float(np.mean(costs)) if costs else 0.0


def naive_loss(scores: Any, labels: Any) -> Any:
    """The form that encodes each of the n (n - 1) ordered pairs, for autodiff."""
    first, second = (
        np.array(x) for x in zip(*itertools.permutations(range(len(labels)), 2), strict=True)
    )
    p = jax.nn.sigmoid(scores[first] - scores[second])
    wanted = (1 + np.sign(labels[first] - labels[second])) / 2
    return -jnp.mean(wanted * jnp.log(p) + (1 - wanted) * jnp.log(1 - p))


def test_three_items_by_hand() -> None:
    # labels 2, 0, 0: P is 1 for (0,1) and (0,2), 0 for (1,0) and (2,0), 1/2 between 1 and 2
    labels = jnp.array([2, 0, 0])
    np.testing.assert_array_equal(pair_targets(labels), [[0.5, 1, 1], [0, 0.5, 0.5], [0, 0.5, 0.5]])
    # scores 1, 0, -1: s0-s1 = 1, s0-s2 = 2, s1-s2 = 1. Each pair costs the same in both orders:
    # -log sigmoid(1) = 0.313262, -log sigmoid(2) = 0.126928,
    # and the tie (0.313262 + 1.313262) / 2 = 0.813262
    scores = jnp.array([1.0, 0.0, -1.0])
    half = (0.313262 + 0.126928 + 0.813262) / 3
    np.testing.assert_allclose(ranknet_loss(scores, labels), half, rtol=1e-5)  # 0.417817
    drop = (0.313262 + 0.126928) / 2
    np.testing.assert_allclose(ranknet_loss(scores, labels, ties="drop"), drop, rtol=1e-5)
    # the tie alone costs log 2 at equal scores, and no less anywhere
    same = jnp.array([1, 1])
    np.testing.assert_allclose(ranknet_loss(jnp.zeros(2), same), math.log(2), rtol=1e-6)
    assert ranknet_loss(jnp.array([0.5, 0.0]), same) > math.log(2)


@pytest.mark.parametrize("ties", ["half", "drop"])
def test_ten_rewrites_against_float64(ties: Any) -> None:
    random = np.random.default_rng(3)
    for _ in range(5):
        scores, labels = random.normal(0, 3, 10).astype(np.float32), random.integers(0, 6, 10)
        found = ranknet_loss(jnp.asarray(scores), jnp.asarray(labels), ties=ties)
        np.testing.assert_allclose(found, plain_loss(scores, labels, ties), rtol=2e-6)
        jitted = jax.jit(ranknet_loss, static_argnames="ties")(scores, labels, ties=ties)
        np.testing.assert_allclose(jitted, found, rtol=1e-6)


def test_the_gradient_is_summed_over_all_ninety_pairs() -> None:
    random = np.random.default_rng(4)
    scores, labels = jnp.asarray(random.normal(0, 1, 10), jnp.float32), random.integers(0, 4, 10)
    found = jax.jit(jax.grad(ranknet_loss))(scores, jnp.asarray(labels))
    wanted = jax.jit(jax.grad(lambda s: naive_loss(s, labels)))(scores)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-7)
    assert np.abs(found).min() > 0


@pytest.mark.parametrize("ties", ["half", "drop"])
def test_masked_rewrites_change_nothing(ties: Any) -> None:
    scores, labels = jnp.array([0.3, -2.0, 1.0]), jnp.array([1, 0, 2])
    padded = jnp.array([0.3, NAN, -2.0, 1e30, 1.0]), jnp.array([1, 9, 0, -7, 2])
    where = jnp.array([True, False, True, False, True])
    both = jax.jit(jax.value_and_grad(ranknet_loss), static_argnames="ties")
    value, slope = both(*padded, where=where, ties=ties)
    alone, wanted = both(scores, labels, ties=ties)
    np.testing.assert_allclose(value, alone, rtol=1e-6)
    np.testing.assert_allclose(slope[np.array([0, 2, 4])], wanted, rtol=1e-6)
    assert slope[1] == 0 and slope[3] == 0


def test_without_pairs_loss_and_gradient_are_0() -> None:
    scores = jnp.array([1.0, -1.0, 4.0])
    value, slope = jax.value_and_grad(ranknet_loss)(scores, jnp.array([2, 2, 2]), ties="drop")
    assert value == 0 and np.all(slope == 0)
    where = jnp.array([False, True, False])
    value, slope = jax.value_and_grad(ranknet_loss)(scores, jnp.array([0, 1, 2]), where=where)
    assert value == 0 and np.all(slope == 0)


def test_scores_far_apart_are_finite() -> None:
    # the naive form takes the log of 0 here; the right order costs 0, the wrong one the distance
    scores, labels = jnp.array([500.0, -500.0]), jnp.array([1, 0])
    assert ranknet_loss(scores, labels) == 0
    value, slope = jax.value_and_grad(ranknet_loss)(-scores, labels)
    np.testing.assert_allclose(value, 1000.0)
    np.testing.assert_allclose(slope, [-1.0, 1.0])
    assert not np.isfinite(naive_loss(-scores, np.array([1, 0])))


@pytest.mark.parametrize("scores", [[3e38, -3e38], [math.inf, 0.0], [0.0, -math.inf]])
@pytest.mark.parametrize("ties", ["half", "drop"])
def test_an_infinite_difference_of_scores(scores: list[float], ties: Any) -> None:
    # 6e38 is beyond float32: the difference is inf. -log sigmoid(inf) = 0 for the right order, and
    # its derivative sigmoid(inf) - 1 = 0; the wrong order costs inf, with derivative -1.
    loss = jax.jit(jax.value_and_grad(ranknet_loss), static_argnames="ties")
    value, gradient = loss(jnp.array(scores), jnp.array([1, 0]), ties=ties)
    assert value == 0 and gradient.tolist() == [0, 0]
    value, gradient = loss(jnp.array(scores), jnp.array([0, 1]), ties=ties)
    assert value == math.inf and gradient.tolist() == [1, -1]
    # Equal labels: log(e^(inf/2) + e^(-inf/2)) = inf, with derivative 1/2.
    value, gradient = loss(jnp.array(scores), jnp.array([1, 1]), ties=ties)
    expected = (math.inf, [0.5, -0.5]) if ties == "half" else (0, [0, 0])
    assert (value, gradient.tolist()) == expected


quarters = st.integers(-40, 40).map(lambda n: n / 4)  # sums of these are exact in float32
rows = st.lists(st.tuples(quarters, st.integers(0, 5)), min_size=2, max_size=10)
LOSS = jax.jit(ranknet_loss, static_argnames="ties")


def items(n: int) -> Any:
    """Scores and labels of n rewrites."""
    return st.lists(st.tuples(quarters, st.integers(0, 5)), min_size=n, max_size=n)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([2, 7]).flatmap(
        lambda n: st.lists(st.tuples(quarters, st.integers(0, 5)), min_size=n, max_size=n)
    ),
    st.integers(-64, 64),
    st.sampled_from(["half", "drop"]),
)
def test_a_constant_added_to_all_scores_changes_nothing(row: Any, constant: int, ties: Any) -> None:
    scores, labels = (np.array(x) for x in zip(*row, strict=True))
    one = LOSS(jnp.asarray(scores, jnp.float32), jnp.asarray(labels), ties=ties)
    moved = jnp.asarray(scores + constant, jnp.float32)
    assert one == LOSS(moved, jnp.asarray(labels), ties=ties)
    for figure in (pairwise_accuracy, kendall_tau, ndcg):
        np.testing.assert_equal(figure(scores, labels), figure(scores + constant, labels))


@settings(deadline=None, max_examples=200)
@given(rows)
def test_metrics_equal_plain_loops(row: Any) -> None:
    """Kendall's tau-b and the accuracy by counting pairs, nDCG by trying every order of ties."""
    scores, labels = (np.array(x) for x in zip(*row, strict=True))
    right = wrong = only_scores = only_labels = 0
    for i, j in itertools.combinations(range(len(row)), 2):
        product = (scores[i] - scores[j]) * (labels[i] - labels[j])
        right, wrong = right + (product > 0), wrong + (product < 0)
        only_scores += scores[i] == scores[j] and labels[i] != labels[j]
        only_labels += labels[i] == labels[j] and scores[i] != scores[j]
    pairs = right + wrong + only_scores
    accuracy = (right + only_scores / 2) / pairs if pairs else NAN
    np.testing.assert_allclose(pairwise_accuracy(scores, labels), accuracy)
    by = (right + wrong + only_labels) * pairs
    tau = (right - wrong) / math.sqrt(by) if by else NAN
    np.testing.assert_allclose(kendall_tau(scores, labels), tau)


def test_auc_by_hand() -> None:
    # positives 3 and 1, negatives 1 and 0: 3 is above both, 1 above 0 and equal to 1: 3.5 of 4
    assert auc(np.array([3.0, 1.0, 1.0, 0.0]), np.array([1, 1, 0, 0])) == 3.5 / 4
    assert auc(np.array([-np.inf, 0.0]), np.array([0, 1])) == 1
    assert math.isnan(auc(np.ones(2), np.ones(2))) and math.isnan(auc(np.zeros(0), np.zeros(0)))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(quarters, st.integers(0, 1)), min_size=1, max_size=10))
def test_auc_is_the_pairwise_accuracy_of_binary_labels(row: Any) -> None:
    scores, labels = (np.array(x) for x in zip(*row, strict=True))
    np.testing.assert_allclose(auc(scores, labels), pairwise_accuracy(scores, labels))


@pytest.mark.parametrize("gain", ["exponential", "linear"])
@pytest.mark.parametrize("k", [None, 1, 3, 9])
def test_ndcg_is_the_mean_over_all_orders_of_equal_scores(gain: Any, k: Any) -> None:
    labels, scores = np.array([0, 3, 1, 2, 0]), np.array([2.0, 1.0, 2.0, 1.0, 1.0])
    worth = 2.0**labels - 1 if gain == "exponential" else labels

    def discounted(order: Any) -> float:
        return sum(worth[i] / math.log2(r + 2) for r, i in enumerate(order[:k]))

    every = list(itertools.permutations(range(5)))
    fitting = [o for o in every if all(scores[o[r]] >= scores[o[r + 1]] for r in range(4))]
    assert len(fitting) == math.factorial(2) * math.factorial(3)
    wanted = np.mean([discounted(o) for o in fitting]) / max(map(discounted, every))
    np.testing.assert_allclose(ndcg(scores, labels, k=k, gain=gain), wanted)


def test_metrics_by_hand() -> None:
    labels = np.array([2, 1, 0])
    # the last two change places: 2 of 3 pairs are right; tau = (2 - 1) / 3
    scores = np.array([3.0, 1.0, 2.0])
    assert pairwise_accuracy(scores, labels) == pytest.approx(2 / 3)
    assert kendall_tau(scores, labels) == pytest.approx(1 / 3)
    # gains 3, 1, 0 at discounts 1, 1 / log2 3 = 0.63093, 1 / 2: best 3.63093, found 3.5
    assert ndcg(scores, labels) == pytest.approx(3.5 / 3.63093, rel=1e-5)
    assert ndcg(scores, labels, gain="linear") == pytest.approx(2.5 / 2.63093, rel=1e-5)
    assert ndcg(scores, labels, k=1) == 1
    assert pairwise_accuracy(np.zeros(3), labels) == 0.5
    # a tie of labels is left out of the accuracy; tau-b = 2 / sqrt(3 * 2)
    assert pairwise_accuracy(scores, np.array([1, 0, 0])) == 1
    assert kendall_tau(scores, np.array([1, 0, 0])) == pytest.approx(2 / math.sqrt(6))
    assert kendall_tau(np.array([np.inf, 0.0, -np.inf]), labels) == 1


def test_undefined_metrics_are_nan() -> None:
    scores = np.array([1.0, 2.0])
    assert math.isnan(pairwise_accuracy(scores, np.array([3, 3])))
    assert math.isnan(kendall_tau(scores, np.array([3, 3])))
    assert math.isnan(kendall_tau(np.ones(2), np.array([3, 1])))
    assert math.isnan(ndcg(scores, np.array([0, 0]))) and ndcg(scores, np.array([2, 2])) == 1
    none = np.zeros(0)
    assert all(math.isnan(f(none, none)) for f in (pairwise_accuracy, kendall_tau, ndcg))


def test_invalid_input_is_refused() -> None:
    labels = np.array([1, 0])
    with pytest.raises(InputError, match=r"Scores have shape \(3,\) and labels \(2,\)"):
        pairwise_accuracy(np.zeros(3), labels)
    with pytest.raises(InputError, match="score of item 1 is NaN"):
        kendall_tau(np.array([0.0, NAN]), labels)
    with pytest.raises(InputError, match="label of item 0 is NaN"):
        ndcg(np.zeros(2), np.array([NAN, 1.0]))
    with pytest.raises(InputError, match="A label is -1"):
        ndcg(np.zeros(2), np.array([-1, 1]))
    with pytest.raises(InputError, match="k is 0"):
        ndcg(np.zeros(2), labels, k=0)
    with pytest.raises(InputError, match="neither 0 nor 1"):
        auc(np.zeros(2), np.array([1, 2]))
