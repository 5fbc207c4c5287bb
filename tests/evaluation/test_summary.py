"""Rows of several runs: grouping, labels, baselines and pairing."""

import json
from pathlib import Path

import pytest

from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.report.tables import count_text
from jaxrag.evaluation.summary import summarise
from jaxrag.types import InputError
from tests.evaluation import fabricate


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    methods = ("no_retrieval", "standard_rag", "dtr")
    return [fabricate.run(root / name, name, n=120, seed=i) for i, name in enumerate(methods)]


def test_rows_hold_means_costs_and_differences(runs: list[Path]) -> None:
    none, rag, dtr = summarise(runs)
    assert [row.label for row in (none, rag, dtr)] == ["no_retrieval", "standard_rag", "dtr"]
    assert (none.answered, dtr.answered, dtr.errors) == (120, 119, 1)
    assert rag.baseline == "" and not rag.differences and none.baseline == "standard_rag"
    # A paired mean difference over the same questions is the difference of the means.
    expected = none.means["exact_match"].mean - rag.means["exact_match"].mean
    assert none.differences["exact_match"].mean == pytest.approx(expected)
    assert none.differences["exact_match"].n == 120 and dtr.differences["exact_match"].n == 119
    assert none.means["trigger"].mean == 0 and rag.means["trigger"].mean == 1
    assert 0 < dtr.means["trigger"].mean < 1 and none.means["recall"].n == 0
    assert rag.totals["searches"] == 120 and rag.finished


def test_the_baseline_can_be_named(runs: list[Path]) -> None:
    assert [row.baseline for row in summarise(runs, baseline="dtr")] == ["dtr", "dtr", ""]
    assert next(row.baseline for row in summarise(runs, baseline="other")) == ""


def test_two_runs_of_a_method_have_different_labels(tmp_path: Path) -> None:
    paths = [fabricate.run(tmp_path / name, "dtr", n=10) for name in ("low", "high")]
    other = fabricate.run(tmp_path / "nq", "dtr", n=10, dataset="nq")
    found = summarise([paths[0], other, paths[1]])
    assert [(row.dataset, row.label) for row in found] == [
        ("factbook", "dtr (low)"),
        ("factbook", "dtr (high)"),
        ("nq", "dtr"),
    ]
    assert found[1].differences["exact_match"].mean == 0


def test_only_shared_questions_are_paired(tmp_path: Path) -> None:
    long = fabricate.run(tmp_path / "long", "standard_rag", n=30)
    short = fabricate.run(tmp_path / "short", "no_retrieval", n=20)
    assert summarise([long, short])[1].differences["exact_match"].n == 20


def test_one_id_for_two_questions_is_refused(tmp_path: Path) -> None:
    a = fabricate.run(tmp_path / "a", "standard_rag", n=5)
    b = fabricate.run(tmp_path / "b", "no_retrieval", n=5)
    lines = [json.loads(line) for line in (b / "answers.jsonl").read_text().split("\n")[:-1]]
    lines[2]["question"] = "Another one?"
    (b / "metrics.json").unlink()  # it has the hash of the answers
    (b / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match="different questions under the id 'q00002'"):
        summarise([a, b])


def test_questions_without_gold_stand_beside_n_and_a_normalisation_in_the_label(
    tmp_path: Path,
) -> None:
    path = fabricate.run(tmp_path / "a", "dtr", n=5)
    lines = [json.loads(line) for line in (path / "answers.jsonl").read_text().splitlines()]
    lines[1]["gold_answers"] = []
    (path / "metrics.json").unlink()  # it has the hash of the answers
    (path / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    file = path / "config.json"
    file.write_text(
        file.read_text().replace('"config": {', '"config": {"normalization": "unicode", ', 1)
    )
    (row,) = summarise([path])
    assert row.label == "dtr, unicode" and (row.answered, row.without_gold) == (5, 1)
    assert row.means["exact_match"].n == 4
    assert count_text(row) == "5 (1 without gold, unfinished)"


def test_a_run_without_answers_has_a_row(tmp_path: Path) -> None:
    config = {"method": "cot", "dataset": {"name": "factbook"}}
    RunDirectory.open(tmp_path, config, environment={}).close()
    (row,) = summarise([tmp_path])
    assert (row.label, row.answered, row.finished) == ("cot", 0, False)
    assert row.means["exact_match"].n == 0
