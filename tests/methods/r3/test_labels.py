import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.methods.r3.labels import (
    NEGATIVE,
    NEITHER,
    POSITIVE,
    Drawn,
    LabelledPool,
    Rules,
    draw,
    enough,
    label,
    label_choice,
    make_pool,
    with_both,
)
from jaxrag.types import InputError

LOG = {p: math.log(p) for p in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)}


def pool(above: float, below: float) -> LabelledPool:
    return LabelledPool((1,), (2,), (LOG[above],), (LOG[below],))


def test_each_gold_answer_has_its_own_thresholds() -> None:
    rows = [[LOG[0.9], LOG[0.2]], [LOG[0.4], LOG[0.8]], [LOG[0.1], LOG[0.3]]]
    found = make_pool([1, 2, 3], [True, False, False], rows)
    assert isinstance(found, LabelledPool)
    assert found.above == (LOG[0.4], LOG[0.8])
    assert found.below == (LOG[0.9], LOG[0.2])


@pytest.mark.parametrize(
    ("passes", "why"), [([False, False], "no passage gives"), ([True, True], "every passage gives")]
)
def test_questions_with_an_empty_pool_are_excluded(passes: Any, why: str) -> None:
    found = make_pool([1, 2], passes, [[-1.0], [-2.0]])
    assert isinstance(found, str) and found.startswith(why)


def test_one_answer_between_the_thresholds_is_neither() -> None:
    # tau+ 0.6 above tau- 0.4: the pools overlap, and between them nothing is known
    labels = [label([LOG[p]], pool(0.6, 0.4), Rules()) for p in (0.7, 0.6, 0.5, 0.4, 0.3)]
    assert labels == [POSITIVE, NEITHER, NEITHER, NEITHER, NEGATIVE]


def test_overlapping_thresholds_are_resolved_by_a_setting() -> None:
    # tau+ 0.4 below tau- 0.6: 0.5 is above the one and below the other
    for overlap, middle in (("positive", POSITIVE), ("negative", NEGATIVE)):
        rules = Rules(overlap=overlap)  # type: ignore[arg-type]
        labels = [label([LOG[p]], pool(0.4, 0.6), rules) for p in (0.7, 0.5, 0.3)]
        assert labels == [POSITIVE, middle, NEGATIVE]


def test_a_passage_positive_for_one_gold_answer_is_positive() -> None:
    several = LabelledPool((1,), (2,), (LOG[0.6], LOG[0.6]), (LOG[0.4], LOG[0.4]))

    def found(first: float, second: float, **rules: Any) -> int:
        return label([LOG[first], LOG[second]], several, Rules(**rules))

    assert found(0.7, 0.1) == POSITIVE
    assert found(0.1, 0.3) == NEGATIVE
    for between, expected in (("negative", NEGATIVE), ("neither", NEITHER)):
        assert found(0.5, 0.1, between=between) == expected
        assert found(0.5, 0.5, between=between) == expected


def test_the_gold_option_must_be_the_most_probable() -> None:
    assert label_choice([-1.0, -2.0, -3.0], 0) == POSITIVE
    assert label_choice([-1.0, -2.0, -3.0], 1) == NEGATIVE
    assert label_choice([-1.0, -1.0], 0) == NEGATIVE  # not more probable than the other


FOUND = [11, 12, 13, 14, 15, 16]
LABELS = [NEITHER, POSITIVE, POSITIVE, NEGATIVE, POSITIVE, NEGATIVE]


def drawn(rules: Rules, labels: list[int] = LABELS, count: int = 300) -> Counter[Drawn]:
    random = np.random.default_rng(0)
    known = LabelledPool((1, 2), (3, 4), (0.0,), (0.0,))
    return Counter(draw(FOUND, labels, known, rules, random) for _ in range(count))


def test_sampling_as_the_paper_does() -> None:
    found = drawn(Rules())
    assert set(found) == {Drawn(12, 14, (True, True)), Drawn(13, 14, (True, True))}
    assert min(found.values()) > 100  # of 300, each about a half
    assert set(drawn(Rules(sampling="C"))) == {Drawn(12, 14, (True, True))}
    some = set(drawn(Rules(sampling="B")))
    assert {(one.positive, one.negative) for one in some} == {
        (12, 14), (13, 14), (12, 16), (13, 16)
    }  # fmt: skip
    assert {one.positive for one in drawn(Rules(later=True))} == {12, 13, 15}


