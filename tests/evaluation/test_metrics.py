"""Metrics of single questions worked by hand, and their columns."""

import math
from typing import Any

import numpy as np
import pytest

from jaxrag.evaluation import metrics
from jaxrag.types import Passage, Question


def record(**changes: Any) -> dict[str, Any]:
    base = {
        "question_id": "1",
        "question": "Which river?",
        "gold_answers": ["the Blue Nile", "Nile"],
        "gold_passages": ["p1", "p2"],
        "prediction": "Blue Nile river",
        "trace": {
            "direct": {"text": "Nile", "u": 0.25},
            "gate": {"name": "nll", "value": 0.25, "threshold": 0.1, "retrieve": True},
            "searches": [
                {"path": "q", "query": "Which river?", "ids": ["p1", "p3"], "scores": [0.9, 0.5]},
                {"path": "p", "query": "The Nile", "ids": ["p2", "p1"], "scores": [0.8, 0.7]},
            ],
            "selected": {"ids": ["p3", "p1"], "scores": [0.4, 0.3]},
        },
        "cost": {"llm_calls": 3, "prompt_tokens": 210, "new_tokens": 40},
    }
    return base | changes


def test_scores_of_one_question_by_hand() -> None:
    found = metrics.question_scores(record(), {"seconds": 1.5, "store_hits": 2})
    # "blue nile river" against "blue nile": 2 shared, 2 * 2 / (3 + 2) = 0.8;
    # against "nile": 1 shared, 2 * 1 / (3 + 1) = 0.5.
    assert found == {
        "exact_match": 0,
        "f1": pytest.approx(0.8),
        "f1_mean_over_aliases": pytest.approx(0.65),
        "contains": 1,
        "sub_em": 1,
        "recall": 0.5,  # p1 of p1, p2 was given to the reader
        "coverage": 0,
        "hit": 1,
        "pool_recall": 1,  # the second search had found p2
        "trigger": 1,
        "retriever_activation": 1,
        "llm_calls": 3,
        "prompt_tokens": 210,
        "new_tokens": 40,
        "searches": 0,  # a kind of cost that was never counted is none
        "seconds": 1.5,
        "store_hits": 2,
    }


@pytest.mark.parametrize("said, right", [(0, 1.0), (1, 0.0)])
def test_one_choice_of_several_is_right_if_it_is_the_gold_one(said: int, right: float) -> None:
    choices = ("+1", "-1")  # equal without punctuation
    record = {
        "question_id": "q", "prediction": choices[said], "gold_answers": ["+1"],
        "trace": {"option": {"said": said, "gold": 0, "positive": False}},
    }  # fmt: skip
    found = metrics.question_scores(record, {})
    assert found["exact_match"] == found["contains"] == right


def test_a_direct_answer_says_nothing_about_the_retriever() -> None:
    trace = {"gate": {"name": "nll", "retrieve": False}}
    found = metrics.question_scores(record(trace=trace), {})
    assert found["trigger"] == 0 and found["retriever_activation"] == 0
    assert not found.keys() & {"recall", "coverage", "hit", "pool_recall", "seconds"}


def test_a_search_that_selects_nothing_has_no_recall() -> None:
    trace = {"searches": [{"path": "q", "query": "", "ids": [], "scores": []}]}
    found = metrics.question_scores(record(trace=trace), {})
    assert found["recall"] == 0 and found["hit"] == 0 and found["retriever_activation"] == 1
    assert found["trigger"] == 1  # a method without a gate that searches


def test_errors_and_questions_without_gold_define_nothing() -> None:
    failed = {"question_id": "2", "question": "?", "gold_answers": ["x"], "error": "boom"}
    assert metrics.question_scores(failed, {"seconds": 1}) == {}
    found = metrics.question_scores(record(gold_answers=[], gold_passages=[]), {})
    assert not found.keys() & {*metrics.ACCURACY, *metrics.RETRIEVAL}


def test_columns_follow_the_records() -> None:
    failed = {"question_id": "2", "question": "?", "gold_answers": ["x"], "error": "boom"}
    columns = metrics.score([failed, record(prediction="Nile")], {"1": {"seconds": 2.0}})
    assert tuple(columns) == metrics.COLUMNS
    assert all(values.shape == (2,) and np.isnan(values[0]) for values in columns.values())
    assert columns["exact_match"][1] == 1 and columns["seconds"][1] == 2
    assert math.isnan(columns["store_hits"][1])
    assert metrics.totals(columns)["prompt_tokens"] == 210


