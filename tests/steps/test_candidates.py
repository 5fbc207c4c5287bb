"""One list from several searches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrag.steps.candidates import merged
from jaxrag.steps.episode import Pool

RANKINGS = st.lists(st.lists(st.integers(0, 9), unique=True, max_size=5), max_size=5)


def test_fusion():
    # 1: 1/61 + 1/62 = 0.032523; 3: 1/63 + 1/61 = 0.032266; 2: 1/62 = 0.016129; 4: 1/63 = 0.015873
    first, second = Pool((1, 2, 3), (0.9, 0.8, 0.7)), Pool((3, 1, 4), (0.5, 0.4, 0.3))
    fused = merged([first, second], "fusion")
    assert fused.rows == (1, 3, 2, 4)
    assert fused.scores == pytest.approx((0.0325225, 0.0322664, 0.0161290, 0.0158730), abs=1e-6)


def test_equal_rank_sums_alternate_between_rankings():
    found = merged([Pool((5, 6), (1, 1)), Pool((7, 8), (1, 1))], "fusion")
    assert found.rows == (5, 7, 6, 8)


@pytest.mark.parametrize("lists", [[[0, 1], [0, 2, 1], [1, 0], [1, 3, 0]], [[5, 6], [6, 5]] * 3])
def test_equal_rank_sums_tie_exactly(lists):
    # 0 and 1 have the ranks 1, 1, 2, 3 and 2, 3, 1, 1: sums of floats differ in the last bit
    fused = merged([Pool(tuple(ids), (0.0,) * len(ids)) for ids in lists], "fusion")
    assert fused.rows[:2] == tuple(lists[0][:2]) and fused.scores[0] == fused.scores[1]


@given(RANKINGS, st.sampled_from(["fusion", "round_robin", "concatenate"]))
def test_every_passage_once_best_first(lists, merge):
    rankings = [Pool(tuple(ids), (0.0,) * len(ids)) for ids in lists]
    union = merged(rankings, merge)
    rows, scores = union.rows, union.scores
    assert sorted(rows) == sorted({row for ids in lists for row in ids})
    assert list(scores) == sorted(scores, reverse=True) and len(scores) == len(rows)
    if lists and lists[0] and merge != "fusion":
        assert rows[0] == lists[0][0]
