"""Rows of several runs: grouping, labels, baselines and pairing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxrag.api.results import RunResults
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report.page import page
from jaxrag.evaluation.report.tables import count_text, markdown_table
from jaxrag.evaluation.summary import summarise
from jaxrag.types import InputError
from tests.evaluation import fabricate


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    methods = ("no_retrieval", "standard_rag", "dtr")
    return [fabricate.run(root / name, name, n=120, seed=i) for i, name in enumerate(methods)]


def edit(path: Path, change: Callable[[Any], object], *, config: bool = False) -> None:
    """Changes each line of a run's answers, or its config; without the hash of the answers."""
    (path / "metrics.json").unlink(missing_ok=True)
    file = path / ("config.json" if config else "answers.jsonl")
    text = file.read_text()
    lines = [json.loads(line) for line in ([text] if config else text.split("\n")[:-1])]
    for line in lines:
        change(line["config"] if config else line)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


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


def test_equal_counts_and_retrieves_without_a_gate_have_no_interval(runs: list[Path]) -> None:
    none, _, _ = summarise(runs)
    assert none.means["searches"][:3] == (0, 0, 0) and none.means["llm_calls"][:3] == (1, 1, 1)
    assert none.means["trigger"][:3] == (0, 0, 0)
    recorded = json.loads((runs[0] / "metrics.json").read_text())["means"]
    assert recorded["searches"]["high"] == 0 < recorded["trigger"]["high"]


def test_recall_of_a_gated_method_stands_beside_the_baseline_on_the_same_questions(
    runs: list[Path],
) -> None:
    _, _, dtr = summarise(runs)
    asked = {
        r["question_id"] for r in read_run(runs[2]).records if "searches" in r.get("trace", ())
    }
    found = [
        float(record["gold_passages"][0] in record["trace"]["selected"]["ids"])
        for record in read_run(runs[1]).records
        if record["question_id"] in asked
    ]
    same = dtr.baseline_on_same["recall"]
    assert same.n == len(found) < 120 and same.mean == pytest.approx(sum(found) / len(found))
    text = f"(standard_rag on these {len(found)}: {100 * same.mean:.1f})"
    assert text in page([read_run(path) for path in runs], summarise(runs))
    assert text in markdown_table(summarise(runs))


def test_a_line_says_where_interval_and_test_disagree(tmp_path: Path) -> None:
    paths = [fabricate.run(tmp_path / name, name, n=8) for name in ("standard_rag", "no_retrieval")]
    edit(paths[0], lambda line: line.update(prediction="wrong"))
    right = ("q00000", "q00001", "q00002", "q00003")
    edit(
        paths[1],
        lambda line: line.update(
            prediction=line["gold_answers"][0] if line["question_id"] in right else "wrong"
        ),
    )
    _, found = summarise(paths)
    assert found.differences["exact_match"].low > 0 and found.differences["exact_match"].p == 0.125
    assert any("with 8 questions" in note and "disagree" in note for note in found.notes)


def test_the_baseline_can_be_named(runs: list[Path]) -> None:
    assert [row.baseline for row in summarise(runs, baseline="dtr")] == ["dtr", "dtr", ""]
    assert [row.baseline for row in summarise(runs, baseline=f"{runs[2]}/")] == ["dtr", "dtr", ""]
    with pytest.raises(InputError, match=r"'other' is none of the runs: no_retr"):
        summarise(runs, baseline="other")


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


def test_one_id_for_two_questions_is_refused(tmp_path: Path) -> None:
    a = fabricate.run(tmp_path / "a", "standard_rag", n=5)
    b = fabricate.run(tmp_path / "b", "no_retrieval", n=5)
    other = {"question": "Another one?"}
    edit(b, lambda line: line.update(other if line["question_id"] == "q00002" else {}))
    with pytest.raises(InputError, match="different questions under the id 'q00002'"):
        summarise([a, b])


CORPORA = "corpora differ, so no question is paired"


