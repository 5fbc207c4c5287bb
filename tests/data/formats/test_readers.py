"""Readers of published forms over a few rows in exactly the published form, with odd rows."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.core.jsonl_input import InputLine
from jaxrag.data.dataset import GoldPassage, SetRow, context
from jaxrag.data.formats.dpr import answer_list, read_dpr_table
from jaxrag.data.formats.flashrag import read_flashrag
from jaxrag.data.published import read_kilt
from jaxrag.types import InputError, Question


def jsonl(path, *rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def test_flashrag_questions_options_and_verdicts(tmp_path):
    path = jsonl(
        tmp_path / "test.jsonl",
        {"id": "test_0", "question": 'who is "é"?', "golden_answers": ["A", "B", "A"]},
        {"id": "test_1", "question": "q", "golden_answers": [0], "choices": ["x", "y"]},
        {"id": "test_2", "question": "q", "golden_answers": ["y"], "choices": ["x", "y"]},
        {"id": 3, "question": "is it", "golden_answers": [False], "metadata": {"passage": "No."}},
        {
            "id": "4",
            "question": "when",
            "golden_answers": ["1981"],
            "metadata": {"title": "B", "text": "In 1981.", "answer_start": 3},
        },
        {"id": "5", "question": "what", "golden_answers": ["x"], "metadata": {"text": "other"}},
    )
    boolq, squad = context("", "No."), context("B", "In 1981.")
    assert list(read_flashrag(path)) == [
        SetRow(Question("test_0", 'who is "é"?', ("A", "B"))),
        SetRow(Question("test_1", "q", ("x",), ("x", "y"))),
        SetRow(Question("test_2", "q", ("y",), ("x", "y"))),
        SetRow(Question("3", "is it", ("no",), task="yes_no"), (GoldPassage(boolq.id),), (boolq,)),
        SetRow(Question("4", "when", ("1981",)), (GoldPassage(squad.id),), (squad,)),
        SetRow(Question("5", "what", ("x",))),
    ]
    assert {row.question.task for row in read_flashrag(path, task="open")} == {"open"}


def test_kilt(tmp_path):
    page = {"wikipedia_id": "10593264", "title": "Therefore sign", "start_paragraph_id": 1}
    outputs = [
        {"answer": "the therefore sign", "provenance": [page]},
        {"answer": "the therefore sign"},
        {"answer": "three dots", "meta": {"score": 1}},
        {"provenance": [page, {"wikipedia_id": "7"}]},
    ]
    row = {"id": "69156", "input": "what do the 3 dots mean", "output": outputs, "meta": {}}
    answers = ("the therefore sign", "three dots")
    assert list(read_kilt(jsonl(tmp_path / "nq-dev-kilt.jsonl", row))) == [
        SetRow(
            Question("69156", "what do the 3 dots mean", answers),
            (GoldPassage("10593264", "kilt_wikipedia"), GoldPassage("7", "kilt_wikipedia")),
        )
    ]


# An answer: any text that Python can write in a file, not only blanks
_ANSWERS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@settings(max_examples=100, deadline=None)
@given(answers=st.lists(_ANSWERS, min_size=1, max_size=5))
def test_any_list_that_python_writes_is_read(tmp_path_factory, answers):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t", lineterminator="\n").writerow(["q", repr(answers)])
    path = tmp_path_factory.mktemp("dpr") / "x-test.qa.csv"
    path.write_bytes(text.getvalue().encode())
    (row,) = read_dpr_table(path, split="test")
    assert row.question.answers == tuple(dict.fromkeys(answers))


def test_strings_without_commas_are_not_joined(tmp_path):
    """As NumPy writes a list: Python would read it as one string."""
    row = InputLine(tmp_path, 1, {"answers": """['Lima' "Rock 'n' 'roll'"]"""})
    with pytest.raises(InputError, match="a list of strings as Python writes it is needed"):
        answer_list(row)


@settings(max_examples=60, deadline=None)
@given(cell=st.text(min_size=1))
def test_no_cell_runs_code_or_fails_otherwise(tmp_path_factory, cell):
    """Whatever a cell holds, it is a list of strings or an InputError that names the column."""
    row = InputLine(tmp_path_factory.getbasetemp(), 1, {"answers": cell})
    try:
        answers = answer_list(row)
    except InputError as error:
        assert "field 'answers'" in str(error)
    else:
        assert answers
        assert all(isinstance(answer, str) for answer in answers)
