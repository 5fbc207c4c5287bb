"""Caches over a mesh are cut by rows and heads, and by rows again where heads run out."""

from typing import NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxrag.models.cache import empty_cache
from jaxrag.models.sharding import automatic_mesh, cache_sharding


class Config(NamedTuple):
    cache_shape: tuple[int, int, int]


def mesh(data: int, model: int) -> Mesh:
    return automatic_mesh(Mesh(np.array(jax.devices()[:8]).reshape(data, model), ("data", "model")))


@pytest.mark.parametrize(
    ("data", "model", "heads", "rows", "part"),
    [
        (2, 4, 4, 16, (8, 1)),  # 16 rows over 2, 4 heads over 4
        (1, 8, 4, 16, (8, 1)),  # 4 heads over 4 of 8, the other 2 cut the rows
        (1, 8, 1, 16, (2, 1)),  # one head: only rows
        (1, 8, 8, 16, (16, 1)),
        (1, 8, 6, 16, (4, 3)),  # gcd(8, 6) = 2 halves of the heads, 4 parts of the rows
        (2, 4, 2, 2, (1, 1)),  # 2 rows: enough for "data" alone
        (1, 8, 4, 3, (3, 1)),  # 3 rows cannot be cut
    ],
)
def test_every_device_holds_a_part(data, model, heads, rows, part) -> None:
    config = Config((2, heads, 4))
    for stacked in (False, True):
        sharding = cache_sharding(config, rows, mesh(data, model), stacked=stacked)
        cache = empty_cache(config, rows, 8, "float32", stacked=stacked, device=sharding)
        for array in jax.tree.leaves(cache):
            assert array.sharding.shard_shape(array.shape)[-4:-2] == part


def test_neighbours_share_a_head() -> None:
    # The queries of 4 heads over 8 devices: devices 2i and 2i + 1 have the halves of head i's.
    sharding = cache_sharding(Config((1, 4, 4)), 6, mesh(1, 8), stacked=False)
    found = sharding.devices_indices_map((6, 4, 4, 8))
    for number, device in enumerate(jax.devices()[:8]):
        rows, heads, *_ = found[device]
        assert heads == slice(number // 2, number // 2 + 1)
        assert rows == slice(3 * (number % 2), 3 * (number % 2) + 3)


def test_a_mesh_of_rows_alone() -> None:
    rows = automatic_mesh(Mesh(np.array(jax.devices()[:8]), ("data",)))
    sharding = cache_sharding(Config((2, 4, 4)), 16, rows, stacked=True)
    assert sharding.shard_shape((2, 16, 4, 4, 8)) == (2, 2, 4, 4, 8)
