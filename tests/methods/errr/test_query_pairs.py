"""Lines of pairs by hand, and whole files from runs of a small model."""

import dataclasses
import json

import pytest

from experiments import tabulate
from experiments.configuration import load
from jaxrag.evaluation.records import read_run
from jaxrag.functional.query_lists import parse_queries
from jaxrag.jobs import query_pairs, tables
from jaxrag.methods import errr_pairs
from jaxrag.methods.queries import ERRR, Prompted, Trained
from jaxrag.methods.steps import Reader
from jaxrag.settings import Draw
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
    assert query_pairs.pair_line(RECORD, Trained(), "train") == {
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


def test_a_student_that_is_shown_no_context():
    student = Trained("Rewrite:", context=False, ending="\nQueries:")
    line = query_pairs.pair_line(RECORD, student, "train")
    assert line["input"] == "Rewrite: Where is it?\nQueries:" and line["context"] == "In Rome."
    alone = query_pairs.pair_line(with_trace(pseudo_context=None), student, "train")
    assert alone["input"] == line["input"] and alone["context"] == ""
    with pytest.raises(InputError, match=r"Question q: .*student\.context=False"):
        query_pairs.pair_line(with_trace(pseudo_context=None), Trained(), "train")


def test_an_empty_context_is_the_question_as_in_the_method():
    line = query_pairs.pair_line(with_trace(pseudo_context=""), Trained(), "train")
    assert line["context"] == "" and line["input"].endswith("Where is it? Context: Where is it?")


def test_what_could_not_be_read_has_no_target():
    junk = {"texts": ["Where is it?"], "parsed": False, "dropped": 0, "raw": ";"}
    line = query_pairs.pair_line(with_trace(queries=junk), Trained(), "train")
    assert line["target"] is None and line["queries"] == [] and line["parseable"] is False


@pytest.mark.parametrize(
    "record", [{**RECORD, "error": "too long"}, with_trace(queries=None), {**RECORD, "trace": None}]
)
def test_a_question_without_queries(record):
    with pytest.raises(InputError, match="Question q has no queries to learn from"):
        query_pairs.pair_line(record, Trained(), "train")


def test_parts_depend_on_the_question_alone():
    names = [f"q{i}" for i in range(2000)]
    parts = [query_pairs.assigned(name, "train", 0.2) for name in names]
    # 2000 draws of 0.2: 400 expected, standard deviation 18
    assert 310 < parts.count("held_out") < 490 and set(parts) == {"train", "held_out"}
    more = [query_pairs.assigned(name, "train", 0.3) for name in names]
    assert all(b == "held_out" for a, b in zip(parts, more, strict=True) if a == "held_out")
    assert query_pairs.assigned("q", "test", 0.99) == "test"
    assert {query_pairs.assigned(name, "train", 0.0) for name in names} == {"train"}


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
    return root, run, tables.tabulate(run, root / "pairs")


def test_the_pairs_of_a_run(made):
    root, run, path = made
    assert path == root / "pairs" / "pairs.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    records = read_run(root / "pairs" / "run").records
    assert [line["question_id"] for line in lines] == [r["question_id"] for r in records]
    assert [line["part"] == "test" for line in lines] == [False] * 8 + [True] * 3
    for line, record in zip(lines, records, strict=True):
        known = line["context"] or line["question"]
        assert line["input"] == run.method.student.input(line["question"], known)
        if line["parseable"]:
            assert parse_queries(line["target"], "?").texts == tuple(line["queries"])
        assert record["cost"]["llm_calls"] == 2 and not record["prediction"]
    assert "searches" not in records[0]["trace"]


def test_a_finished_run_gives_the_same_pairs(made, tmp_path):
    root, run, path = made
    again = query_pairs.pairs_of(
        root / "pairs" / "run", run.method.student, held_out=0.4, file=tmp_path / "p.jsonl"
    )
    lines, others = (
        [json.loads(line) for line in file.read_text().splitlines()] for file in (path, again)
    )
    assert lines[:8] == others[:8]
    with pytest.raises(InputError, match="is not a run directory"):
        query_pairs.pairs_of(tmp_path, Trained(), held_out=0.1, file=tmp_path / "x")


def test_a_finished_table_is_made_again_without_asking(made):
    root, run, path = made
    before = path.read_bytes()
    path.unlink()
    assert tables.tabulate(run, root / "pairs").read_bytes() == before


def test_what_is_in_them_is_told(made):
    path = made[2]
    shown = query_pairs.described(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    parts = [name for name in ("train", "held_out", "test")
             if any(line["part"] == name for line in lines)]  # fmt: skip
    assert list(shown.columns[0].cells) == parts and len(parts) >= 2
    assert sum(int(cell) for cell in shown.columns[1].cells) == 11


def test_questions_that_failed_leave_no_pairs(made, tmp_path):
    _, run, _ = made
    method = dataclasses.replace(run.method, teacher=Prompted(tokens=10**6))
    with pytest.raises(InputError, match=r"11 of 11 questions failed .*asks these again"):
        tables.tabulate(dataclasses.replace(run, method=method), tmp_path)
    assert not (tmp_path / "pairs.jsonl").exists()


def test_the_script_makes_pairs(made, tmp_path, capsys):
    root = made[0]
    config = root / "pairs_config.py"
    config.write_text(
        "import dataclasses\n"
        "from experiments.configuration import load\n"
        "from jaxrag.methods import errr_pairs\n"
        "from jaxrag.methods.queries import Prompted\n"
        "from jaxrag.methods.steps import Reader\n"
        "def get_config():\n"
        f"    run = load({str(root / 'config.py')!r})\n"
        f"    reader = Reader(prompts={str(root / 'prompts.toml')!r}, passage_tokens=8)\n"
        "    method = errr_pairs.Config(Prompted(tokens=8), reader=reader)\n"
        "    return dataclasses.replace(run, method=method, index=None, limit=3)\n"
    )
    argv = ["tabulate", "--config", str(config), "--workdir", str(tmp_path / "made")]
    assert tabulate.main(argv) == 0
    assert f"made: {tmp_path / 'made' / 'pairs.jsonl'}" in capsys.readouterr().out.replace("\n", "")
