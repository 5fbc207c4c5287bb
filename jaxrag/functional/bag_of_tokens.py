"""SiDR's beta search: upper bounds on the scores of millions of passages' token sets.

    >>> queries = jnp.array([[2.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    >>> table = level_table(queries, LEVELS / queries.max(axis=1))  # compiled, of q = 2 queries
    >>> slots = jnp.full((STEP, BLOCK), PAD, jnp.uint16).at[:2, 0].set(jnp.uint16([0, 2]))
    >>> blocks = block_bounds(Part(slots, jnp.array([0]), jnp.array([STEP]), jnp.array(1)), table)
    >>> blocks >> 16  # bounds of a passage of the tokens 0 and 2, in levels
    Array([[127, 127]], dtype=uint32)

A passage's score is f(q, d) = sum over tokens v in d of q_v, with the query's weights q_v
(docs/methods, "R3: the four searches"). Instead of a sparse matrix product, each token looks up
a row of 8-bit weights, one for each query of a batch, and rows are summed in 16 bits. Weights are
rounded up, so sums are upper bounds: passages whose bound is too low are excluded for certain, and
few have to be scored exactly (by `jaxrag.retrieval.sidr.bag_of_tokens`). All functions are compiled
and batched over queries already.

Passages are stored in tiles of a [s tile] array of token ids: the i-th tile has the rows
``starts[i]`` to ``starts[i] + widths[i]``, and each column is one passage. A tile is as wide as its
longest passage; shorter ones are padded by `PAD`. A block is `BLOCK` columns of a tile that are
congruent modulo tile / BLOCK; only its two best bounds are kept.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, UInt8, UInt16, UInt32

PAD = 0xFFFF
"""Id of padding."""

STEP = 8
"""Tokens per iteration of the loop over a tile; widths of tiles are multiples of it."""

BLOCK = 16
"""Passages of a block, of which the two best bounds are kept."""

LEVELS = 126
"""Steps between 0 and a query's largest weight. Two rounded weights fit 8 bits."""

LONGEST = (1 << 16) // (LEVELS + 1) - 1
"""Most tokens of a passage, so that its bound fits 16 bits."""

GROUP = 8
"""Neighbouring blocks whose maximum is searched first."""

_LEAD_BITS = 12
_LEAD = (1 << _LEAD_BITS) - 1

_STEPS_AT_ONCE = 16  # tokens per iteration where all parts are summed at once
_EVEN_BYTES = 0x00FF00FF  # of a word of four

_SLACK = 1 + 2.0**-20  # exceeds the three float32 roundings of a level


class Part(NamedTuple):
    """Tiles of passages; the first ``count`` columns are passages, the rest is padding."""

    slots: UInt16[Array, "*p s tile"]
    starts: Int[Array, "*p i"]
    widths: Int[Array, "*p i"]
    count: Int[Array, "*p"]


Blocks = UInt32[Array, "b q"]
"""The two best bounds of each block, in levels, ordered by tile and residue.

From the highest bit: the best bound (16 bits); 15 - lane (4), where the lane is the column divided
by tile / BLOCK; 4095 - the best bound's lead over the second best (12), which is the bound + 1 if
there is no second. Leads above 4095 count as 4095, so that a second best is never less than said.
0 is a block without passages.
"""


class Selected(NamedTuple):
    """The best blocks of each query, padded by -1, with the lane and bound of their best passage
    and the bound of the second best, -1 without one. Bounds are in levels.
    """

    blocks: Int[Array, "q m"]
    lanes: Int[Array, "q m"]
    bounds: Int[Array, "q m"]
    seconds: Int[Array, "q m"]


@jax.jit
def level_table(
    queries: Float[Array, "q v"], inverse: Float[Array, " q"]
) -> UInt8[Array, "65536 q"]:
    """W[v, q] = ceil(q_v LEVELS / max_v q_v): each token's weight in levels, for every 16-bit id v.

    0 beyond the vocabulary. The product is first made larger by more than its float32 roundings.
    ``queries`` are the weights q_v, not negative, and ``inverse`` is LEVELS / max_v q_v.
    """
    # Compared as bits, as processors may flush weights below 1e-38 to zero.
    positive = lax.bitcast_convert_type(queries, jnp.int32) > 0
    levels = jnp.ceil(queries * inverse[:, None] * _SLACK)
    levels = jnp.where(positive, jnp.clip(levels, 1, LEVELS + 1), 0).astype(jnp.uint8)
    levels = lax.optimization_barrier(levels)  # transposing bytes is faster than float32 numbers
    return jnp.pad(levels.T, ((0, PAD + 1 - queries.shape[1]), (0, 0)))


