import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.retrieval.dense.matrix import rank
from jaxrag.types import InputError, Ranking
from tests.retrieval.fakes import FakeEncoder, FakePassages, VectorEncoder, build_matrix, numbered


@settings(max_examples=10, deadline=None)
@given(
    count=st.integers(1, 40),
    shard_rows=st.integers(1, 50),
    block=st.integers(1, 50),
    dtype=st.sampled_from(["float16", "float32"]),
    data=st.data(),
)
def test_rows_are_the_passages_vectors(count, shard_rows, block, dtype, data) -> None:
    passages, encoder = FakePassages(count), FakeEncoder(block=block)
    with tempfile.TemporaryDirectory() as directory:
        matrix = build_matrix(passages, encoder, directory, shard_rows=shard_rows, dtype=dtype)
        expected = FakeEncoder().embed_passages(passages.rows).astype(dtype)
        assert matrix.shape == expected.shape
        assert len(matrix.rows.files) == -(-count // shard_rows)
        assert np.array_equal(matrix[:], expected)
        rows = data.draw(st.lists(st.integers(0, count - 1)))
        assert np.array_equal(matrix.stored(rows), expected[rows])
        start, stop = sorted(data.draw(st.tuples(st.integers(0, count), st.integers(0, count))))
        assert np.array_equal(matrix[start:stop], expected[start:stop])


def test_refuses_bad_sizes_and_an_empty_corpus(tmp_path) -> None:
    with pytest.raises(InputError, match="corpus is empty"):
        build_matrix(FakePassages(0, []), FakeEncoder(), tmp_path)
    with pytest.raises(InputError, match="shard_rows"):
        build_matrix(FakePassages(3), FakeEncoder(), tmp_path, shard_rows=0)
    with pytest.raises(InputError, match="dtype"):
        build_matrix(FakePassages(3), FakeEncoder(), tmp_path, dtype="int8")


class Spoilt(FakeEncoder):
    """Gives one bad number for the passage of row 7."""

    bad = np.nan

    def embed_passages(self, passages):
        vectors = super().embed_passages(passages)
        vectors[[p.id == "7" for p in passages], 2] = self.bad
        return vectors


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e6])  # 1e6 is beyond float16
def test_refuses_vectors_that_are_not_finite(tmp_path, bad) -> None:
    encoder = Spoilt(block=5)
    encoder.bad = bad
    with pytest.raises(InputError, match=r"passage '7' \(row 7\) is not finite in float16"):
        build_matrix(FakePassages(20), encoder, tmp_path)
    rest = FakeEncoder()  # the first block was kept
    build_matrix(FakePassages(20), rest, tmp_path)
    assert rest.encoded == 15


def test_refuses_vectors_of_another_length(tmp_path) -> None:
    encoder = FakeEncoder(dimension=17)
    encoder.embed_passages = FakeEncoder(dimension=16).embed_passages
    with pytest.raises(InputError, match=r"shape \(16,\) instead of \(17,\)"):
        build_matrix(FakePassages(3), encoder, tmp_path)


@pytest.fixture
def matrix(tmp_path):
    # exact in float16
    vectors = np.array([[1, 0], [0, 1], [0.5, 0.5], [1, 0], [-1, 2]], np.float32)
    return build_matrix(numbered(5), VectorEncoder(vectors), tmp_path / "i", shard_rows=2)


def test_worked_by_hand(matrix) -> None:
    queries = np.array([[2, 1], [0, -1]], np.float32)
    every = np.tile(np.arange(5), (2, 1))
    # [2, 1]: 2, 1, 1.5, 2, 0    [0, -1]: 0, -1, -0.5, 0, -2
    found = rank(matrix, queries, every, metric="inner_product").rankings(3)
    assert found == [Ranking((0, 3, 2), (2.0, 2.0, 1.5)), Ranking((0, 3, 2), (0.0, 0.0, -0.5))]
    # [2, 1]: |(1, 1)|^2 = 2, |(2, 0)|^2 = 4, |(1.5, 0.5)|^2 = 2.5, 2, |(3, -1)|^2 = 10
    (found, _) = rank(matrix, queries, every, metric="l2").rankings(9)
    assert found == Ranking((0, 3, 2, 1, 4), (-2.0, -2.0, -2.5, -4.0, -10.0))


def test_candidate_order_and_gaps_do_not_matter(matrix) -> None:
    query = np.array([[2, 1]], np.float32)
    found = rank(matrix, query, np.array([[3, -1, 2, 0, -1]]), metric="inner_product")
    assert found.rankings(5) == [Ranking((0, 3, 2), (2.0, 2.0, 1.5))]
    assert rank(matrix, query, np.array([[-1]]), metric="l2").rankings(1) == [Ranking((), ())]


@pytest.mark.parametrize("metric", ["inner_product", "l2"])
def test_a_score_depends_on_nothing_but_its_query_and_row(tmp_path, metric) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((300, 129), np.float32)
    matrix = build_matrix(numbered(300), VectorEncoder(vectors), tmp_path / "i")
    queries = rng.standard_normal((37, 129), np.float32)
    rows = np.stack([rng.permutation(300)[:21] for _ in queries])
    together = rank(matrix, queries, rows, metric=metric)
    for i, query in enumerate(queries):
        alone = rank(matrix, query[None], rows[i : i + 1, ::-1], metric=metric)
        assert np.array_equal(alone.rows[0], together.rows[i])
        assert alone.scores[0].tobytes() == together.scores[i].tobytes()
