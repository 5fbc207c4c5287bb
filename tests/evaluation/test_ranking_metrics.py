"""Ranking metrics: worked by hand, against formulas written naively, and against trec_eval."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrag.evaluation.ranking_metrics import ndcg, recall_at_k, reciprocal_rank

RANKED = ["a", "x", "b", "y", "c"]
GRADES = {"a": 1, "b": 3, "c": 2, "d": 1, "y": 0}


def test_recall_by_hand() -> None:
    gold = frozenset({"a", "b", "c"})
    found = [recall_at_k(["a", "x", "b", "a"], gold, k=k) for k in (0, 1, 2, 3, 9)]
    assert found == pytest.approx([0, 1 / 3, 1 / 3, 2 / 3, 2 / 3])
    assert math.isnan(recall_at_k(["a"], frozenset(), k=1))


def test_reciprocal_rank_by_hand() -> None:
    found = [reciprocal_rank(RANKED, {"b", "c"}, k=k) for k in (1, 2, 3, 10)]
    assert found == [0, 0, 1 / 3, 1 / 3]
    assert reciprocal_rank(RANKED, {"z"}, k=10) == 0 and reciprocal_rank([], {"z"}, k=10) == 0
    assert math.isnan(reciprocal_rank(RANKED, set(), k=10))


def test_ndcg_by_hand() -> None:
    """Gains of the ranking: 1, 0, 3, 0, 2; ideally 3, 2, 1, 1.

    With 1 / log2(r + 1) = 1, 0.6309298, 0.5, 0.4306766, 0.3868528 at ranks 1 to 5:
    DCG@5 = 1 + 3 x 0.5 + 2 x 0.3868528 = 3.2737056,
    ideal = 3 + 2 x 0.6309298 + 0.5 + 0.4306766 = 5.1925362, ratio 0.6304637;
    DCG@3 = 2.5, ideal@3 = 3 + 1.2618596 + 0.5 = 4.7618596, ratio 0.5250050.
    """
    assert ndcg(RANKED, GRADES, k=5) == pytest.approx(0.6304637, abs=1e-6)
    assert ndcg(RANKED, GRADES, k=3) == pytest.approx(0.5250050, abs=1e-6)
    assert ndcg([], GRADES, k=5) == 0
    assert math.isnan(ndcg(RANKED, {"a": 0}, k=5)) and math.isnan(ndcg(RANKED, {}, k=5))


judgements = st.dictionaries(st.integers(0, 30).map(str), st.integers(0, 4), min_size=1)
rankings = st.lists(st.integers(0, 30).map(str), unique=True, max_size=25)


@given(rankings, judgements, st.integers(1, 12))
def test_a_naive_reference(ranked: list[str], grades: dict[str, int], k: int) -> None:
    """The formulas rank by rank, in exact sums of Python floats."""
    found = [(rank, grades.get(name, 0)) for rank, name in enumerate(ranked, 1) if rank <= k]
    ideal = enumerate(sorted(grades.values(), reverse=True), 1)
    dcg = math.fsum(grade / math.log2(rank + 1) for rank, grade in found)
    best = math.fsum(grade / math.log2(rank + 1) for rank, grade in ideal if rank <= k)
    if best:
        assert ndcg(ranked, grades, k=k) == pytest.approx(dcg / best, rel=1e-12)


@pytest.mark.parity
@pytest.mark.parametrize("level", [1, 2])
def test_parity_with_trec_eval(level: int) -> None:
    """pytrec_eval runs trec_eval's own C code; ranks are given to it as scores."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    random = np.random.default_rng(0)
    judged, runs, rankings = {}, {}, {}
    for query in map(str, range(300)):
        names = [f"d{i}" for i in random.permutation(60)]
        judged[query] = {name: int(random.integers(4)) for name in names[: random.integers(3, 40)]}
        judged[query][names[0]] = 3  # trec_eval gives 0, not NaN, where nothing is relevant
        rankings[query] = [f"d{i}" for i in random.permutation(90)[: random.integers(1, 50)]]
        runs[query] = {name: -float(rank) for rank, name in enumerate(rankings[query])}
    first = {query: dict(list(found.items())[:10]) for query, found in runs.items()}
    measures = {"recall.1,5,20", "ndcg_cut.5,10"}
    theirs = pytrec_eval.RelevanceEvaluator(judged, measures, relevance_level=level).evaluate(runs)
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"}, relevance_level=level)
    reciprocal = evaluator.evaluate(first)
    for query, ranked in rankings.items():
        grades = judged[query]
        relevant = {name for name, grade in grades.items() if grade >= level}
        ours = {f"recall_{k}": recall_at_k(ranked, relevant, k=k) for k in (1, 5, 20)}
        ours |= {f"ndcg_cut_{k}": ndcg(ranked, grades, k=k) for k in (5, 10)}
        assert ours == pytest.approx(theirs[query], abs=1e-9)
        expected = reciprocal[query]["recip_rank"]
        assert reciprocal_rank(ranked, relevant, k=10) == pytest.approx(expected, abs=1e-9)
