"""Exact top-k search: rows of a matrix with the largest inner products or smallest distances.

    >>> jax.jit(jax.vmap(partial(topk, k=2)))(jnp.array([[1.0, 3.0, 2.0]])).rows  # of one query
    Array([[1, 2]], dtype=int32)
    >>> search(jnp.eye(3), jnp.array([[0.0, 1.0, 2.0]]), k=2).best.rows  # compiled, of q queries
    Array([[2, 1]], dtype=int32)

Symbols: x_i is row i of the matrix [n d], q a query. The score of a row is <q, x_i> + b_i, with a
bias b_i, 0 by default.

A top-k over all scores at once would take as long as computing them. So rows are scored in chunks
whose scores a cache holds; of each block of rows only the largest scores are kept; and the rows of
the ``k`` best blocks, or the best rows alone, are scored again (see `search`). Rows of another
precision are converted chunk by chunk.

Results are ordered by score, then by row. Fewer than ``k`` rows are padded by row -1 and score
-inf; a row with score -inf is never found. Scores must not be NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

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

_LANES = 32
"""Rows of a block of which the two best are kept: their lanes take the last 5 bits of a key."""


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
    """top-k over i of s_i: the ``k`` largest scores and their positions, ties in order of position.

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
    results: TopK, scores: Float[Array, "q n"], *, first_row: int | Int[Array, ""], k: int
) -> TopK:
    """`merge_topk` of each query's results with the scores of n more rows, from ``first_row``."""
    new = jax.vmap(partial(topk, k=k))(scores)
    new = new._replace(rows=new.rows + first_row)  # merging marks padding again
    return jax.vmap(partial(merge_topk, k=k))(results, new)


def merge_devices(results: TopK, axis: str, *, k: int) -> TopK:
    """The ``k`` best results of all devices of a mesh axis, which hold ascending rows."""
    gathered = lax.all_gather(results, axis, axis=1, tiled=True)
    return jax.vmap(partial(_best, k=k))(gathered.scores, gathered.rows)


