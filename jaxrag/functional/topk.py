"""Exact top-k search: rows of a matrix with the largest inner products or smallest distances.

A top-k over all scores at once would take as long as computing them. It takes a few percent of
that, because only the best ``k`` of the blocks of 128 scores are sorted (exact, see `topk`), and
because rows are scored in chunks that fit a memory budget, merged into a running top-k. A matrix of
one chunk is never copied.

Results are ordered by score, then by row. Fewer than ``k`` rows are padded by row -1 and score
-inf; a row with score -inf is never found. Scores must not be NaN.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

_BLOCK = 128
"""Scores of a block: the best size is near sqrt(n / k), and a TPU has 128 lanes."""

_SCORES = 1 << 26
"""Scores in memory at once during a search: 256 MiB of float32."""


class TopK(NamedTuple):
    """The best rows of one or several queries, best first."""

    scores: Float[Array, "*q k"]
    rows: Int[Array, "*q k"]


def topk(scores: Float[Array, " n"], k: int, *, block: int = _BLOCK) -> TopK:
    """The ``k`` largest scores and their positions, equal scores in order of position.

    The ``k`` best scores are in the ``k`` blocks with the largest maxima (of equal maxima, the
    earlier blocks), since each block that precedes another has a score that precedes all of the
    other's. So one cheap pass, the maximum of each block, leaves k * block candidates.
    """
    scores = jnp.where(scores == 0.0, 0.0, scores)  # top_k would put -0.0 behind 0.0
    tail = ((0, -scores.shape[0] % block),)
    maxima = lax.reduce_window(scores, -jnp.inf, lax.max, (block,), (block,), tail)
    if maxima.shape[0] <= k:
        return _best(scores, jnp.arange(scores.shape[0]), k)
    blocks = jnp.sort(lax.top_k(maxima, k)[1])  # ascending, so that candidates run by row
    rows = (blocks[:, None] * block + jnp.arange(block)).ravel()
    return _best(scores.at[rows].get(mode="fill", fill_value=-jnp.inf), rows, k)


def merge_topk(first: TopK, second: TopK, *, k: int) -> TopK:
    """The ``k`` best of two results of one query; of equal scores, those of ``first`` come first.

    If ``first`` is from lower rows than ``second``, this is the result of searching both at once.
    """
    scores = jnp.concatenate([first.scores, second.scores])
    return _best(scores, jnp.concatenate([first.rows, second.rows]), k)


def no_results(q: int, k: int) -> TopK:
    """The top-k of q queries before any row is scored."""
    return TopK(jnp.full((q, k), -jnp.inf), jnp.full((q, k), -1, jnp.int32))


def merge_scores(
    found: TopK, scores: Float[Array, "q n"], *, first_row: int | Int[Array, ""], k: int
) -> TopK:
    """`merge_topk` of each query's results with the scores of n more rows, from ``first_row``."""
    new = jax.vmap(partial(topk, k=k))(scores)
    new = new._replace(rows=new.rows + first_row)  # merging marks padding again
    return jax.vmap(partial(merge_topk, k=k))(found, new)


def merge_devices(found: TopK, axis: str, *, k: int) -> TopK:
    """The ``k`` best results of all devices of a mesh axis, which hold ascending rows."""
    gathered = lax.all_gather(found, axis, axis=1, tiled=True)
    return jax.vmap(partial(_best, k=k))(gathered.scores, gathered.rows)


