"""Answers of other systems are paired with a run's; a printed value is judged."""

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxrag.evaluation.others import read_answers
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.significance import Difference, needed_questions
from jaxrag.evaluation.summary import summarise_read
from jaxrag.experiments import compare
from jaxrag.types import InputError
from tests.evaluation import fabricate


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fabricate.run(tmp_path / "dtr", "dtr", n=20)


def written(path: Path, run: Path, name: str) -> Path:
    """All questions, each answered right, in a form of another system."""
    pairs = [(one["question"], one["gold_answers"][0]) for one in read_run(run).records]
    flash = [
        {"question": q, "golden_answers": [a], "output": {"pred": f"<think>x</think> {a}"}}
        for q, a in pairs
    ]
    tagged = [
        {
            "question": f"{q} ",
            "answer": "gold",
            "response": f"in <answer> x </answer> <answer>\n{a} </answer>.",
        }
        for q, a in pairs
    ]
    table = io.StringIO()
    csv.writer(table).writerows([("question", "answer"), *pairs])
    texts = {
        "a.json": json.dumps(flash),
        "b.jsonl": "".join(json.dumps(one) + "\n" for one in tagged),
        "c.csv": table.getvalue(),
    }
    (path / name).write_text(texts[name])
    return path / name


@pytest.mark.parametrize("name", ["a.json", "b.jsonl", "c.csv"])
def test_each_form_is_scored_on_the_questions_of_the_run(
    tmp_path: Path, run: Path, name: str
) -> None:
    ours = read_run(run)
    theirs = read_answers(written(tmp_path, run, name), ours)
    own, other = summarise_read([ours, theirs])
    assert (other.label, other.means["exact_match"].mean, other.answered) == (name[0], 1.0, 20)
    difference = other.differences["exact_match"]
    assert difference.n == own.answered  # one question of the run failed
    assert difference.mean == pytest.approx(1 - own.means["exact_match"].mean)
    assert not other.means["trigger"].n and not other.means["llm_calls"].n and not other.notes


def test_the_command_says_what_would_decide(tmp_path: Path, run: Path, capsys: Any) -> None:
    file = written(tmp_path, run, "a.json")
    assert compare.main(["compare", str(run), str(file), "--printed=35"]) == 0
    told = capsys.readouterr().out
    mean = summarise_read([read_run(run)])[0].means["exact_match"].mean
    needed = needed_questions((mean * (1 - mean)) ** 0.5, mean - 0.35)
    assert f"dtr: the printed 35 lies inside the interval of {100 * mean:.1f} [" in told
    assert f"; {needed:,} questions would decide it" in told
    assert "a: the printed 35 lies outside the interval of 100.0 [" in told

    rows = json.loads(file.read_text())
    for row in rows[6:]:  # about as many right answers as the run
        row["output"]["pred"] = "wrong"
    file.write_text(json.dumps(rows))
    compare.main(["compare", str(run), str(file)])
    assert "against dtr, is open: about" in capsys.readouterr().out


def test_questions_that_would_decide_a_difference() -> None:
    """+5 [-5, +15] of 100: spread 0.1 / 1.96 * 10 = 0.51, ((1.96 + 0.84) 0.51 / 0.05)^2 = 818."""
    difference = Difference(0.05, -0.05, 0.15, 100, 0.3)
    row: Any = SimpleNamespace(label="a", baseline="b", differences={"exact_match": difference})
    (line,) = compare._open([row])
    assert line == "a, +5.0 against b, is open: about 818 questions would decide it"


def test_a_question_with_several_answers_is_left_out(
    tmp_path: Path, run: Path, capsys: Any
) -> None:
    file = written(tmp_path, run, "a.json")
    rows = json.loads(file.read_text())
    rows += [rows[1], {**rows[0], "output": {"pred": "<answer>" * 200_000}}]  # a slow pattern
    file.write_text(json.dumps(rows))
    assert len(read_answers(file, read_run(run)).records) == 19
    assert "1 questions have several answers there, and are left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("{}", "is not a list of objects"),
        ("[1]", "is not a list of objects"),
        ('[{"question": "Who?"}]', "entry 1 lacks a field question.* it has question"),
        ('[{"question": "Who?", "pred": "I"}]', "answers none of the questions of"),
    ],
)
def test_what_is_no_answer_is_told(tmp_path: Path, run: Path, text: str, told: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=told):
        read_answers(tmp_path / "a.json", read_run(run))