@pytest.mark.parametrize(
    ("timing", "known"),
    [
        ({"store_hits": 2, "untimed": 0}, True),
        ({"store_hits": 2, "untimed": 1}, False),
        ({"store_hits": 2, "stored": 0}, True),  # an older record: the run's own results
        ({"store_hits": 2, "stored": 1}, False),
        ({"store_hits": 1}, False),  # an older record does not tell whose
        ({"store_hits": 0}, True),
    ],
)
def test_seconds_are_unknown_where_an_earlier_run_had_stored_results(
    timing: dict[str, float], known: bool
) -> None:
    records = [record(), record(question_id="2")]
    times = {"1": {"seconds": 2.0, "store_hits": 0}, "2": {"seconds": 1.0, **timing}}
    columns = metrics.score(records, times)
    assert np.isnan(columns["seconds"]).tolist() == [not known] * 2
    assert columns["store_hits"][1] == timing["store_hits"]
    total = metrics.totals(columns)["seconds"]
    assert total == 3 if known else math.isnan(total)


def test_direct_answers_and_the_empty_one() -> None:
    empty = record(trace={"direct": {"text": "", "u": None, "empty": True}})
    none = record(trace={})
    failed = {"question_id": "2", "question": "?", "gold_answers": ["x"], "error": "boom"}
    u, right = metrics.direct_answers([record(), empty, none, failed])
    np.testing.assert_array_equal(u, [0.25, np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(right, [1, 0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("question", "holds"),
    [
        (Question("1", "Which river?", ("a Blue Nile",)), False),  # articles count, as in DPR
        (Question("1", "Which river?", ("Rhine", "Blue Nile")), True),  # one of them suffices
        (Question("1", "Which river?", ("Khartoum",)), True),  # a title is part of it
        (Question("1", "Which river?", ("Nil",)), False),  # whole tokens only
        (Question("1", "Which river?", ("yes", "Rhine")), False),
        (Question("1", "Is it long?", ("yes",)), None),
        (Question("1", "Is it long?", ("True",)), None),
        (Question("1", "It is long.", ("SUPPORTS",)), None),  # as KILT has FEVER
        (Question("1", "Which river?", ()), None),
        (Question("1", "Which river?", ("the Nile",), choices=("the Nile", "the Rhine")), None),
        (Question("1", "It is long.", ("long",), task="fact_checking"), None),
    ],
)
def test_whether_a_passage_holds_an_answer(question: Question, holds: bool | None) -> None:
    passage = Passage("p", "Khartoum", "The Blue Nile flows here, yes; it supports all.")
    assert metrics.holds_answer(question, passage) is holds
    assert metrics.holds_answer(question, None) is (None if holds is None else False)


def test_the_normalisation_of_a_record_is_used() -> None:
    """By accuracy, by direct answers and, for passages, by the same form."""
    said = record(prediction="N\u00eele", trace={"direct": {"text": "N\u00eele", "u": 0.1}})
    for form, right in (("squad", 0), ("unicode", 1)):
        line = said | {"normalization": form}
        assert metrics.question_scores(line, {})["exact_match"] == right
        np.testing.assert_array_equal(metrics.direct_answers([line])[1], [right])
        question = Question("1", "Which river?", ("Nile",))
        assert metrics.holds_answer(question, Passage("p", "", "N\u00eele"), form) is bool(right)


def test_ir_accuracy_is_what_was_recorded() -> None:
    for holds in (True, False):
        found = metrics.question_scores(record(top_holds_answer=holds), {})
        assert found["ir_accuracy"] == float(holds)
    assert "ir_accuracy" not in metrics.question_scores(record(), {})
    without_gold = record(top_holds_answer=True, gold_passages=[])
    assert metrics.question_scores(without_gold, {})["ir_accuracy"] == 1


@pytest.mark.parametrize(
    "text, said, right", [("true", 1, 1.0), ("mostly true", 0, 0.0), ("true or so", None, 0.0)]
)
def test_labels_are_scored_by_their_index(text, said, right):
    """ "mostly true" contains the gold label "true" and is another."""
    option = {"said": said, "gold": 1, "positive": False, "labels": ["mostly true", "true"]}
    record = {
        "question_id": "1",
        "prediction": text,
        "gold_answers": ["true"],
        "trace": {"option": option},
    }
    found = metrics.question_scores(record, {})
    assert found["exact_match"] == found["contains"] == right
