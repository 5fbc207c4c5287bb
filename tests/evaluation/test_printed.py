"""The papers' printed numbers, spot-checked against the printed tables."""

import math

import pytest

from jaxrag.evaluation.printed import AVERAGE, PrintedRow, in_percent, printed_tables


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
    assert in_percent(0.391, "fraction") == pytest.approx(39.1) and in_percent(3.0, "count") == 3


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
