"""Precision over closed questions."""

import math

import numpy as np
import pytest

from jaxrag.evaluation import precision


def records(said, gold, *, positive=True):
    return [
        {"question_id": str(i), "trace": {"option": {"said": s, "gold": g, "positive": positive}}}
        for i, (s, g) in enumerate(zip(said, gold, strict=True))
    ]


def test_by_hand():
    # Class 0 (yes) is answered 3 times, rightly twice; class 1 (no) twice, rightly once; one answer
    # names neither. Macro: (2/3 + 1/2) / 2.
    found = precision.intervals(records([0, 0, 0, 1, 1, None], [0, 0, 1, 1, 0, 0]))
    assert found["precision_positive"].mean == pytest.approx(2 / 3)
    assert found["precision_macro"].mean == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert found["precision_macro"].n == 6


def test_a_class_that_is_never_answered_counts_zero():
    found = precision.intervals(records([0, 0, 0, 0], [0, 0, 1, 2], positive=False))
    assert found["precision_macro"].mean == pytest.approx((1 / 2 + 0 + 0) / 3)
    assert found["precision_positive"].n == 0  # choices have no positive class


def test_never_yes_leaves_its_precision_undefined():
    found = precision.intervals(records([1, 1], [0, 1]))
    assert found["precision_positive"].n == 0 and math.isnan(found["precision_positive"].mean)
    assert found["precision_macro"].mean == pytest.approx(1 / 4)


def test_open_questions_and_errors_say_nothing():
    lines = [{"question_id": "1", "trace": {}}, {"question_id": "2", "error": "x"}]
    lines += [{"question_id": "3", "trace": {"option": {"said": 0, "gold": None}}}]
    assert all(found.n == 0 for found in precision.intervals(lines).values())


def test_interval_covers_the_mean_and_narrows():
    rng = np.random.default_rng(0)
    gold = rng.integers(2, size=400)
    said = np.where(rng.random(400) < 0.8, gold, 1 - gold)
    few = precision.intervals(records(said[:40].tolist(), gold[:40].tolist()))
    many = precision.intervals(records(said.tolist(), gold.tolist()))
    for found in (few["precision_macro"], many["precision_macro"]):
        assert found.low < found.mean < found.high
    widths = [f["precision_macro"].high - f["precision_macro"].low for f in (few, many)]
    assert widths[1] < 0.5 * widths[0]
    # the interval of a share of about n = 200 answers: 0.8 +- 1.96 sqrt(0.16 / 200) = 0.055
    assert many["precision_positive"].high - many["precision_positive"].low == pytest.approx(
        0.111, rel=0.2
    )


def test_accuracy_of_each_class_by_hand():
    """yes: 2 of 3 right; no: 0 of 1; maybe: 1 of 2, one of them with an answer of no class."""
    names = ["yes", "no", "maybe", "never"]
    lines = records([0, 0, 1, 0, 2, None], [0, 0, 0, 1, 2, 2], positive=False)
    for line in lines:
        line["trace"]["option"]["labels"] = names
    lines += [{"question_id": "e", "error": "x"}, {"question_id": "o", "trace": {}}]
    found = precision.class_accuracy(lines)
    assert list(found) == ["yes", "no", "maybe"]  # in the order of the labels; never has none
    assert [one.mean for one in found.values()] == pytest.approx([2 / 3, 0, 1 / 2])
    assert [one.n for one in found.values()] == [3, 1, 2]


def test_names_of_classes_come_from_the_task():
    lines = records([0, 1], [0, 0])
    assert precision.class_accuracy(lines) == {}
    for line in lines:
        line["trace"]["task"] = "fact_checking"
    assert precision.class_accuracy(lines)["true"].mean == 0.5
    for line in lines:
        line["trace"]["task"] = "multiple_choice"  # its letters are no classes
    assert precision.class_accuracy(lines) == {}
