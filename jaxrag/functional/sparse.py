"""Search among sparse vectors: weights over a vocabulary against rows of some hundred entries.

The index E(D) of SiDR (docs/methods.md, "R3: the four searches"), asked with E(q) (parametric
search) or T(q) (alpha). A row of the matrix holds token ids, then their values as the bits of
float16, so that one array of 16-bit numbers is all there is. As in
`jaxrag.functional.bag_of_tokens`, each entry fetches the weights of all queries at once.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, UInt16

from jaxrag.functional.topk import TopK, merge_topk, topk

_CHUNK = 4096
_STEP = 8  # entries added up between two looks at the sums


@jax.jit
def weight_table(queries: Float[Array, "q v"]) -> Float[Array, "65536 q"]:
    """Each token's weights; zero for ids beyond the vocabulary, so that every 16-bit id has one."""
    return jnp.pad(queries.T, ((0, (1 << 16) - queries.shape[1]), (0, 0)))


@partial(jax.jit, static_argnames=("k", "chunk"))
def search(
    entries: UInt16[Array, "n 2*l"],
    table: Float[Array, "65536 q"],
    *,
    k: int,
    count: int | Int[Array, ""],
    offset: int | Int[Array, ""] = 0,
    chunk: int = _CHUNK,
) -> TopK:
    """The ``k`` rows with the largest inner product with each query: scores and rows [q k].

    Scores are float32 sums of l products in the order of entries. Order is total: larger score
    first, then lower row; fewer than ``k`` rows are filled up with row -1 and score -inf.

    Args:
      entries: l ids, then l values.
      table: see `weight_table`.
      k: at least 1.
      count: rows from here on are none.
      offset: added to the rows found.
      chunk: rows scored at once.
    """
    n, q = entries.shape[0], table.shape[1]
    chunk = min(chunk, max(n, 1))
    found = TopK(jnp.full((q, k), -jnp.inf), jnp.full((q, k), -1, jnp.int32))

    def add(step: Array, found: TopK) -> TopK:
        # The last chunk begins early enough to be whole; what the one before had is left out.
        start = jnp.minimum(step * chunk, n - chunk)
        rows = start + jnp.arange(chunk)
        scores = _scores(lax.dynamic_slice_in_dim(entries, start, chunk), table)
        kept = (rows >= step * chunk) & (rows < count)
        here = jax.vmap(partial(topk, k=k), in_axes=1)(jnp.where(kept[:, None], scores, -jnp.inf))
        here = here._replace(rows=here.rows + start + offset)  # merging marks fillers again
        return jax.vmap(partial(merge_topk, k=k))(found, here)

    return lax.fori_loop(0, -(-n // chunk), add, found)


def _scores(entries: UInt16[Array, "n 2*l"], table: Float[Array, "65536 q"]) -> Float[Array, "n q"]:
    n, length = entries.shape[0], entries.shape[1] // 2
    columns = jnp.pad(entries.reshape(n, 2, length), ((0, 0), (0, 0), (0, -length % _STEP)))
    columns = columns.transpose(1, 2, 0)  # [2 l n]

    def add(step: Array, sums: Float[Array, "n q"]) -> Float[Array, "n q"]:
        for i in range(_STEP):
            ids, bits = lax.dynamic_index_in_dim(columns, step * _STEP + i, axis=1, keepdims=False)
            values = lax.bitcast_convert_type(bits, jnp.float16).astype(jnp.float32)
            sums += values[:, None] * table.at[ids].get(mode="promise_in_bounds")
        return sums

    nothing = jnp.zeros((n, table.shape[1]), jnp.float32)
    return lax.fori_loop(0, columns.shape[1] // _STEP, add, nothing)


@partial(jax.jit, static_argnames=("k", "mesh", "axis"))
def sharded_search(
    entries: UInt16[Array, "n 2*l"],
    table: Float[Array, "65536 q"],
    *,
    k: int,
    count: int | Int[Array, ""],
    mesh: Mesh,
    axis: str,
) -> TopK:
    """`search` among rows that are spread over a mesh axis."""

    def local(
        entries: UInt16[Array, "m 2*l"], table: Float[Array, "65536 q"], count: Array
    ) -> TopK:
        first = lax.axis_index(axis) * entries.shape[0]
        found = search(entries, table, k=k, count=count - first, offset=first)
        together = lax.all_gather(found, axis, axis=1, tiled=True)
        nothing = TopK(jnp.full((k,), -jnp.inf), jnp.full((k,), -1, jnp.int32))
        return jax.vmap(lambda found: merge_topk(nothing, found, k=k))(together)

    # The merge is the same on every device, which the checker of replication cannot see.
    spread = jax.shard_map(
        local, mesh=mesh, in_specs=(P(axis), P(), P()), out_specs=P(), check_vma=False
    )
    return spread(entries, table, jnp.asarray(count))
