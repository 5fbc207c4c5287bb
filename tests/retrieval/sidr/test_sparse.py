import json
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.functional import sparse
from jaxrag.retrieval.sidr import sparse as sparse_index
from jaxrag.retrieval.sidr.sparse import SparseIndex, write_sparse
from jaxrag.types import InputError
from tests.retrieval.fakes import blocks_of, numbered

ONE = jax.devices()[:1]
V, L = 30, 7
IDENTITY = '{"model":"given"}'


class Given:
    """Entries made before; a passage's text is its row."""

    def __init__(self, ids, values) -> None:
        self.ids, self.values = ids, values

    def __call__(self, passages):
        return map(self.entries, blocks_of(passages, 8))

    def entries(self, passages):
        rows = [int(passage.text) for passage in passages]
        return self.ids[rows], self.values[rows]


def entries(rng, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct ids; some entries of weight 0 with an id that is none, some passages without any."""
    ids = np.argsort(rng.random((count, V)), axis=1)[:, :L].astype(np.uint16)
    values = rng.choice([0, 0.5, 1, 1.5, 3], (count, L)) * rng.integers(0, 2, (count, 1))
    ids[values == 0] = V
    return ids, values.astype(np.float32)


def build(directory, ids, values, *, devices=ONE, **sizes) -> SparseIndex:
    passages = numbered(len(ids))
    arguments = {"vocabulary": V, "length": ids.shape[1], **sizes}
    write_sparse(passages, Given(ids, values), IDENTITY, directory, **arguments)
    return SparseIndex.open(directory, passages, IDENTITY, devices=devices)


def check(index, ids, values, queries, k) -> None:
    """Against float64 sums of the stored values, entry by entry; ties by row."""
    wide = np.pad(queries.astype(float), ((0, 0), (0, 1)))
    stored = values.astype(np.float16).astype(float)
    scores = np.stack([sum((query[ids] * stored).T, np.zeros(len(ids))) for query in wide])
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    found = index.search(queries, k)
    assert [ranking.ids for ranking in found] == list(map(tuple, rows.tolist()))
    best = np.take_along_axis(scores, rows, axis=1)
    np.testing.assert_array_equal([ranking.scores for ranking in found], best)


def test_worked_by_hand(tmp_path) -> None:
    ids = np.array([[0, 2], [1, 30], [30, 30], [2, 1]])
    values = np.array([[0.5, 2.0], [3.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    index = build(tmp_path, ids, values)
    query = np.zeros((1, V), np.float32)
    query[0, :3] = 4, 1, 2  # 0.5 * 4 + 2 * 2; 3; nothing; 2 + 1
    (ranking,) = index.search(query, 9)
    assert (ranking.ids, ranking.scores) == ((0, 1, 3, 2), (6.0, 3.0, 3.0, 0.0))
    (ranking,) = index.search((query > 0).astype(np.float32), 2)  # alpha: 2.5, 3, 0, 2
    assert (ranking.ids, ranking.scores) == ((1, 0), (3.0, 2.5))


QUERIES = (
    lambda rng: rng.gamma(2.0, 1.0, V),
    lambda rng: rng.choice([0, 1], V),
    lambda rng: np.zeros(V),
    lambda rng: 10.0 ** rng.uniform(-20, 20, V),
    lambda rng: 1 + rng.integers(0, 4, V) * 2.0**-23,
    lambda rng: rng.random(V) * 1e-40,
)


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.sampled_from([1, 150]))
def test_float64_reference(seed, count) -> None:
    rng = np.random.default_rng(seed)
    ids, values = entries(rng, count)
    copies = rng.integers(0, count, count // 2)
    ids[copies], values[copies] = ids[0], values[0]
    queries = np.array([make(rng) for make in QUERIES], np.float32)
    with tempfile.TemporaryDirectory() as directory:
        index = build(directory, ids, values, shard_rows=64)
        for k in (7, 1000):
            check(index, ids, values, queries, k)


def test_more_ties_than_candidates(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sparse_index, "_MOST", 64)
    ids, values = entries(np.random.default_rng(0), 500)
    values[:] = 1
    ids[:] = np.arange(L)
    index = build(tmp_path, ids, values)
    check(index, ids, values, np.ones((3, V), np.float32), 20)


def test_devices_and_batch_change_nothing(tmp_path) -> None:
    rng = np.random.default_rng(1)
    ids, values = entries(rng, 301)
    one = build(tmp_path, ids, values, shard_rows=70)
    many = SparseIndex.open(tmp_path, numbered(301), IDENTITY, devices=jax.devices())
    assert len(many.entries.sharding.device_set) == 8
    queries = (10.0 ** rng.uniform(-6, 6, (40, V))).astype(np.float32)
    together = one.search(queries, 9)
    assert many.search(queries, 9) == together
    for size in (1, 5):
        assert one.search(queries[40 - size :], 9) == together[40 - size :]
        assert many.search(queries[40 - size :], 9) == together[40 - size :]
    assert many.search(queries[:2], 1000) == one.search(queries[:2], 1000)


def test_chunks_change_nothing() -> None:
    rng = np.random.default_rng(2)
    ids, values = entries(rng, 103)
    stored = values.astype(np.float16).view(np.uint16)
    rows = jnp.asarray(np.concatenate([ids, stored], axis=1))
    table = sparse.weight_table(rng.integers(0, 5, (2, V)).astype(np.float32))  # exact in float32
    whole = sparse.search(rows, table, k=12, count=100)
    for chunk in (1, 10):
        parts = sparse.search(rows, table, k=12, count=100, chunk=chunk)
        jax.tree.map(np.testing.assert_array_equal, parts, whole)
    assert np.asarray(whole.rows).max() < 100
    few = sparse.search(rows, table, k=5, count=3, offset=10)
    assert np.sort(np.asarray(few.rows), axis=1).tolist() == [[-1, -1, 10, 11, 12]] * 2


@pytest.mark.parametrize(
    ("at", "number"), [("values", np.nan), ("values", -1), ("values", 1e6), ("ids", V)]
)
def test_invalid_entries_are_refused(tmp_path, at, number) -> None:
    ids, values = entries(np.random.default_rng(4), 20)
    values[7] = 1
    ids[7] = np.arange(L)
    (values if at == "values" else ids)[7, 2] = number
    with pytest.raises(InputError, match=r"passage '7' \(row 7\).*negative or not finite.*beyond"):
        build(tmp_path, ids, values)


def test_invalid_queries_and_indexes_are_refused(tmp_path) -> None:
    ids, values = entries(np.random.default_rng(5), 20)
    index = build(tmp_path / "i", ids, values)
    with pytest.raises(InputError, match="query 0 has a negative"):
        index.search(-np.ones((1, V), np.float32), 1)
    with pytest.raises(InputError, match=r"shape \[q, 30\]"):
        index.search(np.ones((1, V + 1), np.float32), 1)
    with pytest.raises(InputError, match=r"shape \(8, 7\) and .* instead of \(8, 8\)"):
        build(tmp_path / "j", ids, values, length=8)
    with pytest.raises(InputError, match="vocabulary is 65,536"):
        build(tmp_path / "k", ids, values, vocabulary=1 << 16)
    assert json.loads(index.identity)["sparse"] == {"model": "given"}


def test_stored_vectors(tmp_path):
    """Across files of 4 rows; 0.1 becomes the float16 next to it, 0.0999755859375."""
    rng = np.random.default_rng(4)
    ids, values = entries(rng, 11)
    values[values == 0.5] = 0.1
    index = build(tmp_path, ids, values, shard_rows=4)
    rows = [10, 0, 3, 4, 0]
    found_ids, found = index.vectors(rows)
    assert found.dtype == np.float16 and 0.0999755859375 in found.astype(float)
    np.testing.assert_array_equal(found_ids, ids[rows])
    np.testing.assert_array_equal(found, values[rows].astype(np.float16))
    assert [part.shape for part in index.vectors([])] == [(0, L), (0, L)]
    for row in (-1, 11):
        with pytest.raises(InputError, match="holds rows 0 to 10"):
            index.vectors([0, row])
