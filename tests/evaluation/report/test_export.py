"""Tables as CSV and LaTeX: the values, and names that must stay text."""

import csv
import io
import math
import sys
import types

import pytest

from jaxrag.api.results import RunResults
from jaxrag.evaluation.report.export import csv_table, latex_table, runs_csv, runs_latex
from jaxrag.evaluation.report.tables import check_columns
from jaxrag.evaluation.summary import Row, summarise
from jaxrag.types import InputError
from tests.evaluation import fabricate


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    root = tmp_path_factory.mktemp("runs")
    return summarise(
        [
            fabricate.run(root / f"{place} {method}", method, n=40, dataset=dataset)
            for place, dataset in enumerate(("=1+1", "50_%"))
            for method in ("standard_rag", "dtr")
        ]
    )


def test_csv_by_hand() -> None:
    table = csv_table(("=a", "x"), [('b, "c"\n', 0.5), ("-d", math.nan), ("e", None), ("f", -3)])
    # quoted where CSV needs it; -3 is a number, "-d" would be a formula
    assert table == '\'=a,x\n"b, ""c"" ",0.5\n\'-d,\ne,\nf,-3\n'


def test_latex_by_hand() -> None:
    table = latex_table(("a_1", "x"), [("[b]", ("1.5", "[1, 2]")), ("*", ("2.0", ""))])
    assert table.splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"a\_1 & x \\",
        r"\midrule",
        r"{}[b] & 1.5 {\scriptsize [1, 2]} \\",  # \\[b] would be a length
        r"{}* & 2.0 \\",  # \\* is a command of its own
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_of_runs_has_every_value(rows: list[Row]) -> None:
    lines = list(csv.DictReader(io.StringIO(runs_csv(rows))))
    assert [line["data set"] for line in lines] == ["'=1+1"] * 2 + ["50_%"] * 2
    for line, row in zip(lines, rows, strict=True):
        found = row.means["exact_match"]
        for heading, value in zip(("EM %", "EM % low", "EM % high"), found[:3], strict=True):
            assert float(line[heading]) == pytest.approx(100 * value, rel=1e-5)
        assert float(line["LLM calls"]) == pytest.approx(row.means["llm_calls"].mean, rel=1e-5)
        if row.baseline:
            change = row.differences["f1"]
            assert float(line["ΔF1 low"]) == pytest.approx(100 * change.low, rel=1e-5, abs=1e-9)
            assert float(line["p of ΔF1"]) == pytest.approx(change.p, rel=1e-5)
        else:
            assert line["ΔF1"] == line["p of ΔF1"] == ""


def test_latex_of_runs(rows: list[Row]) -> None:
    text = runs_latex(rows)
    assert text.count(r"\begin{tabular}") == 2 and r"% 50\_\%" in text
    own = rows[1].means["exact_match"]
    cell = rf"{100 * own.mean:.1f} {{\scriptsize [{100 * own.low:.1f}, {100 * own.high:.1f}]}}"
    assert cell in text and r"EM \%" in text and r"$\Delta$EM" in text


def test_columns_match(rows: list[Row]) -> None:
    bodies = [line for line in runs_latex(rows).splitlines() if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in bodies} == {bodies[0].count("&")}


def test_a_data_frame_has_the_columns_of_the_csv(
    rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    def frame(lines: list, columns: list[str]) -> list[dict]:
        return [dict(zip(columns, line, strict=True)) for line in lines]

    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=frame))
    found = RunResults(tuple(rows)).to_pandas()
    assert list(found[0]) == runs_csv(rows).splitlines()[0].split(",")
    assert found[1]["method"] == rows[1].label and found[0]["p of ΔEM"] is None
    assert found[1]["EM %"] == 100 * rows[1].means["exact_match"].mean
    monkeypatch.setitem(sys.modules, "pandas", None)  # not installed
    with pytest.raises(InputError, match=r"to_pandas needs pandas: pip install pandas"):
        RunResults(tuple(rows)).to_pandas()


def test_columns_are_chosen_in_their_order(rows: list[Row]) -> None:
    columns = ["retrieves", "em", "delta_em"]
    heads = runs_csv(rows, columns).splitlines()[0].split(",")
    assert heads[6::3] == ["retrieves %", "EM %", "ΔEM", "p of ΔEM"]
    line = next(line for line in runs_latex(rows, columns).splitlines() if "method" in line)
    assert line == r"method & n & retrieves \% & EM \% & $\Delta$EM \\"
    assert "ΔF1" in runs_csv(rows, ["delta_f1"]) and "Delta" not in runs_latex(rows, ["f1"])
    with pytest.raises(InputError, match="no column 'retrieve'; nearest: retrieves"):
        check_columns(["em", "retrieve"])
