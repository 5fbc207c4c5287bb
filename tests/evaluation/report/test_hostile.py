"""Pages, pictures, tables and traces of a run full of hostile texts: all of it stays text."""

import csv
import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report.document import document
from jaxrag.evaluation.report.export import csv_table, runs_csv, runs_latex
from jaxrag.evaluation.report.figure_files import write_figures
from jaxrag.evaluation.report.page import write_report
from jaxrag.evaluation.report.tables import Grid, markdown_table, terminal_table
from jaxrag.evaluation.report.trace import plain, trace_html, trace_steps, trace_text
from jaxrag.evaluation.report.training_page import write_training_report
from jaxrag.evaluation.summary import summarise
from jaxrag.experiments import explain, status
from jaxrag.retrieval.sidr.explain import Match, Term
from jaxrag.runs.retriever_comparison import table as retriever_table
from jaxrag.types import Passage
from tests import browser, hostile
from tests.core.test_printable import controls
from tests.evaluation import fabricate
from tests.evaluation.report.test_page import outline
from tests.evaluation.report.test_training_page import training

EVIL = hostile.ALL
FACTS = [(EVIL, EVIL)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("hostile")
    return [hostile.run(root / name) for name in ("one", "two")]


@pytest.fixture(scope="module")
def pages(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page, with hostile texts; "tame" has none."""
    root = tmp_path_factory.mktemp("pages")
    write_report(runs, root / "report.html")
    tame = [fabricate.run(root / name, name, n=12) for name in ("standard_rag", "dtr")]
    write_report(tame, root / "tame.html")
    trained = training(root / "a", right=([1, 0], [1, 1]))
    config = json.loads((trained / "config.json").read_text())
    config["config"] |= {EVIL: EVIL}
    (trained / "config.json").write_text(json.dumps(config))
    renamed = trained.rename(root / EVIL.replace("/", "⁄").replace("\0", "")[:60])
    write_training_report([renamed], root / "training.html")
    grid = Grid((EVIL, EVIL), [(EVIL, EVIL)])
    whole = document(
        title=EVIL, lede=EVIL, facts=FACTS, sections=grid.html(), reading=(EVIL,),
        markdown=grid.markdown(), configs="",
    )  # fmt: skip
    (root / "reproduced.html").write_bytes(whole.encode())
    (root / "trace.html").write_text(f"<!doctype html><meta charset=utf-8>{_trace_html(runs[0])}")
    names = ("report", "training", "reproduced", "trace", "tame")
    return {name: root / f"{name}.html" for name in names}


def _steps(run: Path) -> list[Any]:
    record = read_run(run).records[0]
    return trace_steps(record["trace"], {}, record["prediction"])


def _trace_html(run: Path) -> str:
    return trace_html(EVIL, _steps(run), {EVIL: 1})


@pytest.mark.parametrize("name", ["report", "training", "reproduced", "trace"])
def test_a_page_has_no_element_or_attribute_of_a_text(name: str, pages: dict[str, Path]) -> None:
    page = pages[name].read_text("utf-8")
    found, tame = (outline(pages[one].read_text("utf-8")).tags for one in (name, "tame"))
    assert {tag for tag, _ in found} <= {tag for tag, _ in tame} | {"br", "code", "h3", "i", "wbr"}
    known = {attribute for _, attributes in tame for attribute in attributes} | {"style"}
    assert {attribute for _, attributes in found for attribute in attributes} <= known
    assert not [a for a in known if a.startswith("on") or a in ("src", "action", "srcdoc")]
    assert [tag for tag, _ in found].count("script") == (2 if name == "report" else 0)
    assert not controls(page) and hostile.HOST in page


def test_figures_are_xml_without_scripts_or_links(pages: dict[str, Path], tmp_path: Path) -> None:
    for file in write_figures(pages["report"], tmp_path / "figures"):
        assert file.parent == tmp_path / "figures"
        for element in ElementTree.parse(file).iter():
            assert element.tag.rpartition("}")[2] in ("svg", "style", "rect", "text", "title", "g",
                                                      "line", "path", "circle")  # fmt: skip
            assert not [a for a in element.keys() if a.startswith("on") or "href" in a]  # noqa: SIM118


def test_markdown_has_only_tables_and_bold_names(pages: dict[str, Path]) -> None:
    for name in ("report", "training"):
        html = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(
            pages[name].with_suffix(".md").read_text()
        )
        tags = set(re.findall(r"<([a-z0-9]+)", html))
        assert tags == {"table", "thead", "tbody", "tr", "th", "td", "p"} | (
            {"strong"} if name == "report" else set()
        )


def test_csv_has_no_formulas_and_every_cell_in_its_place(runs: list[Path]) -> None:
    rows = list(csv.reader(io.StringIO(runs_csv(summarise(runs)))))
    assert len(rows) == 3 and {len(row) for row in rows} == {len(rows[0])}
    for cell in (cell for row in rows for cell in row):
        assert not controls(cell) and "\n" not in cell
        assert not cell.lstrip().startswith(tuple("=+-@")) or math.isfinite(float(cell))
    formulas = [hostile.TEXTS["spreadsheet"], "@SUM(A1)", "\t=1", "+1", "-1+cmd|' /C x'!A0"]
    for line in csv.reader(io.StringIO(csv_table(("a",), [[text] for text in formulas]))):
        assert line[0] == "a" or line[0].startswith("'")


def test_latex_has_only_the_commands_of_its_tables(runs: list[Path]) -> None:
    text = runs_latex(summarise(runs))
    commands = set(re.findall(r"\\([A-Za-z]+)", text))
    tables = {"begin", "end", "toprule", "midrule", "bottomrule", "scriptsize"}
    characters = {"symbol", "Delta"} | {
        f"text{name}"
        for name in ("backslash", "asciitilde", "asciicircum", "less", "greater", "bar")
    }
    assert commands <= tables | characters | {"usepackage"}  # which a comment names
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    bare = re.sub(r"\\[{}$&#_%]", "", body.replace(r"$\Delta$", ""))
    assert not set("$#_%^~") & set(bare) and bare.count("{") == bare.count("}")
    assert not controls(text)


def _tables(runs: list[Path]) -> dict[str, Callable[[], Any]]:
    term = Term(EVIL, 2.0, 3.0, 1.0, True, True)
    match = Match(EVIL, Passage(EVIL, EVIL, EVIL), 6.0, (term,))
    row = {"data": EVIL, "index": EVIL, "questions": 1, "recall@1": [0.5, 0.5, 0.5, 1]}
    return {
        "runs": lambda: terminal_table(summarise(runs)),
        "grid": lambda: Grid((EVIL, EVIL), [(EVIL, EVIL)]).terminal(),
        "explanation": lambda: explain.table(match, EVIL, 9),
        "trace": lambda: trace_text(EVIL, _steps(runs[0]), {EVIL: 1}),
        "retrievers": lambda: retriever_table([row, {**row, "index": f"2{EVIL}"}]),
    }


@pytest.mark.parametrize("name", ["runs", "grid", "explanation", "trace", "retrievers"])
def test_a_terminal_gets_no_codes_but_our_colours(name: str, runs: list[Path]) -> None:
    shown = _tables(runs)[name]()
    bare, coloured = io.StringIO(), io.StringIO()
    Console(file=bare, width=120, force_terminal=False).print(shown)
    Console(file=coloured, width=120, force_terminal=True, color_system="truecolor").print(shown)
    assert not controls(bare.getvalue())
    assert not controls(re.sub(r"\x1b\[[0-9;]*m", "", coloured.getvalue()))
    assert "⚠" not in bare.getvalue()  # :warning: is no emoji of ours


def test_status_of_a_directory_with_markup_in_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    path = hostile.run(tmp_path / "[red]run[/nothing] \x1b[31m")
    assert status.main(["status", str(path)]) == 0
    shown = capsys.readouterr().out
    assert not controls(shown) and "".join(shown.split()).count("[/nothing]") == 1


def test_plain_text_of_a_trace_has_no_codes(runs: list[Path]) -> None:
    assert not controls(plain(trace_text(EVIL, _steps(runs[0]), {EVIL: 1})))
    assert "**" in markdown_table(summarise(runs))


@pytest.mark.slow
@browser.needed
@pytest.mark.parametrize("name", ["report", "training", "reproduced", "trace"])
def test_in_a_browser_no_script_runs_and_no_request_leaves(
    name: str, pages: dict[str, Path], tmp_path: Path
) -> None:
    """Escaping alone suffices: the page's policy is taken away, and everything is opened."""
    page = browser.without_policy(pages[name].read_text("utf-8"))
    seen = browser.visit(page + browser.OPEN_ALL, tmp_path)
    assert "data-opened" in seen.dom and not seen.ran and not seen.asked
    if name == "report":
        assert "12 of 12 questions" in seen.dom and seen.dom.count('class="trace ') == 24
        assert seen.title in outline(page).text


@pytest.mark.slow
@browser.needed
def test_the_policy_stops_what_is_not_escaped(pages: dict[str, Path], tmp_path: Path) -> None:
    page = pages["tame"].read_text("utf-8").replace("</main>", f"{hostile.UNESCAPED}</main>")
    seen = browser.visit(page, tmp_path / "kept")
    assert "12 of 12 questions" in seen.dom and not seen.ran and not seen.asked
    seen = browser.visit(browser.without_policy(page), tmp_path / "taken")
    assert seen.ran and seen.asked  # the test can fail
