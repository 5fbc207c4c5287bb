"""The papers' printed numbers, spot-checked against the printed tables."""

import math

import pytest

from jaxrag.evaluation import metrics, precision
from jaxrag.reproduction.printed.tables import AVERAGE, PAPERS, PrintedRow, printed_tables


def row(table: str, method: str, **wanted: object) -> PrintedRow:
    (found,) = (
        row
        for row in printed_tables()[table].rows
        if row.method == method and all(getattr(row, k) == v for k, v in wanted.items())
    )
    return found


def test_all_values_are_there() -> None:
    counts: dict[str, int] = {}
    for name, table in printed_tables().items():
        paper = name.partition("/")[0]
        counts[paper] = counts.get(paper, 0) + table.count
    assert counts == {"pairs": 287, "dtr": 706, "r3": 420, "errr": 80, "ars": 279}
    assert sum(counts.values()) == 1772


def test_spot_checks() -> None:
    one = row("pairs/table2", "standard_rag")
    assert one.values["nq"] == {"EM": 34.29, "F1": 36.06}
    assert (one.passages, one.retriever) == (3, "bge-large-en-v1.5")
    small = row("dtr/table2", "standard_rag", generator="Qwen2.5-7B-Instruct")
    assert small.values["nq"] == {"EM": 34.29, "F1": 44.0}
    assert row("errr/table2", "react").questions["hotpotqa"] == 500
    best = row("ars/table1", "ars_rag", generator="Llama3.3:70B")
    assert best.values["boolq"]["accuracy"] == 88.75
    r3 = row("r3/table1", "r3", generator="Llama3-8B", passages=1)
    assert r3.values["nq"] == {"accuracy": 47.8, "accuracy_delta_vs_baseline": 5.6}
    # sizes: those of the paper, where the row states none
    assert (one.questions["triviaqa"], best.questions["boolq"]) == (11_313, 400)
    assert "average" not in one.questions and not r3.questions


def test_an_empty_cell_is_none() -> None:
    empty = [r for r in printed_tables()["ars/table3"].rows if None in r.values["boolq"].values()]
    assert [r.other["penalty_lambda"] for r in empty] == [0.03]


@pytest.mark.parametrize("name", ["pairs/table2", "dtr/table2", "dtr/table6"])
def test_printed_averages_are_means(name: str) -> None:
    """Of the columns, to the second decimal; the two that are not are marked as doubtful."""
    wrong = []
    for one in printed_tables()[name].rows:
        for metric, printed in one.values[AVERAGE].items():
            values = [one.values[d][metric] or math.nan for d in one.datasets]
            digits = 0.051 if "ratio" in metric else 0.0151  # ratios are printed with one decimal
            if abs(sum(values) / len(values) - (printed or 0)) > digits:
                wrong.append((one.method, metric))
                assert one.doubts[f"{AVERAGE} {metric}"]
    assert wrong == ([("no_retrieval", "EM"), ("cot", "F1")] if name == "pairs/table2" else [])


@pytest.mark.parametrize("paper", PAPERS)
def test_printed_metrics_are_metrics_of_ours(paper: str) -> None:
    known = {*metrics.COLUMNS, *precision.NAMES}
    for name, table in printed_tables().items():
        if name.startswith(f"{paper}/"):
            assert set(table.ours.values()) <= known


def test_f1_of_pairs_is_the_mean_over_aliases_but_for_two_sets() -> None:
    table = printed_tables()["pairs/table2"]
    found = {name: table.metric_of("F1", name) for name in ("triviaqa", "2wiki", "hotpotqa", "")}
    mean = "f1_mean_over_aliases"
    assert found == {"triviaqa": mean, "2wiki": "f1", "hotpotqa": "f1", "": mean}
    assert printed_tables()["dtr/table2"].metric_of("F1", "triviaqa") == "f1"
    # ARS-RAG's accuracy is that of the whole answer, R3's that an answer contains a gold one
    assert printed_tables()["ars/table1"].metric_of("accuracy") == "exact_match"
    assert printed_tables()["r3/table1"].metric_of("accuracy") == "contains"
    assert printed_tables()["errr/table4"].metric_of("cost_usd") is None


@pytest.mark.parametrize("name", ["r3/table1", "r3/table4", "r3/table8"])
def test_printed_differences_are_to_the_row_that_is_named(name: str) -> None:
    """To the first decimal; two printed ones are not the difference of the printed values."""
    table, wrong = printed_tables()[name], []
    for one in table.rows:
        for dataset, cells in one.values.items():
            for metric, compared in table.differences.items():
                if metric not in cells:
                    continue
                assert one.minus is not None
                theirs = table.rows[one.minus].values[dataset][compared]
                expected = (cells[compared] or math.nan) - (theirs or math.nan)
                if abs(expected - (cells[metric] or 0)) > 0.051:
                    wrong.append((one.label, one.other["block"], dataset))
    transfer = ("Llama3-Instruct-8B + SiDR", "improving_llm", "arc_challenge")
    assert wrong == ([transfer, transfer] if name == "r3/table1" else [])
