"""Whether a search was needed, on six questions that are worked by hand."""

from pathlib import Path
from typing import Any

import pytest

from jaxrag.evaluation.need import LOST, gated_needs, lost, motivation, need, needs, places
from jaxrag.evaluation.records import RunDirectory, RunRecords, read_run
from jaxrag.evaluation.report.tables import need_grid
from jaxrag.experiments.cases import main
from jaxrag.types import InputError
from tests.evaluation import fabricate
from tests.evaluation.fabricate import ENVIRONMENT

# of each question: retrieved, right, right directly, right by Standard RAG
QUESTIONS = {
    "rightly skipped": (0, 1, 1, 0),
    "wrongly skipped": (0, 0, 0, 1),
    "skipped in vain": (0, 0, 0, 0),
    "repaired": (1, 1, 0, 0),
    "needless": (1, 1, 1, 1),
    "searched in vain": (1, 0, 0, 1),
    "harmed": (1, 0, 1, 1),
}


def record(name: str, right: int, searched: int, read: str = "gold") -> dict[str, Any]:
    """The gold passage is the second that is found; what is read is ``read``."""
    trace: dict[str, Any] = {"gate": {"retrieve": bool(searched)}, "searches": []}
    if searched:
        trace |= {"searches": [{"ids": ["other", "gold"]}], "selected": {"ids": [read]}}
    return {
        "question_id": name, "question": f"{name}?", "gold_answers": ["Lima"],
        "gold_passages": ["gold"], "prediction": "Lima" if right else "Quito",
        "trace": trace, "cost": {},
    }  # fmt: skip


def written(path: Path, method: str, records: list[dict[str, Any]]) -> RunRecords:
    config = {"method": {"name": method}, "dataset": {"name": "nq"}}
    with RunDirectory.open(path, config, environment=ENVIRONMENT) as directory:
        directory.append(records)
        directory.finish([str(one["question_id"]) for one in records])
    return read_run(path)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[RunRecords, RunRecords, RunRecords]:
    rows = QUESTIONS.items()
    # Standard RAG reads the gold passage of all but the last two questions
    last = [*QUESTIONS][-2:]
    standard = [record(n, q[3], 1, "other" if n in last else "gold") for n, q in rows]
    return (
        written(tmp_path / "dtr", "dtr", [record(name, q[1], q[0]) for name, q in rows]),
        written(tmp_path / "no", "no_retrieval", [record(name, q[2], 0) for name, q in rows]),
        written(tmp_path / "rag", "standard_rag", standard),
    )


def test_every_combination_has_one_kind() -> None:
    for wanted, question in QUESTIONS.items():
        assert need(*map(bool, question)) == wanted
    # whether Standard RAG is right matters only where a skipped question is wrong
    assert need(True, True, False, True) == "repaired" and need(False, True, True, True)


def test_questions_of_three_runs(runs: tuple[RunRecords, RunRecords, RunRecords]) -> None:
    assert needs(*runs) == {name: name for name in QUESTIONS}


def test_where_gold_passages_are_lost() -> None:
    assert lost(record("a", 0, 1)) == "not answered"
    assert lost(record("a", 0, 1, read="other")) == "not selected"
    missing = record("a", 0, 1)
    missing["trace"]["searches"] = [{"ids": ["other"]}]
    missing["trace"]["selected"] = {"ids": ["other"]}
    assert lost(missing) == "not found"
    assert lost(record("a", 1, 1)) == lost(record("a", 0, 0)) == ""


def test_dtr_eq_1(runs: tuple[RunRecords, RunRecords, RunRecords]) -> None:
    """3 of 7 right directly; gold read for 5, of which 2 are right: 5/7 x 2/5 - 3/7 = -1/7."""
    found = motivation(runs[1], runs[2])
    assert found is not None
    assert (found.p_param.mean, found.p_ret.mean, found.p_gen.mean) == pytest.approx(
        (3 / 7, 5 / 7, 2 / 5)
    )
    assert (found.gain.mean, found.gain.n) == (pytest.approx(-1 / 7), 7)
    unmarked = [{**one, "gold_passages": []} for one in runs[2].records]
    assert motivation(runs[1], runs[2]._replace(records=unmarked)) is None
    assert places(runs) == LOST and not places([runs[2]._replace(records=unmarked)])


def test_the_command(tmp_path: Path, runs: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases", str(tmp_path), "--kinds=harmed,repaired"]) == 0
    told = capsys.readouterr().out
    assert "was the search needed?" in told and "P_ret 71.4" in told
    assert "harmed: harmed 'harmed?'; its answer 'Quito'" in " ".join(told.split())
    assert "needless:" not in told
    with pytest.raises(InputError, match="--kinds=lost: give some of rightly skipped"):
        main(["cases", str(tmp_path), "--kinds=lost"])
    with pytest.raises(InputError, match="no runs on nq are standard_rag"):
        main(["cases", str(tmp_path / "dtr"), str(tmp_path / "no")])


def test_only_gated_runs_beside_both_others_have_classes(tmp_path: Path) -> None:
    names = ("no_retrieval", "standard_rag", "dtr")
    runs = [read_run(fabricate.run(tmp_path / name, name, n=60)) for name in names]
    none, rag, dtr = gated_needs(runs)
    assert none == rag == {} and len(dtr) == 59  # one question failed
    assert gated_needs(runs[1:]) == [{}, {}] and need_grid(runs[1:], names[1:], [{}, {}]) is None
    grid = need_grid(runs, names, gated_needs(runs))
    assert grid is not None and len(grid.rows) == 1
    numbers = [int(cell) for cell in grid.rows[0][1:]]
    assert numbers[0] == sum(numbers[1:4]) and numbers[4] == sum(numbers[5:9])
    assert numbers[0] + numbers[4] == 59
    assert sum(numbers[9:]) == numbers[7] + numbers[8]  # in vain or harmed
