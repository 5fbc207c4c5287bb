"""Exact top-k search: rows of a matrix with the largest inner products or smallest distances.

A top-k over all scores at once would take as long as computing them. So rows are scored in chunks
whose scores a cache holds; of each block of rows only the largest score is kept; and the rows of
the ``k`` best blocks are scored again (see `candidates`). That takes a few percent of the matrix
products' time. Rows of a lower precision are converted to float32 chunk by chunk.

Results are ordered by score, then by row. Fewer than ``k`` rows are padded by row -1 and score
-inf; a row with score -inf is never found. Scores must not be NaN.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

_BLOCK = 128
"""Scores of a block: the best size is near sqrt(n / k), and a TPU has 128 lanes."""

_SCORES = 1 << 26
"""Scores in memory at once where no blocks are compared: 256 MiB of float32."""

_TILE = 1 << 20
"""Scores of a chunk, 4 MiB, which a cache holds: written to memory they would take longer."""

_UNCUT = 1 << 24
"""Scores up to which rows are not cut into chunks, which would be copied."""

_MAXIMA = 1 << 25
"""Largest scores of blocks in memory at once: 128 MiB."""


class TopK(NamedTuple):
    """The best rows of one or several queries, best first."""

    scores: Float[Array, "*q k"]
    rows: Int[Array, "*q k"]


class BoundedTopK(NamedTuple):
    """Rows that a search found, and what it may have missed.

    Attributes:
      best: the best rows that were scored in float32.
      bound: the score of every other row is at most this in the arithmetic of the first pass, or at
        most the last of ``best`` in float32.
    """

    best: TopK
    bound: Float[Array, " q"]


def topk(scores: Float[Array, " n"], k: int, *, block: int = _BLOCK) -> TopK:
    """The ``k`` largest scores and their positions, equal scores in order of position.

    The ``k`` best scores are in the ``k`` blocks with the largest maxima (of equal maxima, the
    earlier blocks), since each block that precedes another has a score that precedes all of the
    other's. So one cheap pass, the maximum of each block, leaves k * block candidates.
    """
    scores = _without_minus_zero(scores)
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


@partial(jax.jit, static_argnames=("k", "chunk", "block"))
def search(
    matrix: Float[Array, "n d"],
    queries: Float[Array, "q d"],
    *,
    k: int,
    bias: Float[Array, " n"] | None = None,
    offset: int | Int[Array, ""] = 0,
    chunk: int | None = None,
    block: int | None = None,
) -> TopK:
    """The ``k`` rows with the largest inner product with each query: scores and rows [q k].

    Products are in full float32 on every device. Their last bits may depend on q, as the rounding
    of matrix products depends on shapes: pad queries to a fixed q if results must not depend on
    the batch.

    Args:
      matrix: rows to search, in any float type.
      queries: of the same width.
      k: results per query.
      bias: added to the scores of each row: -inf excludes a row, and `l2_bias` gives the order of
        the Euclidean distance.
      offset: added to the rows found: to search a corpus in parts, and `merge_topk` the results.
      chunk: rows scored at once; None: as many as a cache holds the scores of.
      block: rows of a block, see `candidates`.
    """
    return candidates(matrix, queries, k=k, bias=bias, offset=offset, chunk=chunk, block=block).best


def candidates(
    matrix: Float[Array, "n d"],
    queries: Float[Array, "q d"],
    *,
    k: int,
    bias: Float[Array, " n"] | None = None,
    offset: int | Int[Array, ""] = 0,
    chunk: int | None = None,
    block: int | None = None,
    first_pass: DTypeLike = jnp.float32,
) -> BoundedTopK:
    """`search` in two passes, the first of which may be in a lower precision.

    The first pass scores all rows with one matrix product per chunk and keeps only the largest
    score of each block of rows. The second scores the rows of the ``k`` best blocks again in
    float32, and finds the ``k`` best rows among them. If both passes rounded alike these would be
    the k best of all (see `topk`); `BoundedTopK.bound` tells how far off they can be.

    Args:
      block: rows of a block; None: 16, or more where that is needed to keep the first pass's
        results within 128 MiB.
      first_pass: float type of vectors and queries in the first pass; sums are in float32.
    """
    (n, d), q = matrix.shape, queries.shape[0]
    block = block or _block_size(n, q)
    if n < 2 * k * block:
        return BoundedTopK(_scored_at_once(matrix, queries, bias, offset, k, chunk), _unbounded(q))
    chunk = chunk or _chunk_rows(n, d, q, converted=matrix.dtype != first_pass)
    maxima = _block_maxima(matrix, queries.astype(first_pass), bias, block, chunk)
    blocks = best_rows(maxima, k)

    def open_blocks(one: tuple[Array, Array]) -> TopK:
        query, blocks = one
        starts = jnp.minimum(blocks * block, n - block)  # the last block may reach beyond the end
        rows = starts[:, None] + jnp.arange(block)
        vectors = jax.vmap(lambda at: lax.dynamic_slice_in_dim(matrix, at, block))(starts)
        scores = _inner_products(vectors.reshape(-1, d).astype(jnp.float32), query[None])[:, 0]
        if bias is not None:
            scores += bias[rows.ravel()]
        # -1 stands for no block, where fewer than k have a row that is not excluded
        own = ((blocks[:, None] >= 0) & (rows >= blocks[:, None] * block)).ravel()
        scores = jnp.where(own, _without_minus_zero(scores), -jnp.inf)
        return _best(scores, rows.ravel() + offset, k)

    at_once = max(1, _TILE // (k * block * d))
    opened = (queries.astype(jnp.float32), jnp.sort(blocks.rows, axis=1))
    best = lax.map(open_blocks, opened, batch_size=min(at_once, max(q, 1)))
    return BoundedTopK(best, blocks.scores[:, -1])


def best_rows(scores: Float[Array, "n q"], k: int, *, block: int = 32) -> TopK:
    """The ``k`` largest scores of each column and their rows: `topk` of columns.

    The columns' blocks are compared first; see `topk` why that is exact.
    """
    n, q = scores.shape
    if n < 2 * k * block:
        return jax.vmap(lambda column: _best(column, jnp.arange(n), k))(scores.T)
    blocks = jnp.sort(best_rows(_maxima(scores, block), k, block=block).rows, axis=1)
    # -1 stands for no block; row n is filled with -inf, where negative rows count from the end
    first = jnp.where(blocks < 0, n, blocks * block)
    rows = (first[:, :, None] + jnp.arange(block)).reshape(q, -1)
    found = scores.at[rows, jnp.arange(q)[:, None]].get(mode="fill", fill_value=-jnp.inf)
    return jax.vmap(partial(_best, k=k))(found, rows)


@jax.jit
def l2_bias(matrix: Float[Array, "n d"]) -> Float[Array, " n"]:
    """-|x|^2 / 2 of every row: as ``bias`` of `search` it orders rows by Euclidean distance."""
    n, d = matrix.shape
    chunk = min(max(1, 2 * _TILE // d), n)  # so that no whole copy in float32 is made

    def square(step: Array, found: Float[Array, " n"]) -> Float[Array, " n"]:
        start = jnp.minimum(step * chunk, n - chunk)  # the last chunk overlaps the one before
        rows = lax.dynamic_slice_in_dim(matrix, start, chunk).astype(jnp.float32)
        return lax.dynamic_update_slice_in_dim(found, -0.5 * jnp.square(rows).sum(-1), start, 0)

    return lax.fori_loop(0, -(-n // max(chunk, 1)), square, jnp.zeros(n))


@partial(jax.jit, static_argnames=("mesh", "axis"))
def sharded_l2_bias(matrix: Float[Array, "n d"], *, mesh: Mesh, axis: str) -> Float[Array, " n"]:
    """`l2_bias` of a matrix whose rows are sharded over a mesh axis; sharded alike."""
    sharded = jax.shard_map(
        l2_bias, mesh=mesh, in_specs=P(axis), out_specs=P(axis), check_vma=False
    )
    return sharded(matrix)


@partial(jax.jit, static_argnames=("k", "mesh", "axis", "chunk", "first_pass"))
def sharded_search(
    matrix: Float[Array, "n d"],
    queries: Float[Array, "q d"],
    bias: Float[Array, " n"] | None,
    *,
    k: int,
    mesh: Mesh,
    axis: str,
    offset: int | Int[Array, ""] = 0,
    chunk: int | None = None,
    first_pass: DTypeLike = jnp.float32,
) -> BoundedTopK:
    """`candidates` of a matrix whose rows are sharded over a mesh axis.

    Each device finds its ``k`` best; the k * devices results are merged on all devices. Results are
    those of one device, ties included, as devices hold ascending rows.
    """

    def local(
        matrix: Float[Array, "m d"],
        queries: Float[Array, "q d"],
        bias: Float[Array, " m"] | None,
        offset: Int[Array, ""],
    ) -> BoundedTopK:
        first = lax.axis_index(axis) * matrix.shape[0] + offset
        found = candidates(
            matrix, queries, k=k, bias=bias, offset=first, chunk=chunk, first_pass=first_pass
        )
        bound = lax.pmax(found.bound, axis)
        return BoundedTopK(merge_devices(found.best, axis, k=k), bound)

    # check_vma cannot infer that the merged result is replicated.
    specs = (P(axis), P(), P(axis), P())
    sharded = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    return sharded(matrix, queries, bias, jnp.asarray(offset, jnp.int32))


@partial(jax.jit, static_argnames="k")
def merge_candidates(first: BoundedTopK, second: BoundedTopK, *, k: int) -> BoundedTopK:
    """The ``k`` best of two searches of the same queries, ``first`` of lower rows."""
    best = jax.vmap(partial(merge_topk, k=k))(first.best, second.best)
    return BoundedTopK(best, jnp.maximum(first.bound, second.bound))


def _chunk_rows(n: int, d: int, q: int, *, converted: bool) -> int:
    """Rows of which a cache holds the scores; all of them if copying would take longer."""
    if not converted and n * q <= _UNCUT:
        return n
    return min(_TILE // max(q, 1), 2 * _TILE // d)


def _block_size(n: int, q: int) -> int:
    return max(16, 1 << math.ceil(math.log2(max(n * q / _MAXIMA, 1))))


def _unbounded(q: int) -> Float[Array, " q"]:
    return jnp.full(q, -jnp.inf)


def _block_maxima(
    matrix: Float[Array, "n d"],
    queries: Float[Array, "q d"],
    bias: Float[Array, " n"] | None,
    block: int,
    chunk: int,
) -> Float[Array, "blocks q"]:
    """The largest score of each block of rows under each query; chunks are whole blocks."""
    (n, _), q = matrix.shape, queries.shape[0]
    chunk = max(chunk // block, 1) * block
    steps = max(-(-n // chunk) - 1, 0)  # the last, perhaps shorter chunk follows the loop

    def score(start: int | Array, size: int) -> Float[Array, "b q"]:
        rows = lax.dynamic_slice_in_dim(matrix, start, size)
        scores = _inner_products(rows.astype(queries.dtype), queries)
        if bias is not None:
            scores += lax.dynamic_slice_in_dim(bias, start, size)[:, None]
        return _without_minus_zero(_maxima(scores, block))

    last = score(steps * chunk, n - steps * chunk)
    if not steps:
        return last
    first = lax.map(lambda step: score(step * chunk, chunk), jnp.arange(steps))
    return jnp.concatenate([first.reshape(-1, q), last])


def _maxima(scores: Float[Array, "n q"], block: int) -> Float[Array, "b q"]:
    """The maximum of each ``block`` rows, the last of which may be fewer."""
    padded = jnp.pad(scores, ((0, -len(scores) % block), (0, 0)), constant_values=-jnp.inf)
    return padded.reshape(-1, block, scores.shape[1]).max(axis=1)


def _scored_at_once(
    matrix: Float[Array, "n d"],
    queries: Float[Array, "q d"],
    bias: Float[Array, " n"] | None,
    offset: int | Int[Array, ""],
    k: int,
    chunk: int | None,
) -> TopK:
    """The k best by the scores of all rows, chunk by chunk: for few rows or a large k."""
    n, q = matrix.shape[0], queries.shape[0]
    chunk = chunk or max(_BLOCK, _SCORES // max(q, 1))
    steps = max(-(-n // chunk) - 1, 0)

    def best(found: TopK, start: int | Array, size: int) -> TopK:
        rows = lax.dynamic_slice_in_dim(matrix, start, size).astype(jnp.float32)
        scores = _inner_products(queries, rows)
        if bias is not None:
            scores += lax.dynamic_slice_in_dim(bias, start, size)
        return merge_scores(found, scores, first_row=start + offset, k=k)

    found = no_results(q, k)
    if steps:
        found = lax.fori_loop(0, steps, lambda i, found: best(found, i * chunk, chunk), found)
    return best(found, steps * chunk, n - steps * chunk)


def _best(scores: Float[Array, " n"], rows: Int[Array, " n"], k: int) -> TopK:
    """Top-k of scores, padded by -1 and -inf; the rows of equal scores must ascend."""
    short = max(k - scores.shape[0], 0)
    best, at = lax.top_k(jnp.pad(scores, (0, short), constant_values=-jnp.inf), k)
    found = jnp.pad(rows, (0, short), constant_values=-1)[at]
    return TopK(best, jnp.where(best == -jnp.inf, -1, found))


def _without_minus_zero(scores: Float[Array, "*n"]) -> Float[Array, "*n"]:
    return jnp.where(scores == 0.0, 0.0, scores)  # top_k would put -0.0 behind 0.0


def _inner_products(a: Float[Array, "m d"], b: Float[Array, "n d"]) -> Float[Array, "m n"]:
    # Accelerators would round float32 to bfloat16 or TF32 by default and reorder near neighbours.
    return lax.dot_general(
        a,
        b,
        (((1,), (1,)), ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