@partial(jax.jit, static_argnames=("k", "chunk", "block", "first_pass", "whole"))
def search(
    matrix: Float[Array, "n d"],
    queries: Float[Array, "q d"],
    *,
    k: int,
    bias: Float[Array, " n"] | None = None,
    offset: int | Int[Array, ""] = 0,
    chunk: int | None = None,
    block: int | None = None,
    first_pass: DTypeLike = jnp.float32,
    whole: bool = True,
) -> BoundedTopK:
    """top-k over rows i of <q, x_i> + b_i for each query q: scores and rows [q k].

    Products are in full float32 on every device. Their last bits may depend on q, as the rounding
    of matrix products depends on shapes: pad queries to a fixed q if results must not depend on
    the batch.

    There are two passes, the first of which may be in a lower precision. It scores all rows with
    one matrix product per chunk and keeps only the largest score of each block of rows. The second
    scores the rows of the ``k`` best blocks again in float32, and finds the ``k`` best rows among
    them. If both passes rounded alike these would be the k best of all (see `topk`);
    `BoundedTopK.bound` tells how far off they can be.

    If not ``whole``, the first pass keeps the two best rows of each block of 32, and only the ``k``
    best of them and the rows of one block are scored again. The bound is high where other blocks
    may have a third row among the best.

    Args:
      matrix: rows x_i, in any float type.
      queries: q, of the same width.
      k: results per query.
      bias: b_i: -inf excludes a row, and `l2_bias` gives the order of the Euclidean distance.
      offset: added to the rows found: to search a corpus in parts, and `merge_topk` the results.
      chunk: rows scored at once; None: as many as a cache holds the scores of.
      block: rows of a block; None: 16, or more where that is needed to keep the first pass's
        results within 128 MiB.
      first_pass: float type of vectors and queries in the first pass; sums are in float32.
      whole: whether all rows of the best blocks are scored again.
    """
    (n, d), q = matrix.shape, queries.shape[0]
    if not whole:
        block = _LANES
    elif block is None:
        block = max(16, 1 << math.ceil(math.log2(max(n * q / _MAXIMA, 1))))
    if n < 2 * k * block:
        best = _scored_at_once(matrix, queries, bias, offset, k, chunk)
        return BoundedTopK(best, jnp.full(q, -jnp.inf))
    if chunk is None:  # rows whose scores a cache holds; all, if copying them would take longer
        whole_matrix = matrix.dtype == first_pass and n * q <= _UNCUT
        chunk = n if whole_matrix else min(_TILE // max(q, 1), 2 * _TILE // d)
    chunk = max(chunk // block, 1) * block  # whole blocks
    rounded = _rounded(queries, first_pass)
    if whole:
        largest = _by_chunks(lambda scores: _maxima(scores, block), matrix, rounded, bias, chunk)
        blocks = best_rows(_without_minus_zero(largest), k)
        chosen, bound = blocks.rows, blocks.scores[:, -1]
    else:
        chosen, bound = _leading_rows(matrix, rounded, bias, k, chunk)
        block = 1

    def open_blocks(opened: tuple[Array, Array]) -> TopK:
        query, blocks = opened
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

    at_once = max(1, _TILE // (chosen.shape[1] * block * d))
    opened = (queries.astype(jnp.float32), jnp.sort(chosen, axis=1))
    best = lax.map(open_blocks, opened, batch_size=min(at_once, max(q, 1)))
    return BoundedTopK(best, bound)


def best_rows(scores: Float[Array, "n q"], k: int, *, block: int = 8) -> TopK:
    """top-k over rows i of s_ij for each column j: `topk` of columns.

    The columns' blocks are compared first; see `topk` why that is exact.
    """
    n, q = scores.shape
    if n < 2 * k * block:
        return jax.vmap(lambda column: _best(column, jnp.arange(n), k))(scores.T)
    blocks = jnp.sort(best_rows(_maxima(scores, block), k, block=block).rows, axis=1)
    # -1 stands for no block; row n is filled with -inf, where negative rows count from the end
    first = jnp.where(blocks < 0, n, blocks * block)
    rows = (first[:, :, None] + jnp.arange(block)).reshape(q, -1)
    in_blocks = scores.at[rows, jnp.arange(q)[:, None]].get(mode="fill", fill_value=-jnp.inf)
    return jax.vmap(partial(_best, k=k))(in_blocks, rows)


@jax.jit
def l2_bias(matrix: Float[Array, "n d"]) -> Float[Array, " n"]:
    """b_i = -|x_i|^2 / 2: as ``bias`` of `search` it orders rows by Euclidean distance.

    For <q, x_i> + b_i = (|q|^2 - |q - x_i|^2) / 2.
    """
    n, d = matrix.shape
    chunk = min(max(1, 2 * _TILE // d), n)  # so that no whole copy in float32 is made

    def square(step: Array, biases: Float[Array, " n"]) -> Float[Array, " n"]:
        start = jnp.minimum(step * chunk, n - chunk)  # the last chunk overlaps the one before
        rows = lax.dynamic_slice_in_dim(matrix, start, chunk).astype(jnp.float32)
        return lax.dynamic_update_slice_in_dim(biases, -0.5 * jnp.square(rows).sum(-1), start, 0)

    return lax.fori_loop(0, -(-n // max(chunk, 1)), square, jnp.zeros(n))


@partial(jax.jit, static_argnames=("mesh", "axis"))
def sharded_l2_bias(matrix: Float[Array, "n d"], *, mesh: Mesh, axis: str) -> Float[Array, " n"]:
    """`l2_bias` of a matrix whose rows are sharded over a mesh axis; sharded alike."""
    sharded = jax.shard_map(
        l2_bias, mesh=mesh, in_specs=P(axis), out_specs=P(axis), check_vma=False
    )
    return sharded(matrix)


@partial(jax.jit, static_argnames=("k", "mesh", "axis", "chunk", "first_pass", "whole"))
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
    whole: bool = True,
) -> BoundedTopK:
    """`search` of a matrix whose rows are sharded over a mesh axis.

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
        results = search(
            matrix,
            queries,
            k=k,
            bias=bias,
            offset=first,
            chunk=chunk,
            first_pass=first_pass,
            whole=whole,
        )
        bound = lax.pmax(results.bound, axis)
        return BoundedTopK(merge_devices(results.best, axis, k=k), bound)

    # check_vma cannot infer that the merged result is replicated.
    specs = (P(axis), P(), P(axis), P())
    sharded = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    return sharded(matrix, queries, bias, jnp.asarray(offset, jnp.int32))


@partial(jax.jit, static_argnames="k")
def merge_candidates(first: BoundedTopK, second: BoundedTopK, *, k: int) -> BoundedTopK:
    """The ``k`` best of two searches of the same queries, ``first`` of lower rows."""
    best = jax.vmap(partial(merge_topk, k=k))(first.best, second.best)
    return BoundedTopK(best, jnp.maximum(first.bound, second.bound))


def _by_chunks(
    reduce: Callable[[Float[Array, "n q"]], Any],
    matrix: Float[Array, "n d"],
    queries: Float[Array, "q d"],
    bias: Float[Array, " n"] | None,
    chunk: int,
) -> Any:
    """``reduce`` of the scores of ``chunk`` rows at a time, joined, in the queries' precision."""
    n = matrix.shape[0]
    steps = max(-(-n // chunk) - 1, 0)  # the last, perhaps shorter chunk follows the loop

    def score(start: int | Array, size: int) -> Any:
        rows = lax.dynamic_slice_in_dim(matrix, start, size)
        scores = _inner_products(_rounded(rows, queries.dtype), queries)
        if bias is not None:
            scores += lax.dynamic_slice_in_dim(bias, start, size)[:, None]
        return reduce(scores)

    last = score(steps * chunk, n - steps * chunk)
    if not steps:
        return last
    first = lax.map(lambda step: score(step * chunk, chunk), jnp.arange(steps))
    return jax.tree.map(lambda a, b: jnp.concatenate([a.reshape(-1, *a.shape[2:]), b]), first, last)


def _leading_rows(
    matrix: Float[Array, "n d"],
    queries: Float[Array, "q d"],
    bias: Float[Array, " n"] | None,
    k: int,
    chunk: int,
) -> tuple[Int[Array, "q m"], Float[Array, " q"]]:
    """The ``k`` best among the two best rows of each block, and a bound on all other rows' scores.

    With them come the rows of the block whose third row may be best. -1 stands for no row.

    A block is `_LANES` rows of a chunk at equal distances, so that a document's rows, which often
    stand side by side, lie in different blocks.
    """
    n, q = matrix.shape[0], queries.shape[0]
    best, second = _by_chunks(_two_best, matrix, queries, bias, chunk)
    keys, blocks = jnp.concatenate([best, second]), len(best)
    chosen = best_rows(_most(keys), k)
    at = jnp.maximum(chosen.rows, 0)
    lanes = keys[at, jnp.arange(q)[:, None]] & (_LANES - 1)
    steps, height = max(-(-n // chunk) - 1, 0), chunk // _LANES

    def row(block: Int[Array, "q m"], lane: Int[Array, "*q m"]) -> Int[Array, "q m"]:
        step = jnp.minimum(block // height, steps)
        last = -(-(n - steps * chunk) // _LANES)
        apart = jnp.where(step < steps, height, last)
        return step * chunk + lane * apart + block - step * height

    # A block of which both are chosen may have a third row. The best such block is opened.
    both = jnp.where((at >= blocks) & (chosen.rows >= 0), chosen.scores, -jnp.inf)
    thirds, first = lax.top_k(both, min(k, 2))
    opened = jnp.take_along_axis(at % blocks, first[:, :1], axis=1)
    opened = jnp.where(thirds[:, :1] > -jnp.inf, opened, -1)
    inside = row(opened, jnp.arange(_LANES))
    inside = jnp.where((opened >= 0) & (inside < n), inside, -1)
    others = (chosen.rows >= 0) & (at % blocks != opened)
    rows = jnp.concatenate([jnp.where(others, row(at % blocks, lanes), -1), inside], axis=1)
    unopened = thirds[:, 1] if k > 1 else jnp.full(q, -jnp.inf)
    return rows, jnp.maximum(chosen.scores[:, -1], unopened)


def _two_best(scores: Float[Array, "n q"]) -> tuple[Int[Array, "b q"], Int[Array, "b q"]]:
    """Keys of the two best rows of each block: integers in the order of scores.

    The last 5 bits of a key are the row's lane, which replaces those of the score.
    """
    missing = ((0, -len(scores) % _LANES), (0, 0))
    padded = jnp.pad(scores, missing, constant_values=-jnp.inf)
    bits = lax.bitcast_convert_type(padded, jnp.int32)
    lanes = bits.reshape(_LANES, -1, scores.shape[1])

    def key(lane: int) -> Int[Array, "b q"]:
        return _ordered(lanes[lane]) & -_LANES | lane

    best, second = key(0), jnp.full(lanes.shape[1:], jnp.iinfo(jnp.int32).min)
    for lane in range(1, _LANES):
        new = key(lane)
        second = jnp.maximum(second, jnp.minimum(best, new))
        best = jnp.maximum(best, new)
    return best, second


def _most(keys: Int[Array, "b q"]) -> Float[Array, "b q"]:
    """The largest score of each key; -inf for -inf alone."""
    infinity = lax.bitcast_convert_type(jnp.float32(jnp.inf), jnp.int32)
    most = jnp.minimum(keys | (_LANES - 1), infinity)
    return _without_minus_zero(lax.bitcast_convert_type(_ordered(most), jnp.float32))


def _ordered(bits: Int[Array, "*n"]) -> Int[Array, "*n"]:
    """Integers in the order of the float32 numbers with these bits, and back."""
    return bits ^ (bits >> 31 & 0x7FFFFFFF)


def _rounded(x: Float[Array, "*n"], dtype: DTypeLike) -> Float[Array, "*n"]:
    """``x`` in another precision. On CPUs XLA would compute in float32 without the barrier."""
    if x.dtype == dtype:
        return x
    return lax.platform_dependent(
        x.astype(dtype), cpu=lax.optimization_barrier, default=lambda rounded: rounded
    )


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

    def best(results: TopK, start: int | Array, size: int) -> TopK:
        rows = lax.dynamic_slice_in_dim(matrix, start, size).astype(jnp.float32)
        scores = _inner_products(queries, rows)
        if bias is not None:
            scores += lax.dynamic_slice_in_dim(bias, start, size)
        return merge_scores(results, scores, first_row=start + offset, k=k)

    results = no_results(q, k)
    if steps:
        results = lax.fori_loop(0, steps, lambda i, sofar: best(sofar, i * chunk, chunk), results)
    return best(results, steps * chunk, n - steps * chunk)


def _best(scores: Float[Array, " n"], rows: Int[Array, " n"], k: int) -> TopK:
    """Top-k of scores, padded by -1 and -inf; the rows of equal scores must ascend."""
    short = max(k - scores.shape[0], 0)
    best, at = lax.top_k(jnp.pad(scores, (0, short), constant_values=-jnp.inf), k)
    best_rows = jnp.pad(rows, (0, short), constant_values=-1)[at]
    return TopK(best, jnp.where(best == -jnp.inf, -1, best_rows))


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
