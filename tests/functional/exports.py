"""Abstract arguments of every jitted function of jaxrag.functional, for tests/test_export.py."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.functional import ais, topk


def f32(*shape: int, sharding: NamedSharding | None = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def search_over_chunks():
    # 1000 rows in chunks of 296: the loop and the shorter last chunk both appear.
    arguments = {"k": 10, "bias": f32(1000), "chunk": 300, "block": 8}
    return topk.search, (f32(1000, 16), f32(4, 16)), arguments


def sharded_search():
    mesh = AbstractMesh((8,), ("data",))
    rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    arrays = f32(800, 16, sharding=rows), f32(4, 16, sharding=whole), f32(800, sharding=rows)
    return topk.sharded_search, arrays, {"k": 10, "mesh": mesh, "axis": "data"}


def select():
    ids, where = jax.ShapeDtypeStruct((10,), np.int32), jax.ShapeDtypeStruct((10,), np.bool_)
    return ais.select, (f32(10), ids), {"k": 3, "where": where}


def select_passages(score: ais.Score):
    _, (_, ids), masked = select()
    arrays = f32(384), f32(384), f32(10, 384), ids
    return ais.select_passages, arrays, {**masked, "score": score}


def sharded_l2_bias():
    mesh = AbstractMesh((8,), ("data",))
    matrix = f32(800, 16, sharding=NamedSharding(mesh, P("data")))
    return topk.sharded_l2_bias, (matrix,), {"mesh": mesh, "axis": "data"}


def merge_candidates():
    found = topk.BoundedTopK(topk.TopK(f32(4, 10), jax.ShapeDtypeStruct((4, 10), np.int32)), f32(4))
    return topk.merge_candidates, (found, found), {"k": 10}


CASES = {
    "jaxrag.functional.topk.sharded_l2_bias": sharded_l2_bias,
    "jaxrag.functional.topk.merge_candidates": merge_candidates,
    "jaxrag.functional.topk.search": search_over_chunks,
    "jaxrag.functional.topk.l2_bias": lambda: (topk.l2_bias, (f32(1000, 16),), {}),
    "jaxrag.functional.topk.sharded_search": sharded_search,
    "jaxrag.functional.ais.select": select,
    "jaxrag.functional.ais.select_passages": partial(select_passages, "angle_sum"),
    "jaxrag.functional.ais.select_passages (cosine_sum)": partial(select_passages, "cosine_sum"),
    "jaxrag.functional.ais.select_passages (dynamic)": partial(select_passages, "dynamic"),
}
