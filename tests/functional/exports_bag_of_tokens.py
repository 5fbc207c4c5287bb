"""Abstract arguments of the token-set kernels, for tests/test_export.py."""

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.functional import bag_of_tokens as bags

MESH = AbstractMesh((8,), ("rows",))
ROWS, WHOLE = NamedSharding(MESH, P("rows")), NamedSharding(MESH, P())


def array(*shape: int, dtype=jnp.int32, sharding: NamedSharding | None = None):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def part(*parts: int, sharding: NamedSharding | None = None) -> bags.Part:
    return bags.Part(
        array(*parts, 128, 64, dtype=jnp.uint16, sharding=sharding),
        array(*parts, 3, sharding=sharding),
        array(*parts, 3, sharding=sharding),
        array(*parts, sharding=sharding),
    )


def blocks(sharding: NamedSharding | None = None):
    return array(96, 32, dtype=jnp.uint32, sharding=sharding)


def table(*queries: int, sharding: NamedSharding | None = None):
    return array(1 << 16, *queries, dtype=jnp.uint8, sharding=sharding)


def sharded_block_bounds(*queries: int, at_once: bool):
    arrays = part(16, sharding=ROWS), table(*queries, sharding=WHOLE)
    return bags.sharded_block_bounds, arrays, {"mesh": MESH, "axis": "rows", "at_once": at_once}


def sharded_select():
    return bags.sharded_select, (blocks(ROWS),), {"wanted": 20, "mesh": MESH, "axis": "rows"}


def level_table():
    arrays = array(32, 500, dtype=jnp.float32), array(32, dtype=jnp.float32)
    return bags.level_table, arrays, {}


CASES = {
    "jaxrag.functional.bag_of_tokens.level_table": level_table,
    "jaxrag.functional.bag_of_tokens.block_bounds": lambda: (
        bags.block_bounds, (part(), table(32)), {},
    ),
    "jaxrag.functional.bag_of_tokens.block_bounds (one query)": lambda: (
        bags.block_bounds, (part(), table()), {},
    ),
    "jaxrag.functional.bag_of_tokens.grouped": lambda: (bags.grouped, (blocks(), blocks()), {}),
    "jaxrag.functional.bag_of_tokens.sharded_block_bounds": lambda: (
        sharded_block_bounds(32, at_once=False)
    ),
    "jaxrag.functional.bag_of_tokens.sharded_block_bounds (all parts at once)": lambda: (
        sharded_block_bounds(32, at_once=True)
    ),
    "jaxrag.functional.bag_of_tokens.sharded_block_bounds (at once, one query)": lambda: (
        sharded_block_bounds(at_once=True)
    ),
    "jaxrag.functional.bag_of_tokens.sharded_select": sharded_select,
}  # fmt: skip
