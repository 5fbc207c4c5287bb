"""Alarms, one by one, from records by hand."""

from typing import Any

import pytest

from jaxrag.evaluation import alarms

FINE = {"text": "Oslo", "raw": " Oslo\nIt is", "tokens": 3, "finish_reason": "end"}


def record(trace: Any = None, **changes: Any) -> dict[str, Any]:
    """A record without any alarm, with these changes; ``answer`` changes the recorded answer."""
    answer = {**FINE, **changes.pop("answer", {})}
    trace = {"answer": answer, "searches": [{"ids": ["p"]}], **(trace or {})}
    return {"gold_answers": ["Oslo"], "prediction": "Oslo", "trace": trace, **changes}


CUT = {"finish_reason": "length", "raw": "It is Os", "text": "It is Os"}
THINKING = {"raw": "", "text": "", "tokens": 0, "reasoning_tokens": 9, "finish_reason": "length"}
OPTION = {"said": 1, "gold": 0, "positive": False}


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (record(), []),
        ({"gold_answers": ["a"], "error": "InputError: it refuses: no"}, ["failed"]),
        (
            {"gold_answers": ["a"], "error": "null after unfinished reasoning"},
            ["failed", "unfinished_reasoning"],
        ),
        (record(gold_answers=[]), ["without_gold"]),
        (record(prediction=" \n"), ["empty"]),
        (record(answer=CUT), ["cut"]),
        # what follows the answer is cut, or the tokens sufficed for the option
        (record(answer={**FINE, "finish_reason": "length"}), []),
        (record({"option": OPTION}, answer=CUT), []),
        (record({"option": {**OPTION, "said": None}}, answer=CUT), ["cut", "unread"]),
        (record(prediction="", answer=THINKING), ["empty", "unfinished_reasoning"]),
        (record(answer={"reasoning_tokens": 9}), []),
        (record({"truncated": {"passages": 1, "of": 3, "tokens_cut": 7}}), ["truncated"]),
        (record({"searches": [{"ids": ["p"]}, {"ids": []}]}), ["nothing_found"]),
        (record(answer={"junk": True}), ["unread"]),
        (record(answer={"junk": False}), []),
        (record({"option": {**OPTION, "said": None}}), ["unread"]),
        (record({"option": OPTION}), []),
        # of an earlier version, or a method of one's own
        ({"gold_answers": ["a"], "prediction": "a", "trace": {}}, []),
        ({"gold_answers": ["a"], "prediction": "a", "trace": {"answer": {"text": "a"}}}, []),
    ],
)
def test_each_alarm(found: dict[str, Any], names: list[str]) -> None:
    assert sorted(name for name, number in alarms.count([found]).items() if number) == names


def test_over_two_per_cent_of_the_questions_raise_an_alarm() -> None:
    empty = record(prediction="")
    assert alarms.raised([empty, *[record()] * 49]) == {}
    (said,) = alarms.raised([empty, empty, *[record()] * 48]).values()
    assert said.startswith("2 of 50 questions (4 %) have an empty answer: ")
    assert "config.method.reader.prompts" in said and alarms.raised([]) == {}
