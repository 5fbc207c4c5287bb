"""Stacked layers attend to the cache and the new tokens beside it, and write to it afterwards."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.cache import put, put_stacked
from jaxrag.models.decoder.network import joined_weights, softmax_parts, split_mask

RANDOM = np.random.default_rng(0)


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(RANDOM.normal(size=shape), jnp.float32)


@pytest.mark.parametrize("slot", [3, [0, 2, 5]])
def test_all_layers_are_written_as_each_alone(slot: Any) -> None:
    at, layers, new = jnp.asarray(slot), range(2), (draw(2, 3, 4, 5, 6), draw(2, 3, 4, 5, 6))
    cache = draw(2, 3, 5, 6, 9), draw(2, 3, 5, 9, 6)
    keys, values = put_stacked(cache, new, at)
    for i in layers:
        wanted = put((cache[0][i], cache[1][i]), new[0][i], new[1][i], at)
        np.testing.assert_array_equal(keys[i], wanted[0])
        np.testing.assert_array_equal(values[i], wanted[1])


def test_masks_by_hand() -> None:
    # Two new tokens in slots 2 and 3 of 5; the first sees slots 0 to 2, the second all but 1.
    where = jnp.array([[[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]]], bool)
    for slot in (jnp.array(2), jnp.array([2])):
        among, before = split_mask(where, slot, 2)
        assert among.astype(int).tolist() == [[[1, 0], [1, 1]]]
        assert before.astype(int).tolist() == [[[1, 1, 0, 0, 0], [1, 0, 0, 0, 1]]]


def test_a_softmax_in_parts_is_the_softmax_of_all() -> None:
    # e^0 : e^ln2 : e^ln5 = 1 : 2 : 5
    scores = jnp.log(jnp.array([[[[[1.0, 2.0]]]]])), jnp.log(jnp.array([[[[[5.0]]]]]))
    first, second = softmax_parts(*scores)
    np.testing.assert_allclose(first.ravel(), [1 / 8, 2 / 8], rtol=1e-6)
    np.testing.assert_allclose(second.ravel(), [5 / 8], rtol=1e-6)
    large = 200 * draw(1, 2, 2, 3, 7), 200 * draw(1, 2, 2, 3, 3)
    wanted = jax.nn.softmax(jnp.concatenate(large, axis=-1), axis=-1)
    np.testing.assert_allclose(jnp.concatenate(softmax_parts(*large), -1), wanted, atol=1e-6)


def test_a_query_that_sees_nothing_stays_finite() -> None:
    least = jnp.full((1, 1, 1, 1, 3), jnp.finfo(jnp.float32).min)
    first, second = softmax_parts(least, least[..., :1])
    np.testing.assert_allclose(first.ravel(), 0.25)
    np.testing.assert_allclose(second.ravel(), 0.25)


def test_joined_weights_stand_in_their_slots() -> None:
    weights, own = jnp.zeros((2, 1, 1, 1, 5)), jnp.array([[1.0, 2.0], [3.0, 4.0]])
    found = joined_weights(weights, own.reshape(2, 1, 1, 1, 2), jnp.array([0, 3]))
    assert found.reshape(2, 5).tolist() == [[1, 2, 0, 0, 0], [0, 0, 0, 3, 4]]
