"""Abstract arguments of the sparse search, for tests/test_export.py."""

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.functional import sparse

MESH = AbstractMesh((8,), ("rows",))


def arrays(rows: NamedSharding | None = None, whole: NamedSharding | None = None):
    return (
        jax.ShapeDtypeStruct((800, 24), jnp.uint16, sharding=rows),
        jax.ShapeDtypeStruct((1 << 16, 32), jnp.float32, sharding=whole),
    )


def sharded_search():
    spread = arrays(NamedSharding(MESH, P("rows")), NamedSharding(MESH, P()))
    return sparse.sharded_search, spread, {"k": 9, "count": 790, "mesh": MESH, "axis": "rows"}


def weight_table():
    return sparse.weight_table, (jax.ShapeDtypeStruct((32, 500), jnp.float32),), {}


CASES = {
    "jaxrag.functional.sparse.weight_table": weight_table,
    "jaxrag.functional.sparse.search": lambda: (
        sparse.search,
        arrays(),
        {"k": 9, "count": 800, "chunk": 300},
    ),
    "jaxrag.functional.sparse.sharded_search": sharded_search,
}
