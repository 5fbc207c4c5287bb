"""Lines of pairs by hand, and whole files from runs of a small model."""

import dataclasses
import json

import pytest

from jaxrag.data.draw import Draw
from jaxrag.evaluation.records import read_run
from jaxrag.methods.errr import errr_pairs
from jaxrag.methods.errr.parsed_queries import parse_queries
from jaxrag.methods.errr.queries import ERRR, Prompted, StudentInput
from jaxrag.runs.config_file import load
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError
from tests.experiments.small_run import PROMPTS, write_small_run

MORE = (
    PROMPTS
    + """
[queries]
chat = false
user = "Q: {question}\\nQueries:"

[queries_from_context]
chat = false
user = "C: {context}\\nQ: {question}\\nQueries:"
"""
)

RECORD = {
    "question_id": "q",
    "question": "Where is it?",
    "trace": {
        "pseudo_context": "In Rome.",
        "queries": {"texts": ["a b", "c"], "parsed": True, "dropped": 0, "raw": "1. a b; c; c **"},
    },
}


def with_trace(**changes):
    trace = {**RECORD["trace"], **changes}
    return {**RECORD, "trace": {name: value for name, value in trace.items() if value is not None}}


def test_a_line_by_hand():
    assert errr_pairs.pair_line(RECORD, StudentInput(), "train") == {
        "question_id": "q",
        "question": "Where is it?",
        "context": "In Rome.",
        "input": f"{ERRR} Where is it? Context: In Rome.",
        "queries": ["a b", "c"],
        "target": "a b; c **",
        "raw": "1. a b; c; c **",
        "parseable": True,
        "part": "train",
    }


def test_a_student_without_context():
    student = StudentInput("Rewrite:", context=False, ending="\nQueries:")
    line = errr_pairs.pair_line(RECORD, student, "train")
    assert line["input"] == "Rewrite: Where is it?\nQueries:" and line["context"] == "In Rome."
    alone = errr_pairs.pair_line(with_trace(pseudo_context=None), student, "train")
    assert alone["input"] == line["input"] and alone["context"] == ""
    with pytest.raises(InputError, match=r"Question q: .*student\.context=False"):
        errr_pairs.pair_line(with_trace(pseudo_context=None), StudentInput(), "train")


def test_an_empty_context_is_replaced_by_the_question():
    line = errr_pairs.pair_line(with_trace(pseudo_context=""), StudentInput(), "train")
    assert line["context"] == "" and line["input"].endswith("Where is it? Context: Where is it?")


def test_unparsable_queries_give_no_target():
    junk = {"texts": ["Where is it?"], "parsed": False, "dropped": 0, "raw": ";"}
    line = errr_pairs.pair_line(with_trace(queries=junk), StudentInput(), "train")
    assert line["target"] is None and line["queries"] == [] and line["parseable"] is False


@pytest.mark.parametrize(
    "record", [{**RECORD, "error": "too long"}, with_trace(queries=None), {**RECORD, "trace": None}]
)
def test_a_question_without_queries(record):
    with pytest.raises(InputError, match="Question q has no queries to learn from"):
        errr_pairs.pair_line(record, StudentInput(), "train")


def test_parts_depend_on_the_question_only():
    names = [f"q{i}" for i in range(2000)]
    parts = [errr_pairs.assigned(name, "train", 0.2) for name in names]
    # 2000 draws of 0.2: 400 expected, standard deviation 18
    assert 310 < parts.count("held_out") < 490 and set(parts) == {"train", "held_out"}
    more = [errr_pairs.assigned(name, "train", 0.3) for name in names]
    assert all(b == "held_out" for a, b in zip(parts, more, strict=True) if a == "held_out")
    assert errr_pairs.assigned("q", "test", 0.99) == "test"
    assert {errr_pairs.assigned(name, "train", 0.0) for name in names} == {"train"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Pairs of a few questions, by a small model with random weights."""
    root = tmp_path_factory.mktemp("pairs")
    run = load(str(write_small_run(root, questions=12)))
    (root / "prompts.toml").write_text(MORE)
    method = errr_pairs.Config(
        Prompted(tokens=8),
        held_out=0.4,
        reader=Reader(prompts=str(root / "prompts.toml"), passage_tokens=8),
    )
    data = Draw(run.data, None, "both", 8, 3)
    run = dataclasses.replace(run, method=method, data=data, index=None)
    job = errr_pairs.MakeQueryPairs(run)
    return root, job, job.execute(root / "pairs")


def test_pairs_of_a_run(made):
    root, job, (_, path, *_) = made
    assert path == root / "pairs" / "pairs.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    records = read_run(root / "pairs" / "run").records
    assert [line["question_id"] for line in lines] == [r["question_id"] for r in records]
    assert [line["part"] == "test" for line in lines] == [False] * 8 + [True] * 3
    for line, record in zip(lines, records, strict=True):
        known = line["context"] or line["question"]
        assert line["input"] == job.run.method.student.text(line["question"], known)
        if line["parseable"]:
            assert parse_queries(line["target"], "?").texts == tuple(line["queries"])
        assert record["cost"]["llm_calls"] == 2 and not record["prediction"]
    assert "searches" not in records[0]["trace"]


def test_the_outcome_counts_pairs_by_part(made):
    (shown, _), path, *_ = made[2]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    parts = [name for name in ("train", "held_out", "test")
             if any(line["part"] == name for line in lines)]  # fmt: skip
    assert list(shown.columns[0].cells) == parts and len(parts) >= 2
    assert sum(int(cell) for cell in shown.columns[1].cells) == 11
