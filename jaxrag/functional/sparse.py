"""Exact search of sparse vectors over a vocabulary, with some hundred entries each.

    >>> values = jnp.float16([1, 0.5])  # at the tokens 3 and 5 of one vector
    >>> ids = jnp.array([3, 5], jnp.uint16)
    >>> entries = jnp.concatenate([ids, lax.bitcast_convert_type(values, jnp.uint16)])[None]
    >>> search(entries, weight_table(jnp.eye(2, 8, 3)), k=1, count=1).scores  # compiled, q = 2
    Array([[1.],
           [0.]], dtype=float32)

SiDR's index E(D) (docs/methods, "R3: the four searches"), searched by E(q) (parametric) or T(q)
(alpha). A row of the array has the vector's token ids, then their values as the bits of float16.
As in `jaxrag.functional.bag_of_tokens`, each entry looks up the weights of all queries at once, so
that `search` is compiled and batched over queries already.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, UInt16

from jaxrag.functional.topk import TopK, merge_devices, merge_scores, no_results

_CHUNK = 4096
_STEP = 8  # entries per iteration of the loop over entries


@jax.jit
def weight_table(queries: Float[Array, "q v"]) -> Float[Array, "65536 q"]:
    """W[v, q]: the weight of token v in query q, for every 16-bit id v; 0 beyond the vocabulary."""
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
    """top-k over rows i of sum over entries (v, x) of row i of x W[v, q]: scores and rows [q k].

    The ``k`` largest inner products with each query q; W is the ``table``. Scores are float32 sums
    of l products in the order of entries. Results are ordered and padded as in
    `jaxrag.functional.topk`. The first ``count`` rows are real, the rest is padding; ``chunk`` rows
    are scored at once; ``offset`` is added to the rows found.
    """
    n, q = entries.shape[0], table.shape[1]
    chunk = min(chunk, max(n, 1))

    def add(step: Array, results: TopK) -> TopK:
        # The last chunk overlaps the one before, whose rows are excluded.
        start = jnp.minimum(step * chunk, n - chunk)
        rows = start + jnp.arange(chunk)
        scores = _scores(lax.dynamic_slice_in_dim(entries, start, chunk), table)
        new = (rows >= step * chunk) & (rows < count)
        scores = jnp.where(new[:, None], scores, -jnp.inf).T
        return merge_scores(results, scores, first_row=start + offset, k=k)

    return lax.fori_loop(0, -(-n // chunk), add, no_results(q, k))


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

    zeros = jnp.zeros((n, table.shape[1]), jnp.float32)
    return lax.fori_loop(0, columns.shape[1] // _STEP, add, zeros)


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
    """`search` of rows that are sharded over a mesh axis."""

    def local(
        entries: UInt16[Array, "m 2*l"], table: Float[Array, "65536 q"], count: Array
    ) -> TopK:
        first = lax.axis_index(axis) * entries.shape[0]
        results = search(entries, table, k=k, count=count - first, offset=first)
        return merge_devices(results, axis, k=k)

    # check_vma cannot infer that the merged result is replicated.
    sharded = jax.shard_map(
        local, mesh=mesh, in_specs=(P(axis), P(), P()), out_specs=P(), check_vma=False
    )
    return sharded(entries, table, jnp.asarray(count))
