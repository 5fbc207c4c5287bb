"""The printed tables."""

import math
from pathlib import Path

import pytest
from rich.console import Console

from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.report.export import runs_csv
from jaxrag.evaluation.report.tables import (
    difference_text,
    markdown_table,
    number,
    p_text,
    terminal_table,
    with_interval,
)
from jaxrag.evaluation.significance import Difference, Interval
from jaxrag.evaluation.summary import Row, summarise
from tests.evaluation import fabricate


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    root = tmp_path_factory.mktemp("runs")
    paths = [
        fabricate.run(root / f"{dataset} {method}", method, n=60, dataset=dataset)
        for dataset in ("factbook", "[b] a|b <i>")
        for method in ("standard_rag", "dtr")
    ]
    return summarise(paths)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("exact_match", 0.12345, "12.3"),
        ("llm_calls", 2.345, "2.35"),
        ("new_tokens", 23.45, "23.4"),
        ("prompt_tokens", 12345.6, "12,346"),
        ("recall", math.nan, "–"),
    ],
)
def test_numbers_have_the_digits_that_matter(name: str, value: float, text: str) -> None:
    assert number(name, value) == text


def test_intervals_and_differences_as_text() -> None:
    assert with_interval("f1", Interval(0.5, 0.4, 0.6, 9)) == ("50.0", "[40.0, 60.0]")
    assert with_interval("f1", Interval(math.nan, math.nan, math.nan, 0)) == ("–", "")
    found = Difference(-0.02, -0.05, 0.01, 9, 0.2)
    assert difference_text(found) == ("-2.0", "[-5.0, +1.0] p=0.20")
    assert difference_text(None) == ("–", "")
    assert [p_text(p) for p in (1e-9, 0.0123, 0.5)] == ["<0.001", "=0.012", "=0.50"]


def test_retrieves_has_an_interval_with_a_gate_only(rows: list[Row]) -> None:
    always, gated = (with_interval("trigger", row.means["trigger"]) for row in rows[:2])
    assert always == ("100.0", "") and gated[1].startswith("[")
    assert runs_csv(rows[:1], ["retrieves"]).endswith(",100,,\n")


def test_markdown_is_rectangular_and_escaped(rows: list[Row]) -> None:
    text = markdown_table(rows)
    tables = [line for line in text.split("\n") if line.startswith("|")]
    assert len(tables) == 2 * (2 + 2)
    assert len({line.replace("\\|", "").count("|") for line in tables}) == 1
    assert "**factbook**" in text and "**[b] a\\|b &lt;i>**" in text
    assert "| 59 (1 error) |" in text and "| baseline |" in text
    em = rows[0].means["exact_match"]
    assert f"{100 * em.mean:.1f} [{100 * em.low:.1f}, {100 * em.high:.1f}]" in text


def test_terminal_table_fits_and_shows_both_data_sets(rows: list[Row]) -> None:
    text = _render(rows)
    assert "factbook" in text and "[b] a|b <i>" in text and "ΔEM" in text and "…" not in text
    lines = text.split("\n")
    assert max(len(line.rstrip()) for line in lines[:-8]) <= 104
    assert "a|b" not in _render(rows[:2])
    at = next(number for number, line in enumerate(lines) if line.strip().startswith("dtr"))
    em, delta = rows[1].means["exact_match"], rows[1].differences["exact_match"]
    assert lines[at].split()[1] == f"{100 * em.mean:.1f}" and lines[at].rstrip().endswith(
        f"{100 * delta.mean:+.1f} p{p_text(delta.p)}"
    )
    ends = f"{100 * em.low:.1f}–{100 * em.high:.1f}"
    assert lines[at + 1].split()[:6] == ["n", "=", "59", "(1", "error)", ends]
    assert not lines[at + 2].startswith(" n =")  # two lines
    assert "ΔEM" not in _render(rows[:1])  # nothing to compare with
    assert "baseline" in text and "baseline" not in _render(rows[:1]).partition("Below")[0]


def _render(rows: list[Row]) -> str:
    console = Console(width=106)
    with console.capture() as capture:
        console.print(terminal_table(rows))
    return capture.get()


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    config = {"method": {"name": "dtr"}, "dataset": {"name": "factbook"}}
    RunDirectory.open(tmp_path, config, environment={}).close()
    rows = summarise([tmp_path])
    assert "unfinished" in _render(rows) and "0 (unfinished)" in markdown_table(rows)