@partial(jax.jit, static_argnames=("k", "chunk"))
def search(
    matrix: Float[Array, "n d"],
    queries: Float[Array, "q d"],
    *,
    k: int,
    bias: Float[Array, " n"] | None = None,
    offset: int | Int[Array, ""] = 0,
    chunk: int | None = None,
) -> TopK:
    """The ``k`` rows with the largest inner product with each query: scores and rows [q k].

    Products are in full float32 on every device. Their last bits may depend on q, as the rounding
    of matrix products depends on shapes: pad queries to a fixed q if results must not depend on
    the batch.

    Args:
      matrix: rows to search.
      queries: of the same width.
      k: results per query.
      bias: added to the scores of each row: -inf excludes a row, and `l2_bias` gives the order of
        the Euclidean distance.
      offset: added to the rows found: to search a corpus in parts, and `merge_topk` the results.
      chunk: rows scored at once, by default what fits 256 MiB of scores. A matrix of more rows is
        copied chunk by chunk.
    """
    (n, _), q = matrix.shape, queries.shape[0]
    chunk = chunk or max(_BLOCK, _SCORES // max(q, 1))
    steps = max(-(-n // chunk) - 1, 0)  # the last, perhaps shorter chunk follows the loop

    def best(found: TopK, start: int | Array, size: int) -> TopK:
        scores = _inner_products(queries, lax.dynamic_slice_in_dim(matrix, start, size))
        if bias is not None:
            scores += lax.dynamic_slice_in_dim(bias, start, size)
        return merge_scores(found, scores, first_row=start + offset, k=k)

    found = no_results(q, k)
    if steps:
        found = lax.fori_loop(0, steps, lambda i, found: best(found, i * chunk, chunk), found)
    return best(found, steps * chunk, n - steps * chunk)


@jax.jit
def l2_bias(matrix: Float[Array, "n d"]) -> Float[Array, " n"]:
    """-|x|^2 / 2 of every row: as ``bias`` of `search` it orders rows by Euclidean distance."""
    return -0.5 * jnp.sum(jnp.square(matrix), axis=-1)


def shard_rows(
    matrix: np.ndarray, mesh: Mesh, axis: str
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Shards the rows of a (memory-mapped) matrix over a mesh axis, as float32, with their bias.

    Each device reads only its rows. Padding rows have bias -inf.
    """
    n, devices = matrix.shape[0], mesh.shape[axis]
    padded = -(-n // devices) * devices
    bias = np.where(np.arange(padded) < n, 0.0, -np.inf).astype(np.float32)

    def rows(index: Any) -> np.ndarray:
        own = np.asarray(matrix[index[0]], np.float32)
        return np.pad(own, ((0, bias[index[0]].shape[0] - own.shape[0]), (0, 0)))

    sharding = NamedSharding(mesh, P(axis))
    return (
        jax.make_array_from_callback((padded, *matrix.shape[1:]), sharding, rows),
        jax.make_array_from_callback((padded,), sharding, lambda index: bias[cast(Any, index)]),
    )


@partial(jax.jit, static_argnames=("k", "mesh", "axis", "chunk"))
def sharded_search(
    matrix: Float[Array, "n d"],
    queries: Float[Array, "q d"],
    bias: Float[Array, " n"],
    *,
    k: int,
    mesh: Mesh,
    axis: str,
    chunk: int | None = None,
) -> TopK:
    """`search` of a matrix whose rows are sharded over a mesh axis (see `shard_rows`).

    Each device finds its ``k`` best; the k * devices results are merged on all devices. Results are
    those of one device, ties included, as devices hold ascending rows.
    """

    def local(
        matrix: Float[Array, "m d"], queries: Float[Array, "q d"], bias: Float[Array, " m"]
    ) -> TopK:
        first = lax.axis_index(axis) * matrix.shape[0]
        found = search(matrix, queries, k=k, bias=bias, offset=first, chunk=chunk)
        return merge_devices(found, axis, k=k)

    # check_vma cannot infer that the merged result is replicated.
    sharded = jax.shard_map(
        local, mesh=mesh, in_specs=(P(axis), P(), P(axis)), out_specs=P(), check_vma=False
    )
    return sharded(matrix, queries, bias)


def _best(scores: Float[Array, " n"], rows: Int[Array, " n"], k: int) -> TopK:
    """Top-k of scores, padded by -1 and -inf; the rows of equal scores must ascend."""
    short = max(k - scores.shape[0], 0)
    best, at = lax.top_k(jnp.pad(scores, (0, short), constant_values=-jnp.inf), k)
    found = jnp.pad(rows, (0, short), constant_values=-1)[at]
    return TopK(best, jnp.where(best == -jnp.inf, -1, found))


def _inner_products(queries: Float[Array, "q d"], rows: Float[Array, "n d"]) -> Float[Array, "q n"]:
    # Accelerators would round float32 to bfloat16 or TF32 by default and reorder near neighbours.
    return lax.dot_general(queries, rows, (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST)
