"""Whether a search was needed: classes by hand, and of runs."""

from pathlib import Path

import pytest

from jaxrag.evaluation.need import lost, need, needs
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report.tables import need_grid
from tests.evaluation import fabricate


@pytest.mark.parametrize(
    ("retrieves", "right", "direct", "rag", "kind"),
    [
        (False, True, True, True, "rightly skipped"),
        (False, True, True, False, "rightly skipped"),  # a search would have harmed
        (False, False, False, True, "wrongly skipped"),
        (False, False, False, False, "skipped in vain"),
        (True, True, False, False, "repaired"),
        (True, True, True, True, "needless"),
        (True, False, False, True, "searched in vain"),  # Standard RAG reads better
        (True, False, True, True, "harmed"),
    ],
)
def test_classes(retrieves: bool, right: bool, direct: bool, rag: bool, kind: str) -> None:
    assert need(retrieves=retrieves, right=right, direct=direct, rag=rag) == kind


@pytest.mark.parametrize(
    ("ids", "kept", "answer", "where"),
    [
        (["a", "b"], ["b"], "Rome", "gold not found"),
        (["a", "p1"], ["a"], "Rome", "gold not selected"),
        (["a", "p1"], ["p1"], "Rome", "gold not read"),
        (["a", "b"], ["b"], "Oslo", ""),  # right all the same
    ],
)
def test_where_gold_was_lost(ids: list[str], kept: list[str], answer: str, where: str) -> None:
    trace = {"searches": [{"ids": ids, "scores": [1, 0]}], "selected": {"ids": kept}}
    record = {"question_id": "1", "gold_answers": ["Oslo"], "gold_passages": ["p1"]}
    assert lost(record | {"prediction": answer, "trace": trace, "cost": {}}) == where


def test_only_gated_runs_beside_both_others_have_classes(tmp_path: Path) -> None:
    names = ("no_retrieval", "standard_rag", "dtr")
    runs = [read_run(fabricate.run(tmp_path / name, name, n=60)) for name in names]
    none, rag, dtr = needs(runs)
    assert none == rag == {} and len(dtr) == 59  # one question failed
    assert needs(runs[1:]) == [{}, {}] and need_grid(runs[1:], names[1:]) is None
    grid = need_grid(runs, names)
    assert grid is not None and len(grid.rows) == 1
    numbers = [int(cell) for cell in grid.rows[0][1:]]
    assert numbers[0] == sum(numbers[1:4]) and numbers[4] == sum(numbers[5:9])
    assert numbers[0] + numbers[4] == 59
    wrong = numbers[7] + numbers[8]  # in vain or harmed
    assert sum(numbers[9:]) == wrong
