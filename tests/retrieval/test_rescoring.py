import numpy as np
import pytest

from jaxrag.retrieval.dense.matrix import build_matrix
from jaxrag.retrieval.rescoring import check_query, rank
from jaxrag.types import InputError, Ranking
from tests.retrieval.fakes import VectorEncoder, numbered


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


def test_the_order_of_candidates_does_not_matter_and_gaps_are_left_out(matrix) -> None:
    query = np.array([[2, 1]], np.float32)
    found = rank(matrix, query, np.array([[3, -1, 2, 0, -1]]), metric="inner_product")
    assert found.rankings(5) == [Ranking((0, 3, 2), (2.0, 2.0, 1.5))]
    assert rank(matrix, query, np.array([[-1]]), metric="l2").rankings(1) == [Ranking((), ())]


def test_no_queries(matrix) -> None:
    none = np.empty((0, 2), np.float32)
    assert rank(matrix, none, np.empty((0, 3), int), metric="l2").rankings(3) == []


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


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        (np.zeros((2, 3)), 1, r"shape \[q, 2\].*\(2, 3\)"),
        (np.zeros(2), 1, r"shape \[q, 2\]"),
        (np.zeros((1, 2)), 0, "k must be at least 1"),
        (np.array([[0, 0], [0, np.nan]]), 1, "query 1 has a number that is not finite"),
    ],
)
def test_bad_queries(queries, k, message) -> None:
    with pytest.raises(InputError, match=message):
        check_query(queries, k, 2)
