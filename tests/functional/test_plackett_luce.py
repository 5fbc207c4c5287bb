"""Random rankings against float64 NumPy and against how often they are drawn."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional import plackett_luce
from jaxrag.types import InputError

WEIGHTS = np.array([1.3, -0.4, 0.7, 0.1, -1.1], np.float32)


def by_hand(weights, order):
    """float64: place by place, dividing by what is left."""
    left, total = dict(enumerate(np.exp(np.asarray(weights, np.float64)))), 0.0
    for place in order:
        total += math.log(left[place] / sum(left.values()))
        del left[place]
    return total


@pytest.mark.parametrize("order", [(2,), (4, 0), (3, 1, 0, 2, 4), (0, 2, 3, 1, 4)])
def test_log_probability_is_the_sum_over_successive_draws(order):
    found = jax.jit(plackett_luce.log_probability)(jnp.asarray(WEIGHTS), jnp.asarray(order))
    assert found == pytest.approx(by_hand(WEIGHTS, order), abs=1e-5)


@pytest.mark.parametrize("k", [2, 5])
def test_probabilities_of_all_orders_sum_to_one(k):
    orders = jnp.asarray(list(itertools.permutations(range(5), k)))
    several = jax.jit(jax.vmap(plackett_luce.log_probability, (None, 0)))
    found = several(jnp.asarray(WEIGHTS), orders)
    assert float(jnp.sum(jnp.exp(found))) == pytest.approx(1.0, abs=1e-5)


def test_a_dominating_weight_leaves_the_others_exact():
    # With e^60 in front, subtracting it from one total would leave 0 for the others.
    # The rest are e^1 and e^0: log sigmoid(1) = -0.313262
    weights = jnp.array([60.0, 1.0, 0.0])
    found = plackett_luce.log_probability(weights, jnp.array([0, 1, 2]))
    assert found == pytest.approx(-0.313262, abs=1e-5)


def test_gradient_is_that_of_finite_differences():
    order = jnp.array([3, 0, 4])
    found = jax.grad(plackett_luce.log_probability)(jnp.asarray(WEIGHTS), order)
    for i in range(5):
        step = np.eye(5)[i] * 1e-5
        wide = by_hand(WEIGHTS + step, (3, 0, 4)) - by_hand(WEIGHTS - step, (3, 0, 4))
        assert found[i] == pytest.approx(wide / 2e-5, abs=1e-4)


def test_orders_are_drawn_as_often_as_they_are_probable():
    draws = 20_000
    keys = jax.random.split(jax.random.key(3), draws)
    weights = jnp.asarray(WEIGHTS[:4])
    drawn = jax.jit(jax.vmap(lambda key: plackett_luce.sample(key, weights, k=2)))(keys)
    for order in itertools.permutations(range(4), 2):
        share = np.mean(np.all(np.asarray(drawn) == order, axis=1))
        p = math.exp(by_hand(WEIGHTS[:4], order))
        # 5 standard deviations of a share
        assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / draws), order


def test_a_draw_is_distinct_and_determined_by_its_key():
    weights, key = jnp.asarray(WEIGHTS), jax.random.key(1)
    whole = plackett_luce.sample(key, weights, k=5)
    assert sorted(whole.tolist()) == [0, 1, 2, 3, 4]
    assert plackett_luce.sample(key, weights, k=3).tolist() == whole.tolist()[:3]
    others = {
        tuple(plackett_luce.sample(jax.random.key(seed), weights, k=5).tolist())
        for seed in range(20)
    }
    assert len(others) > 5


@pytest.mark.parametrize("k", [0, 6])
def test_drawing_more_than_all_candidates_is_refused(k):
    with pytest.raises(InputError, match=rf"k is {k}; of 5 candidates 1 to 5"):
        plackett_luce.sample(jax.random.key(0), jnp.asarray(WEIGHTS), k=k)


def test_log_weights_do_not_depend_on_the_scale_of_scores():
    # scores 0.2, 0.5, 0.8 lie at 0, 1/2, 1 of their range: (1, 1.5, 2)^2 = 1, 2.25, 4
    scores = jnp.array([0.2, 0.5, 0.8])
    found = plackett_luce.log_weights(scores, alpha=2.0)
    np.testing.assert_allclose(found, [1.0, 2.25, 4.0], rtol=1e-6)
    # the range 6e38 is beyond float32
    wide = plackett_luce.log_weights(jnp.array([-3e38, 0.0, 3e38]), alpha=2.0)
    np.testing.assert_allclose(wide, [1.0, 2.25, 4.0], rtol=1e-6)
    moved = plackett_luce.log_weights(-7.0 + 100.0 * scores, alpha=2.0)
    np.testing.assert_allclose(moved, found, rtol=1e-5)
    np.testing.assert_allclose(
        plackett_luce.log_weights(scores, alpha=2.0, temperature=0.5), [2.0, 4.5, 8.0], rtol=1e-6
    )


def test_equal_scores_are_equally_probable():
    np.testing.assert_allclose(plackett_luce.log_weights(jnp.full(3, 0.4), alpha=8.0), np.ones(3))
    np.testing.assert_allclose(plackett_luce.log_weights(jnp.arange(3.0), alpha=0.0), np.ones(3))
