"""Programs of the exact searches: of vectors, and of 21 million passages' token sets."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.tpu.chips import Place, Slice
from benchmarks.tpu.networks import BASE
from benchmarks.tpu.program import Ideal, Program
from jaxrag.functional import bag_of_tokens, topk
from jaxrag.functional.bag_of_tokens import BLOCK, PAD, STEP, Part
from jaxrag.models.bert.sidr import SidrNetwork
from jaxrag.retrieval.dense.device_rows import AXIS
from jaxrag.retrieval.sidr.token_tiles import MOST_ROWS, tile_size

PASSAGES = 21_015_324
"""Of the Wikipedia of DPR."""

_CHUNK = 1 << 24  # scores held at once, as `ExactIndex` has it on accelerators
_SPARE = 30  # candidates beyond k after a first pass in bfloat16
_K = 20
WIDTH = 80
"""Rows of a tile: a passage's 72 tokens on average, and padding."""


def _mesh(where: Place) -> Mesh:
    device = where.device or jax.devices()[0]
    devices = where.mesh.devices.reshape(-1) if where.mesh is not None else np.array([device])
    return Mesh(devices, (AXIS,))


def _array(mesh: Mesh, shape: tuple[int, ...], dtype: Any, spec: P) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))


def _topk(rows: int, features: int, queries: int, where: Place) -> Any:
    mesh = _mesh(where)
    return topk.sharded_search.trace(
        _array(mesh, (rows, features), jnp.float16, P(AXIS)),
        _array(mesh, (queries, features), jnp.float32, P()),
        None,
        k=_K + _SPARE,
        mesh=mesh,
        axis=AXIS,
        offset=0,
        chunk=_CHUNK // queries,
        first_pass=jnp.bfloat16,
        whole=False,
    )


def exact(on: Slice, rows: int, features: int, queries: int) -> Program:
    """The best of ``rows`` vectors on the chips for a block of queries."""
    rows = -(-rows // on.chips) * on.chips
    moved = 2.0 * rows * features
    return Program(
        f"exact top {_K}: {rows:,} x {features}, {queries} queries",
        on,
        partial(_topk, rows, features, queries),
        Ideal(moved, 2.0 * rows * features * queries),
        queries,
        "queries",
    )


def _table(queries: int, where: Place) -> Any:
    mesh = _mesh(where)
    words = BASE["vocab_size"] - SidrNetwork.first
    return bag_of_tokens.level_table.trace(
        _array(mesh, (queries, words), jnp.float32, P()),
        _array(mesh, (queries,), jnp.float32, P()),
    )


def _bounds(files: int, queries: int, where: Place) -> Any:
    mesh, tile = _mesh(where), tile_size(MOST_ROWS)
    tiles = MOST_ROWS // tile
    parts = Part(
        _array(mesh, (files, tiles * WIDTH, tile), jnp.uint16, P(AXIS)),
        _array(mesh, (files, tiles), jnp.int32, P(AXIS)),
        _array(mesh, (files, tiles), jnp.int32, P(AXIS)),
        _array(mesh, (files,), jnp.int32, P(AXIS)),
    )
    table = _array(mesh, (PAD + 1, queries), jnp.uint8, P())
    at_once = mesh.devices.flat[0].platform == "gpu"
    return bag_of_tokens.sharded_block_bounds.trace(
        parts, table, mesh=mesh, axis=AXIS, at_once=at_once
    )


def _select(blocks: int, queries: int, where: Place) -> Any:
    mesh = _mesh(where)
    return bag_of_tokens.sharded_select.trace(
        _array(mesh, (blocks, queries), jnp.uint32, P(AXIS)),
        wanted=2 * _K + 33,
        mesh=mesh,
        axis=AXIS,
    )


def token_sets(on: Slice, queries: int) -> list[Program]:
    """SiDR's beta search of all passages, for a table of queries."""
    files = -(-PASSAGES // MOST_ROWS)
    files = -(-files // on.chips) * on.chips
    rows = files * MOST_ROWS
    blocks = rows // BLOCK
    ids, bounds = 2.0 * rows * WIDTH, 4.0 * blocks * queries
    table = float((PAD + 1) * queries)
    words = BASE["vocab_size"] - SidrNetwork.first
    return [
        Program(
            f"bag of tokens: table of {queries} queries",
            on,
            partial(_table, queries),
            Ideal(on.chips * (4.0 * queries * words + table), 0.0),
            queries,
            "queries",
        ),
        Program(
            f"bag of tokens: bounds of {rows:,}, {queries} queries",
            on,
            partial(_bounds, files, queries),
            Ideal(ids + bounds + on.chips * table, 0.0),
            queries,
            "queries",
            rounds=WIDTH // STEP,
        ),
        Program(
            f"bag of tokens: best of {blocks:,} blocks, {queries} queries",
            on,
            partial(_select, blocks, queries),
            Ideal(bounds, 0.0),
            queries,
            "queries",
        ),
    ]


def programs() -> list[Program]:
    """All of them."""
    one, eight = Slice("v5e:2x4"), Slice("v5e:2x4", 8, 1)
    slab = (1 << 30) // (2 * 768)  # rows of a slab on a chip that does not hold all, `DeviceRows`
    return [
        exact(one, slab, 768, 512),
        exact(eight, PASSAGES, 768, 512),
        exact(eight, PASSAGES, 1024, 512),
        *token_sets(eight, 64),
    ]
