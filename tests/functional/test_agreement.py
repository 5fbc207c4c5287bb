"""Agreement of judgements: numbers by hand, plain loops, and what is undefined."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.functional.agreement import agreement, auc, point_biserial
from jaxrag.types import InputError

NAN = float("nan")


def test_by_hand() -> None:
    # 4 TP, 2 FP, 1 FN, 3 TN of 10
    judged = [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    gold = [1, 1, 1, 1, 0, 0, 1, 0, 0, 0]
    found = agreement(judged, gold)
    # chance: 0.6 * 0.5 + 0.4 * 0.5 = 0.5, kappa (0.7 - 0.5) / 0.5
    assert found.n == 10 and found.raw == pytest.approx(0.7) and found.kappa == pytest.approx(0.4)
    assert found.precision == pytest.approx(4 / 6) and found.recall == pytest.approx(4 / 5)
    assert found.f1 == pytest.approx(8 / 11)
    assert found.balanced == pytest.approx((4 / 5 + 3 / 5) / 2)
    assert (found.judged, found.gold) == (0.6, 0.5)
    # scores 3 2 | 2 1 0: of 6 pairs 5 are right and one ties
    assert auc([3, 2, 2, 1, 0], [1, 1, 0, 0, 0]) == pytest.approx(5.5 / 6)
    # x = 1 2 3 4 with gold 0 0 1 1: deviations +-1.5, +-0.5 and +-0.5: 2 / sqrt(5 * 1)
    assert point_biserial([1, 2, 3, 4], [0, 0, 1, 1]) == pytest.approx(2 / math.sqrt(5))


def test_a_judge_who_always_says_yes_is_seen_through() -> None:
    gold = [1] * 9 + [0]
    found = agreement([True] * 10, gold)
    assert found.raw == 0.9 and found.kappa == 0 and found.balanced == 0.5
    assert found.recall == 1 and found.precision == 0.9
    assert math.isnan(point_biserial([1.0] * 10, gold)) and auc([1.0] * 10, gold) == 0.5


def test_what_is_undefined_is_nan() -> None:
    every = agreement([1, 1], [1, 1])
    assert every.raw == 1 and math.isnan(every.kappa) and math.isnan(every.balanced)
    never = agreement([0, 0], [0, 0])
    assert math.isnan(never.precision) and math.isnan(never.recall) and math.isnan(never.f1)
    nothing = agreement([], [])
    assert nothing.n == 0 and all(math.isnan(value) for value in nothing[1:])
    assert math.isnan(auc([1, 2], [1, 1])) and math.isnan(point_biserial([1, 2], [0, 0]))
    no_yes = agreement([0, 0], [0, 1])
    assert math.isnan(no_yes.precision) and no_yes.recall == 0 and no_yes.f1 == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(-3, 3)), max_size=20))
def test_against_plain_counts(rows: Any) -> None:
    judged, gold, scores = ([row[i] for row in rows] for i in range(3))
    found, n = agreement(judged, gold), len(rows)
    if n:
        both = {(a, b): sum(row[:2] == (a, b) for row in rows) for a in (0, 1) for b in (0, 1)}
        said, was = (both[1, 0] + both[1, 1]) / n, (both[0, 1] + both[1, 1]) / n
        chance = said * was + (1 - said) * (1 - was)
        raw = (both[0, 0] + both[1, 1]) / n
        if chance < 1:
            assert found.kappa == pytest.approx((raw - chance) / (1 - chance), abs=1e-12)
            assert found.kappa <= 1 + 1e-12
        if 0 < was < 1:
            wanted = both[1, 1] / (was * n), both[0, 0] / ((1 - was) * n)
            assert found.balanced == pytest.approx(np.mean(wanted))
    pairs = [
        (a > b) + (a == b) / 2
        for (a, x), (b, y) in itertools.product(zip(scores, gold, strict=True), repeat=2)
        if x > y
    ]
    np.testing.assert_allclose(auc(scores, gold), np.mean(pairs) if pairs else NAN)
    spread = len({*scores}) > 1 and len({*gold}) > 1
    wanted = np.corrcoef(scores, gold)[0, 1] if spread else NAN
    np.testing.assert_allclose(point_biserial(scores, gold), wanted, atol=1e-12)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="2 judgements but 1 gold"):
        agreement([1, 0], [1])
    with pytest.raises(InputError, match=r"judged holds .*2"):
        agreement([1, 2], [1, 0])
    with pytest.raises(InputError, match=r"gold holds .*nan"):
        agreement([1, 0], [1, NAN])
    with pytest.raises(InputError, match="Score 1 is NaN"):
        auc([0.0, NAN], [0, 1])
    with pytest.raises(InputError, match="Score 0 is infinite"):
        point_biserial([-np.inf, 0.0], [0, 1])
    assert auc([-np.inf, 0.0], [0, 1]) == 1