def test_missing_labels_are_drawn_from_the_pools() -> None:
    nothing = drawn(Rules(), [NEITHER] * 6)
    # all four pairs of the pools, each of 300 / 4 = 75 draws on average
    pairs = Counter((one.positive, one.negative) for one in nothing.elements())
    assert {*pairs} == {(1, 3), (1, 4), (2, 3), (2, 4)} and min(pairs.values()) > 50
    assert {one.online for one in nothing} == {(False, False)}
    # a positive that stands below the first negative does not count
    assert set(drawn(Rules(), [NEGATIVE, POSITIVE])) == {
        Drawn(1, 11, (False, True)),
        Drawn(2, 11, (False, True)),
    }
    assert {one.negative for one in drawn(Rules(), [POSITIVE])} == {3, 4}
    assert {one.positive for one in drawn(Rules(sampling="C"), [NEGATIVE])} == {1, 2}


def test_pools_may_be_drawn_from_by_relevance() -> None:
    nothing = [NEITHER] * 6
    for sampling, pairs in {
        "A": {(1, 3), (2, 3)},
        "B": {(1, 3), (1, 4), (2, 3), (2, 4)},
        "C": {(1, 3)},
    }.items():
        rules = Rules(sampling=sampling, from_pools="as_sampled")  # type: ignore[arg-type]
        assert {(one.positive, one.negative) for one in drawn(rules, nothing)} == pairs


@settings(max_examples=200, deadline=None)
@given(
    found=st.lists(st.integers(1, 30), unique=True, max_size=8),
    labels=st.lists(st.sampled_from([POSITIVE, NEITHER, NEGATIVE]), min_size=8, max_size=8),
    count=st.integers(2, 5),
    seed=st.integers(0, 9),
)
def test_sets_hold_a_positive_and_a_negative(
    found: list[int], labels: list[int], count: int, seed: int
) -> None:
    known = LabelledPool((1, 2, 3), (4, 5), (0.0,), (0.0,))
    own = labels[: len(found)]
    some = with_both(found, own, known, count, np.random.default_rng(seed))
    assert len(some) == len(set(some)) == count
    of = dict(zip(found, own, strict=True))
    positive = {1, 2, 3} | {row for row in found if of[row] == POSITIVE and row not in (4, 5)}
    negative = {4, 5} | {row for row in found if of[row] == NEGATIVE and row not in (1, 2, 3)}
    assert positive & set(some) and negative & set(some)
    first = found[:count]
    if len(first) == count and positive & set(first) and negative & set(first):
        assert some == first  # as retrieved
    assert set(some) <= {*found, 1, 2, 3, 4, 5}


def test_the_scan_stops_at_the_first_negative() -> None:
    assert not enough([POSITIVE, NEITHER], Rules())
    assert enough([POSITIVE, NEGATIVE], Rules()) and enough([NEGATIVE], Rules(sampling="C"))
    assert not enough([NEGATIVE], Rules(sampling="B"))
    assert not enough([NEGATIVE], Rules(later=True))


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.sampled_from([POSITIVE, NEITHER, NEGATIVE]), max_size=6),
    seed=st.integers(0, 99),
    sampling=st.sampled_from(["A", "C"]),
)
def test_labels_after_enough_change_nothing(labels: list[int], seed: int, sampling: Any) -> None:
    known, rules = LabelledPool((1, 2), (3, 4), (0.0,), (0.0,)), Rules(sampling=sampling)
    first = next((n for n in range(len(labels)) if enough(labels[:n], rules)), len(labels))
    some, all_of_them = (
        draw(FOUND, part, known, rules, np.random.default_rng(seed))
        for part in (labels[:first], labels)
    )
    assert some == all_of_them


def test_invalid_input_is_refused() -> None:
    for row in ([math.nan], [0.5], [], [-1.0, -2.0]):
        with pytest.raises(InputError, match="Passage 6"):
            make_pool([5, 6], [True, False], [[-1.0], row])
    with pytest.raises(InputError, match="NaN"):
        label([math.nan], pool(0.6, 0.4), Rules())
    with pytest.raises(InputError, match="NaN"):
        label_choice([-1.0, math.nan], 0)
