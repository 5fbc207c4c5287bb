from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.functional import topk

FEW = settings(max_examples=25, deadline=None)
N, D, Q = 37, 3, 4
TOPK = jax.jit(topk.topk, static_argnames=("k", "block"))
MANY = jax.jit(lambda scores, k: jax.vmap(partial(topk.topk, k=k))(scores), static_argnames="k")
MERGE = jax.jit(
    lambda first, second, k: jax.vmap(partial(topk.merge_topk, k=k))(first, second),
    static_argnames="k",
)
BEST_ROWS = jax.jit(topk.best_rows, static_argnames=("k", "block"))
# Small whole numbers: products are exact in float32, and ties are everywhere.
WHOLE = partial(hnp.arrays, np.float32, elements=st.integers(-2, 2).map(float))


def ranked(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and rows of the k best of [q n], lower rows first where equal."""
    short = max(k - scores.shape[1], 0)
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.pad(
        np.take_along_axis(scores, rows, 1), ((0, 0), (0, short)), constant_values=-np.inf
    )
    rows = np.pad(rows, ((0, 0), (0, short)), constant_values=-1)
    return best, np.where(best == -np.inf, -1, rows)


def same(found: topk.TopK, expected: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_array_equal(found.rows, expected[1])
    np.testing.assert_allclose(found.scores, expected[0], rtol=1e-5)


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    assert jax.device_count() == 8
    return jax.make_mesh((8,), ("data",))


def test_worked_by_hand() -> None:
    scores = jnp.array([1.0, 3.0, -jnp.inf, 3.0, 2.0])
    found = TOPK(scores, k=6, block=2)
    assert found.rows.tolist() == [1, 3, 4, 0, -1, -1]  # row 2 scores -inf: never found
    assert found.scores.tolist() == [3, 3, 2, 1, -np.inf, -np.inf]
    found = TOPK(scores, k=2, block=2)  # blocks [1 3] [-inf 3] [2]: the first two are opened
    assert found.rows.tolist() == [1, 3]
    # Blocks [1 2] [3 2] [0]: the second is the best, yet row 1 comes before its equal, row 3.
    assert TOPK(jnp.array([1.0, 2, 3, 2, 0]), k=2, block=2).rows.tolist() == [2, 1]


def test_minus_zero_ties_with_zero() -> None:
    assert TOPK(jnp.array([-0.0, 0.0] * 4), k=3, block=2).rows.tolist() == [0, 1, 2]


@FEW
@given(WHOLE(N), st.sampled_from([(1, 4), (3, 1), (10, 4), (N, 128), (50, 4)]))
def test_blocks_lose_no_result(scores, sizes) -> None:
    k, block = sizes
    found = TOPK(jnp.array(scores), k=k, block=block)
    same(jax.tree.map(lambda x: x[None], found), ranked(scores[None], k))


@FEW
@given(WHOLE((N, D)), WHOLE((Q, D)), st.sampled_from([5, 60]), st.sampled_from([None, 1, 8]))
def test_chunks_change_nothing(matrix, queries, k, chunk) -> None:
    found = topk.search(jnp.array(matrix), jnp.array(queries), k=k, chunk=chunk).best
    same(found, ranked(queries @ matrix.T, k))


@FEW
@given(WHOLE((N, Q)), st.sampled_from([(1, 2), (5, 3), (50, 4)]))
def test_best_rows_of_columns(scores, sizes) -> None:
    k, block = sizes
    same(BEST_ROWS(jnp.array(scores), k, block=block), ranked(scores.T, k))


def test_best_rows_where_only_the_last_is_not_excluded() -> None:
    scores = jnp.full((N, 1), -jnp.inf).at[-1].set(3.0)
    found = BEST_ROWS(scores, 5, block=3)
    assert found.rows.tolist() == [[N - 1, -1, -1, -1, -1]]
    assert found.scores[0, 0] == 3 and np.isneginf(found.scores[0, 1:]).all()


@FEW
@given(
    WHOLE((N, D)),
    WHOLE((Q, D)),
    hnp.arrays(np.bool_, N),
    st.sampled_from([(1, 100, jnp.float32), (2, 8, jnp.bfloat16), (5, 1, jnp.float32)]),
)
@example(np.zeros((N, D)), np.zeros((Q, D)), np.arange(N) == N - 1, (2, 8, jnp.bfloat16))
def test_blocks_of_rows_lose_no_result(matrix, queries, kept, sizes) -> None:
    """Blocks of 3 rows, the last of 1; small whole numbers are exact in bfloat16 too."""
    k, chunk, first_pass = sizes
    bias = np.where(kept, 0.0, -np.inf).astype(np.float32)
    found = topk.search(
        jnp.array(matrix, jnp.float16),
        jnp.array(queries),
        k=k,
        bias=jnp.array(bias),
        offset=7,
        chunk=chunk,
        block=3,
        first_pass=first_pass,
    )
    scores, rows = ranked(queries @ matrix.T + bias, k)
    same(found.best, (scores, np.where(rows < 0, -1, rows + 7)))
    # No other block has a row above the k-th best.
    assert (found.bound <= scores[:, -1]).all()


@FEW
@given(
    WHOLE((231, D)),
    WHOLE((Q, D)),
    hnp.arrays(np.bool_, 231),
    st.sampled_from([(2, 64, jnp.float32), (3, 100, jnp.bfloat16)]),
)
@example(np.zeros((231, D)), np.ones((Q, D)), np.arange(231) == 230, (3, 100, jnp.bfloat16))
@example(-np.ones((231, D)), np.ones((Q, D)), np.ones(231, bool), (2, 64, jnp.float32))
def test_two_rows_of_each_block(matrix, queries, kept, sizes) -> None:
    """Chunks of 64 rows, or 96, and at last 39; blocks of the last chunk are not whole."""
    k, chunk, first_pass = sizes
    bias = np.where(kept, 0.0, -np.inf).astype(np.float32)
    found = topk.search(
        jnp.array(matrix, jnp.float16),
        jnp.array(queries),
        k=k,
        bias=jnp.array(bias),
        offset=7,
        chunk=chunk,
        first_pass=first_pass,
        whole=False,
    )
    scores = queries @ matrix.T + bias
    best, order = ranked(scores, k)
    last = np.asarray(found.best.scores[:, -1])
    for query in range(Q):
        rows = np.asarray(found.best.rows[query])
        real = rows[rows >= 0] - 7
        assert len({*real.tolist()}) == len(real)
        np.testing.assert_array_equal(scores[query, real], found.best.scores[query, : len(real)])
        others = np.delete(scores[query], real)
        assert others.max() <= max(found.bound[query], last[query])
        if found.bound[query] < best[query, -1]:  # then no other row can be among the best
            expected = np.where(order[query] < 0, -1, order[query] + 7)
            np.testing.assert_array_equal(rows, expected)


def test_third_rows_of_blocks() -> None:
    """128 rows in one chunk are 4 blocks, the residues modulo 4.

    k = 2: both chosen rows, 0 and 4, are of block 0. It is opened, and its third row found, which
    is as good in the first pass: the keys of 10 and 10 + 2^-17 differ in their lanes alone.
    """
    scores = np.zeros((128, 1), np.float32)
    scores[[0, 4, 8, 1, 5], 0] = [10, 10, 10 + 2.0**-17, 7, 6]
    found = topk.search(jnp.array(scores), jnp.ones((1, 1)), k=1, chunk=128, whole=False)
    assert found.bound[0] > 10  # the next key of that block
    found = topk.search(jnp.array(scores), jnp.ones((1, 1)), k=2, chunk=128, whole=False)
    assert found.best.rows.tolist() == [[8, 0]]
    assert found.best.scores.tolist() == [[10 + 2.0**-17, 10]]
    np.testing.assert_allclose(found.bound, [10], rtol=2.0**-18)


def test_keys_are_in_the_order_of_scores() -> None:
    """Key and lane: the last 5 bits. Exclusion and infinity survive, as does -0.0."""
    scores = np.zeros((32, 5), np.float32)
    scores[:, 0] = -np.inf
    scores[:, 1] = -1.0 - np.arange(32)  # best: lane 0, second: lane 1
    scores[[3, 9], 2] = [np.inf, 5.0]
    scores[:, 3] = -0.0
    scores[31, 3] = 0.0
    scores[[8, 17], 4] = [1e-40, 2.0]
    keys = [np.asarray(key)[0] for key in topk._two_best(jnp.array(scores))]
    lanes = [(key & 31).tolist() for key in keys]
    assert lanes[0][1:4] == [0, 3, 31] and lanes[0][4] == 17
    assert lanes[1][1:3] == [1, 9]
    best, second = (np.asarray(topk._most(jnp.array(key))) for key in keys)
    assert np.isneginf([best[0], second[0]]).all() and np.isposinf(best[2])
    for most, least in ((best[[1, 4]], [-1, 2]), (second[[1, 2]], [-2, 5])):
        assert (most >= least).all()
        np.testing.assert_allclose(most, least, rtol=2.0**-18)


def test_bound_in_bfloat16() -> None:
    """Rows that are left out exceed neither the bound nor the last candidate, as far as 2^-8."""
    rng = np.random.default_rng(0)
    matrix, queries = (rng.normal(size=(n, 16)).astype(np.float32) for n in (5003, 6))
    found = topk.search(jnp.array(matrix), jnp.array(queries), k=5, first_pass=jnp.bfloat16)
    exact = queries.astype(float) @ matrix.T.astype(float)
    last = np.asarray(found.best.scores[:, -1])
    np.put_along_axis(exact, np.asarray(found.best.rows), -np.inf, axis=1)
    sizes = np.abs(queries) @ np.abs(matrix.T)
    allowed = np.maximum(np.asarray(found.bound)[:, None] + 1.01 * 2**-8 * sizes, last[:, None])
    assert (exact <= allowed).all()
    # In float32 the bound is the k-th largest maximum of a block: at most the k-th best score.
    whole = topk.search(jnp.array(matrix), jnp.array(queries), k=5)
    assert (whole.bound <= whole.best.scores[:, -1] + 1e-5).all()


@FEW
@given(WHOLE((N, D)), WHOLE((Q, D)), hnp.arrays(np.bool_, N))
def test_bias_excludes_rows(matrix, queries, kept) -> None:
    bias = np.where(kept, 0.0, -np.inf).astype(np.float32)
    found = topk.search(
        jnp.array(matrix), jnp.array(queries), k=6, bias=jnp.array(bias), chunk=10
    ).best
    same(found, ranked(queries @ matrix.T + bias, 6))


@FEW
@given(WHOLE((N, D)), WHOLE((Q, D)))
def test_l2(matrix, queries) -> None:
    x, q = jnp.array(matrix), jnp.array(queries)
    found = topk.search(x, q, k=5, bias=topk.l2_bias(x), chunk=10).best
    distances = ((queries[:, None] - matrix[None]) ** 2).sum(-1)
    expected, rows = ranked(-distances, 5)
    np.testing.assert_array_equal(found.rows, rows)
    norms = (queries**2).sum(-1, keepdims=True)  # |q - x|^2 = |q|^2 - 2 (q.x - |x|^2 / 2)
    np.testing.assert_array_equal(norms - 2 * found.scores, -expected)


@FEW
@given(WHOLE((N, D)), WHOLE((Q, D)), st.sampled_from([1, 20]), st.sampled_from([2, 30]))
def test_parts_merge_to_the_whole(matrix, queries, cut, k) -> None:
    search = partial(topk.search, queries=jnp.array(queries), k=k)
    first, second = search(jnp.array(matrix[:cut])), search(jnp.array(matrix[cut:]), offset=cut)
    same(MERGE(first.best, second.best, k=k), ranked(queries @ matrix.T, k))


def over_devices(matrix: np.ndarray, mesh: Mesh) -> tuple[jax.Array, jax.Array]:
    """Rows over eight devices, padded by zeros with a bias of -inf."""
    short = -len(matrix) % 8
    bias = np.where(np.arange(len(matrix) + short) < len(matrix), 0, -np.inf).astype(np.float32)
    padded = np.pad(matrix, ((0, short), (0, 0)))
    sharded = jax.device_put((padded, bias), NamedSharding(mesh, P("data")))
    assert len(sharded[0].sharding.device_set) == 8
    return sharded


@pytest.mark.parametrize("n", [5, 203, 1000, 4100])
@pytest.mark.parametrize("k", [10, 300])
def test_eight_devices_give_the_results_of_one(mesh: Mesh, n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    matrix = rng.integers(-3, 4, (n, 4)).astype(np.float16)  # exact, with many ties
    queries = jnp.array(rng.integers(-3, 4, (Q, 4)), jnp.float32)
    sharded, bias = over_devices(matrix, mesh)
    found = topk.sharded_search(sharded, queries, bias, k=k, mesh=mesh, axis="data", offset=3).best
    found = found._replace(rows=jnp.where(found.rows < 0, -1, found.rows - 3))
    alone = topk.search(jnp.array(matrix, jnp.float32), queries, k=k).best
    np.testing.assert_array_equal(found.rows, alone.rows)
    np.testing.assert_array_equal(found.scores, alone.scores)
    same(alone, ranked(np.asarray(queries) @ matrix.astype(np.float32).T, k))


def test_eight_devices_on_real_numbers(mesh: Mesh) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(3001, 48)).astype(np.float32)
    queries = rng.normal(size=(Q, 48)).astype(np.float32)
    sharded, bias = over_devices(matrix, mesh)
    found = topk.sharded_search(
        sharded, jnp.array(queries), bias, k=20, mesh=mesh, axis="data"
    ).best
    alone = topk.search(jnp.array(matrix), jnp.array(queries), k=20).best
    np.testing.assert_array_equal(found.rows, alone.rows)
    same(alone, ranked(queries.astype(float) @ matrix.astype(float).T, 20))


@pytest.mark.parametrize("k", [1, 7, 100])
def test_blocks_lose_no_result_of_many_scores(k: int) -> None:
    scores = np.random.default_rng(k).integers(0, 40, (Q, 5003)).astype(np.float32)
    same(MANY(jnp.array(scores), k=k), ranked(scores, k))


@pytest.fixture(params=[1, 24, 1 << 20])
def tile(request, monkeypatch) -> Iterator[None]:
    """Another size of chunks, in programs that no other test gets."""
    monkeypatch.setattr(topk, "_TILE", request.param)
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.usefixtures("tile")
def test_l2_bias_in_chunks_and_over_devices(mesh: Mesh) -> None:
    """Chunks of 1, 12 (the last overlaps) and all rows: -|x|^2 / 2, exact in whole numbers."""
    matrix = np.random.default_rng(0).integers(-3, 4, (203, 4)).astype(np.float16)
    expected = -0.5 * (matrix.astype(float) ** 2).sum(1)
    np.testing.assert_array_equal(topk.l2_bias(jnp.array(matrix)), expected)
    sharded, _ = over_devices(matrix, mesh)
    found = topk.sharded_l2_bias(sharded, mesh=mesh, axis="data")
    assert len(found.sharding.device_set) == 8
    np.testing.assert_array_equal(np.asarray(found)[:203], expected)


def test_empty_inputs() -> None:
    nothing = topk.search(jnp.zeros((0, D)), jnp.ones((2, D)), k=3).best
    assert nothing.rows.tolist() == [[-1] * 3] * 2
    assert topk.search(jnp.zeros((N, D)), jnp.ones((0, D)), k=3).best.rows.shape == (0, 3)
