"""Stacked layers attend to the cache and the new tokens beside it, and write to it afterwards."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.cache import put, put_stacked
from jaxrag.models.decoder.network import softmax_parts

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


def test_a_query_that_sees_nothing_stays_finite() -> None:
    least = jnp.full((1, 1, 1, 1, 3), jnp.finfo(jnp.float32).min)
    first, second = softmax_parts(least, least[..., :1])
    np.testing.assert_allclose(first.ravel(), 0.25)
    np.testing.assert_allclose(second.ravel(), 0.25)
