"""Abstract arguments of every jitted function of jaxrag.functional, for tests/test_export.py."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.functional import ais, quantization, sparse, topk
from jaxrag.functional import bag_of_tokens as bags
from jaxrag.retrieval.dense.scann import tree

MESH = AbstractMesh((8,), ("rows",))
ROWS, WHOLE = NamedSharding(MESH, P("rows")), NamedSharding(MESH, P())
OVER: dict[str, Any] = {"mesh": MESH, "axis": "rows"}


def array(
    *shape: int, dtype: Any = jnp.float32, sharding: NamedSharding | None = None
) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def cases() -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    yield from searches()
    yield from selections()
    yield from sparse_searches()
    yield from token_sets()
    yield from product_quantization()


def searches() -> Iterator[Any]:
    # 1000 rows in chunks of 296: the loop and the shorter last chunk both appear
    chunked = {"k": 10, "bias": array(1000), "chunk": 300, "block": 8}
    yield topk.search, (array(1000, 16), array(4, 16)), chunked
    yield topk.l2_bias, (array(1000, 16),), {}
    matrix = array(800, 16, sharding=ROWS)
    yield topk.sharded_l2_bias, (matrix,), OVER
    whole = array(4, 16, sharding=WHOLE), array(800, sharding=ROWS)
    yield topk.sharded_search, (matrix, *whole), {"k": 10, **OVER}
    found = topk.BoundedTopK(topk.TopK(array(4, 10), array(4, 10, dtype=jnp.int32)), array(4))
    yield topk.merge_candidates, (found, found), {"k": 10}


def selections() -> Iterator[Any]:
    ids, masked = array(10, dtype=jnp.int32), {"k": 3, "where": array(10, dtype=jnp.bool_)}
    yield ais.select, (array(10), ids), masked
    for score in ("angle_sum", "cosine_sum", "dynamic"):
        arrays = array(384), array(384), array(10, 384), ids
        yield ais.select_passages, arrays, {**masked, "score": score}


def sparse_searches() -> Iterator[Any]:
    def arrays(rows: NamedSharding | None = None, whole: NamedSharding | None = None) -> Any:
        return array(800, 24, dtype=jnp.uint16, sharding=rows), array(1 << 16, 32, sharding=whole)

    yield sparse.weight_table, (array(32, 500),), {}
    yield sparse.search, arrays(), {"k": 9, "count": 800, "chunk": 300}
    yield sparse.sharded_search, arrays(ROWS, WHOLE), {"k": 9, "count": 790, **OVER}


def token_sets() -> Iterator[Any]:
    def part(*parts: int, sharding: NamedSharding | None = None) -> bags.Part:
        first = array(*parts, 128, 64, dtype=jnp.uint16, sharding=sharding)
        others = ((*parts, 3), (*parts, 3), parts)
        return bags.Part(first, *(array(*s, dtype=jnp.int32, sharding=sharding) for s in others))

    def table(*queries: int, sharding: NamedSharding | None = None) -> jax.ShapeDtypeStruct:
        return array(1 << 16, *queries, dtype=jnp.uint8, sharding=sharding)

    def blocks(sharding: NamedSharding | None = None) -> jax.ShapeDtypeStruct:
        return array(96, 32, dtype=jnp.uint32, sharding=sharding)

    yield bags.level_table, (array(32, 500), array(32)), {}
    yield bags.block_bounds, (part(), table(32)), {}
    yield bags.block_bounds, (part(), table()), {}  # one query
    yield bags.grouped, (blocks(), blocks()), {}
    for queries, at_once in (((32,), False), ((32,), True), ((), True)):
        arrays = part(16, sharding=ROWS), table(*queries, sharding=WHOLE)
        yield bags.sharded_block_bounds, arrays, {"at_once": at_once, **OVER}
    yield bags.sharded_select, (blocks(ROWS),), {"wanted": 20, **OVER}


def product_quantization() -> Iterator[Any]:
    """64 rows of 20 numbers in 10 blocks, 12 leaves, 16 codes a block."""
    weights, vectors, centers = array(64), array(64, 20), array(12, 20)
    targets, book = array(64, 10, 2), array(10, 16, 2)
    yield quantization.nearest_center, (vectors, centers), {}
    yield quantization.center_sums, (vectors, weights, centers), {}
    yield quantization.block_sums, (targets, weights, book), {}
    yield quantization.anisotropic_codes, (targets, targets, weights, book), {}
    stored, leaves = array(64, 20, dtype=jnp.float16), array(64, dtype=jnp.int32)
    yield tree._leaves, (stored, centers), {}
    how = {"threshold": 0.2, "residual": True}
    yield tree._codes, (stored, leaves, centers, book), how