@pytest.mark.parametrize(
    ("change", "other", "paired", "says"),
    [
        (None, {}, 20, ""),
        ({"gold_answers": ["Oslo"]}, {}, 0, "gold answers differ for 20 of 20 shared questions"),
        # the order of aliases says nothing
        ({"gold_answers": [*"ba"]}, {"answers": {"gold_answers": [*"ab"]}}, 20, ""),
        ({"gold_passages": ["p"]}, {}, 20, "relevant passages differ for 20 of 20"),
        (
            {"retriever": {"passages": {"identity": "a"}}},
            {"retriever": {"passages": "b"}},
            0,
            CORPORA,
        ),
        ({"retriever": {"passages": {"identity": "a"}}}, {"retriever": {"passages": "a"}}, 20, ""),
        (
            {"retriever": {"matrix": {"passages": "a"}}},
            {"retriever": {"passages": "b"}},
            0,
            CORPORA,
        ),
        ({"retriever": {"passages": "a"}}, {"retriever": None}, 20, ""),
        (
            {"dataset": {"passages": 3}},
            {"dataset": {"passages": 4}},
            20,
            "in their numbers of passages",
        ),
        ({"dataset": {"identity": "a"}}, {}, 20, "data sets differ in what"),
        ({"dataset": {"identity": None}}, {}, 20, ""),
    ],
)
def test_what_differs_in_the_data_of_two_runs_is_told_and_not_paired(
    change: Any, other: Any, paired: int, says: str, tmp_path: Path
) -> None:
    paths = [fabricate.run(tmp_path / name, "standard_rag", n=20) for name in ("a", "b")]
    for path, given in zip(paths, (change or {}, other), strict=True):
        answers = given.get("answers", {k: v for k, v in given.items() if k.startswith("gold")})
        config = {k: v for k, v in given.items() if k in ("retriever", "dataset")}
        edit(path, lambda line, new=answers: line.update(new))
        merged = {
            "dataset": {"name": "factbook", "identity": "sha256:4567"} | config.pop("dataset", {})
        }
        edit(path, lambda line, new=merged | config: line.update(new), config=True)
    _, row = summarise(paths)
    assert row.differences["exact_match"].n == paired
    assert len(row.notes) == bool(says) and says in "".join(row.notes)
    for shown in (page(list(map(read_run, paths)), summarise(paths)), markdown_table([row])):
        assert says in shown
    assert says in " ".join(str(RunResults((row,))).split())


def test_runs_of_other_questions_alone_or_of_other_normalisations_are_told(tmp_path: Path) -> None:
    paths = [fabricate.run(tmp_path / name, "cot", n=20) for name in ("a", "b", "c")]
    edit(paths[1], lambda line: line.update(question_id="x" + line["question_id"]))
    edit(paths[2], lambda config: config.update(normalization="unicode"), config=True)
    _, other, form = summarise(paths)
    assert other.notes[0].endswith("they share no question, so none is paired.")
    assert other.differences["exact_match"].n == 0
    assert "normalisations of answers differ" in form.notes[0]


def test_other_questions_of_the_same_data_are_no_difference(tmp_path: Path) -> None:
    paths = [fabricate.run(tmp_path / name, "cot", n=n) for name, n in (("a", 30), ("b", 20))]
    edit(paths[0], lambda config: config["dataset"].update(identity="other"), config=True)
    row = summarise(paths)[1]
    assert row.notes == () and row.differences["exact_match"].n == 20


def test_questions_without_gold_stand_beside_n_and_a_normalisation_in_the_label(
    tmp_path: Path,
) -> None:
    path = fabricate.run(tmp_path / "a", "dtr", n=5)
    none = {"gold_answers": []}
    edit(path, lambda line: line.update(none if line["question_id"] == "q00001" else {}))
    edit(path, lambda config: config.update(normalization="unicode"), config=True)
    (row,) = summarise([path])
    assert row.label == "dtr, unicode" and (row.answered, row.without_gold) == (5, 1)
    assert row.means["exact_match"].n == 4
    assert count_text(row) == "5 (1 without gold, unfinished)"