def _bounds(part: Part, table: UInt8[Array, "65536 ..."]) -> Blocks:
    """Blocks of one part [b q]; q is 1 for a table without an axis of queries."""
    tile = part.slots.shape[1]

    def tile_bounds(at: tuple[Array, Array, Array]) -> Blocks:
        index, start, width = at

        def add(step: Array, sums: UInt16[Array, "tile ..."]) -> UInt16[Array, "tile ..."]:
            rows = [_row(part.slots, start + step * STEP + i, table) for i in range(STEP)]
            if table.ndim > 1:  # 8-bit additions first: registers hold twice as many
                rows = [first + second for first, second in zip(rows[::2], rows[1::2], strict=True)]
            return sum((row.astype(jnp.uint16) for row in rows), sums)

        zeros = jnp.zeros((tile, *table.shape[1:]), jnp.uint16)
        sums = lax.fori_loop(0, width // STEP, add, zeros)
        return _two_best(sums, part.count - index * tile)

    tiles = jnp.arange(part.starts.shape[0])
    bounds = lax.map(tile_bounds, (tiles, part.starts, part.widths))
    return bounds.reshape(-1, *table.shape[1:] or (1,))


def _bounds_at_once(parts: Part, table: UInt8[Array, "65536 ..."]) -> Blocks:
    """Blocks of several parts [p ...], the i-th tile of all parts in one loop.

    On a GPU every iteration of a loop launches its kernels from the host, so many columns are
    summed in few iterations. Weights are read four queries at a time, as words of 32 bits, and two
    rows are added before their bytes are widened: the sum of two levels fits 8 bits.
    """
    (p, _, tile), queries = parts.slots.shape, table.shape[1:] or (1,)
    rows = table.reshape(table.shape[0], -1)
    rows = jnp.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
    words = lax.bitcast_convert_type(rows.reshape(len(rows), -1, 4), jnp.uint32)

    def tile_bounds(at: tuple[Array, Array, Array]) -> Blocks:
        index, starts, widths = at

        def add(step: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            looked_up = []
            for i in range(_STEPS_AT_ONCE):
                height = step * _STEPS_AT_ONCE + i
                ids = parts.slots[jnp.arange(p), starts + height]
                ids = jnp.where((height < widths)[:, None], ids, PAD)  # beyond lies another tile
                looked_up.append(words.at[ids].get(mode="promise_in_bounds"))
            even, odd = sums
            for first, second in zip(looked_up[::2], looked_up[1::2], strict=True):
                both = first + second
                even, odd = even + (both & _EVEN_BYTES), odd + (both >> 8 & _EVEN_BYTES)
            return even, odd

        zeros = jnp.zeros((p, tile, words.shape[1]), jnp.uint32)
        steps = -(-widths.max() // _STEPS_AT_ONCE)
        even, odd = lax.fori_loop(0, steps, add, (zeros, zeros))
        halves = (x.astype(jnp.uint16) for x in (even, odd, even >> 16, odd >> 16))
        sums = jnp.stack(list(halves), axis=-1).reshape(p, tile, -1)[..., : queries[0]]
        return jax.vmap(_two_best)(sums, parts.count - index * tile)

    tiles = parts.starts.shape[1]
    bounds = lax.map(tile_bounds, (jnp.arange(tiles), parts.starts.T, parts.widths.T))
    return bounds.swapaxes(0, 1).reshape(-1, *queries)


def _row(
    slots: UInt16[Array, "s tile"], at: Array, table: UInt8[Array, "65536 ..."]
) -> UInt8[Array, "tile ..."]:
    ids = lax.dynamic_slice_in_dim(slots, at, 1).reshape(slots.shape[1])
    return table.at[ids].get(mode="promise_in_bounds")


def _two_best(sums: UInt16[Array, "tile ..."], count: Array) -> UInt32[Array, "b ..."]:
    """The two best of each block among the first ``count`` columns; ties go to the first."""
    apart = sums.shape[0] // BLOCK
    best = sums[:apart]
    second, lanes = jnp.zeros_like(best), jnp.zeros_like(best)
    for lane in range(1, BLOCK):  # padding has sums of 0, and so wins nothing
        new = sums[lane * apart : (lane + 1) * apart]
        second = jnp.maximum(second, jnp.minimum(best, new))
        lanes = jnp.where(new > best, jnp.uint16(lane), lanes)
        best = jnp.maximum(best, new)
    first = jnp.arange(apart).reshape(-1, *(1,) * (sums.ndim - 1))
    lead = jnp.where(first + apart < count, best - second, best + 1)
    lead = jnp.minimum(lead, _LEAD).astype(jnp.uint32)
    lanes = (BLOCK - 1 - lanes).astype(jnp.uint32)
    packed = best.astype(jnp.uint32) << 16 | lanes << _LEAD_BITS | _LEAD - lead
    return jnp.where(first < count, packed, 0)


# A row of 64 bytes fits one AVX-512 register; XLA uses half of it by default.
block_bounds = jax.jit(_bounds, compiler_options={"xla_cpu_prefer_vector_width": 512})
"""The two best bounds sum over v in d of W[v, q] of each block of one part, on a CPU."""


@partial(jax.jit, static_argnames=("mesh", "axis", "at_once"))
def sharded_block_bounds(
    parts: Part, table: UInt8[Array, "65536 q"], *, mesh: Mesh, axis: str, at_once: bool
) -> Blocks:
    """`block_bounds` of several parts, stacked in ``parts`` [p ...] and sharded over a mesh axis.

    With ``at_once`` a device sums all its parts in one loop, which is faster on GPUs: 20 ms and not
    1,235 for 64 queries and 21 million passages on an H200. The blocks are the same.
    """

    def local(parts: Part, table: UInt8[Array, "65536 q"]) -> Blocks:
        if at_once:
            return _bounds_at_once(parts, table)
        bounds = lax.map(lambda part: _bounds(part, table), parts)
        return bounds.reshape(-1, bounds.shape[-1])

    return jax.shard_map(
        local, mesh=mesh, in_specs=(P(axis), P()), out_specs=P(axis), check_vma=False
    )(parts, table)


@jax.jit
def grouped(*parts: Blocks) -> tuple[Blocks, UInt32[Array, "q g"]]:
    """Blocks of all parts, padded with 0 to whole groups, and the maximum of each group."""
    blocks = jnp.concatenate(parts)
    blocks = jnp.pad(blocks, ((0, -blocks.shape[0] % GROUP), (0, 0)))
    return blocks, blocks.reshape(-1, GROUP, blocks.shape[1]).max(axis=1).T


@partial(jax.jit, static_argnames=("wanted", "mesh", "axis"))
def sharded_select(blocks: Blocks, *, wanted: int, mesh: Mesh, axis: str) -> Selected:
    """The ``wanted`` best blocks, sharded over a mesh axis, of each query by bounds, best first."""

    def local(blocks: Blocks) -> Selected:
        packed, at = _select(blocks, wanted)
        at = jnp.where(at < 0, -1, at + lax.axis_index(axis) * blocks.shape[0])
        packed, at = (lax.all_gather(x, axis, axis=1, tiled=True) for x in (packed, at))
        best = lax.top_k(_keys(packed), wanted)[1]
        return unpack(*(jnp.take_along_axis(x, best, axis=1) for x in (packed, at)))

    return jax.shard_map(local, mesh=mesh, in_specs=(P(axis),), out_specs=P(), check_vma=False)(
        blocks
    )


def _select(blocks: Blocks, wanted: int) -> tuple[Array, Array]:
    """The best blocks and their numbers, [q wanted].

    The ``wanted`` best blocks are in the ``wanted`` groups of neighbours with the largest maxima.
    """
    blocks, maxima = grouped(blocks)
    b, q = blocks.shape
    groups = lax.top_k(_keys(maxima), min(wanted, maxima.shape[1]))[1]
    at = (groups[..., None] * GROUP + jnp.arange(GROUP)).reshape(q, -1)
    at = jnp.pad(at, ((0, 0), (0, max(wanted - at.shape[1], 0))), constant_values=b)
    packed = blocks.at[at, jnp.arange(q)[:, None]].get(mode="fill", fill_value=0)
    order = lax.top_k(_keys(packed), wanted)[1]
    packed, at = (jnp.take_along_axis(x, order, axis=1) for x in (packed, at))
    return packed, jnp.where(packed > 0, at, -1)


def _keys(packed: UInt32[Array, ...]) -> Float[Array, ...]:
    """Bound and lane, 20 bits, which are exact in float32."""
    return (packed >> _LEAD_BITS).astype(jnp.float32)


def unpack(packed: Any, blocks: Any) -> Selected:
    """Lanes and bounds of selected blocks, unpacked from JAX or NumPy arrays [q m].

    ``blocks`` are their numbers, -1 for none; for ``packed`` see `Blocks`.
    """
    bounds = (packed >> 16).astype("int32")
    lanes = BLOCK - 1 - (packed >> _LEAD_BITS).astype("int32") % BLOCK
    seconds = bounds - _LEAD + (packed & _LEAD).astype("int32")
    padded = ((x + 1) * (blocks >= 0) - 1 for x in (lanes, bounds, seconds))
    return Selected(blocks, *padded)
