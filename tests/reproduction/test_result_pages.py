"""The matrix of a table: what its cells show and open to, and the command of each."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.claims import CLAIMS
from jaxrag.engines.local.engine import Local
from jaxrag.engines.server import Server
from jaxrag.evaluation.significance import Interval
from jaxrag.reproduction.cells import as_json
from jaxrag.reproduction.measures import describe_runs
from jaxrag.reproduction.printed.comparison import Cell, Column
from jaxrag.reproduction.printed.measured import Measured
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.result_pages import command, write_pages
from jaxrag.reproduction.work import chosen, kinds_of
from tests.evaluation.fabricate import ENVIRONMENT
from tests.reproduction.test_cells import write

NAME = "dtr/table2"
PRINTED = printed_tables()[NAME]
NQ = Column("paper-nq", ("nq",))
COMMAND = f"jaxrag reproduce {NAME} --scale=paper --reader=a.gguf"


def cell(method: str, metric: str, right: list[int], **changes: Any) -> Cell:
    """A cell of the 7B model's rows."""
    number = [row.method for row in PRINTED.rows].index(method)
    values = {f"q{i}": float(value) for i, value in enumerate(right)}
    mean = sum(right) / len(right)
    ours = Measured(Interval(mean, mean - 0.1, mean + 0.1, len(right)), values)
    one = Cell(number, NQ, metric, PRINTED.units[metric], None, ours, "", False, "big<b>", "dense")
    return one._replace(**changes)


def page(path: Path, *cells: Cell, **changes: Any) -> str:
    record = {
        "name": NAME, "scale": "paper", "date": "2026-12-01", "command": COMMAND, "limit": 500,
        "substitutes": ["big for all generators"], "parameters": {"big": 1.5}, "only": [],
        "environment": ENVIRONMENT, **as_json(cells, PRINTED), **changes,
    }  # fmt: skip
    file = path / "work" / "paper-big" / "dtr-table2.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record))
    write_pages(ALL, CLAIMS, path / "work", path / "pages")
    return (path / "pages" / "dtr.md").read_text()


def cells_of(text: str) -> dict[str, list[str]]:
    """The cells of the page's table, by the name of the row."""
    rows = re.findall(r"<tr><td>(.*?)</td>(<td>.*?)</tr>", text)
    return {name: re.findall(r"<td>(.*?)</td>", cells) for name, cells in rows}


RAG = cell("standard_rag", "EM", [0] * 20)
DTR = cell("dtr_u0.001", "EM", [1] * 10 + [0] * 10, setting="u = 0.2", seconds=90.0)


def test_a_cell_opens_to_what_it_came_from(tmp_path: Path) -> None:
    trigger = cell("dtr_u0.001", "trigger_ratio", [1] * 20, setting="u = 0.2", seconds=90.0)
    text = page(tmp_path, RAG, DTR, trigger)
    (rag,), (dtr,) = cells_of(text).values()
    assert list(cells_of(text)) == ["Standard RAG, big&lt;b&gt;", "DTR (u = 0.2), big&lt;b&gt;"]
    assert rag.startswith("<details><summary>0.0</summary>EM, percent: 0.0 [-10.0, 10.0], n = 20<")
    summary, *lines = dtr.removesuffix("</details>").replace("</summary>", "<br>").split("<br>")
    # 10 wins, no loss: p = 2 / 2^10, times 1 (a claim of one set)
    assert lines[1].startswith("nq, against Standard RAG: +50.00 [+") and lines[1].endswith(
        ", n = 20, p = 0.002: same direction"
    )
    assert [summary, lines[0], *lines[2:]] == [
        "<details><summary>50.0\u00a0/\u00a0100.0", "EM, percent: 50.0 [40.0, 60.0], n = 20",
        "trigger ratio, percent: 100.0 [90.0, 110.0], n = 20",
        "big&lt;b&gt;; dense; u = 0.2", "1.5 minutes",
        f"<code>{COMMAND} --only=dtr_u0.001,nq,Qwen2.5-7B-Instruct</code>",
        '<a href="paper-big/dtr-table2.json">record</a>',
    ]  # fmt: skip
    assert "printed" not in text.partition("<table>")[2]
    head = "**paper-big**: scale paper; big for all generators; first 500 questions. "
    assert head in text and "Not run: No Retrieval, Qwen2.5-7B-Instruct; " in text
    assert "[Record](paper-big/dtr-table2.json)" in text


def test_cells_of_what_was_not_run_are_empty(tmp_path: Path) -> None:
    webq = DTR._replace(column=Column("paper-webq", ("webq",)), ours=None)
    text = page(tmp_path, RAG, DTR, webq)
    assert cells_of(text)["DTR (u = 0.2), big&lt;b&gt;"][1] == ""
    assert cells_of(text)["Standard RAG, big&lt;b&gt;"][1] == ""
    assert "not measured" not in text


def test_of_three_metrics_the_first_is_shown(tmp_path: Path) -> None:
    others = [cell("dtr_u0.001", metric, [1] * 20) for metric in ("F1", "trigger_ratio")]
    text = page(tmp_path, DTR, *others)
    assert "<summary>50.0</summary>" in text and "F1, percent: 100.0 [" in text
    assert "<th>nq<br>EM, percent</th>" in text


@pytest.mark.parametrize("name", ALL.tables)
def test_the_command_of_a_cell_makes_its_row(name: str) -> None:
    table, printed = ALL.tables[name], printed_tables()[name]
    for number, row in enumerate(printed.rows):
        for column in table.columns(printed, "paper"):
            one = Cell(number, column, "EM", "percent", None, None, "", False)
            last = shlex.split(command(one, printed, {"command": "c"}))[-1]
            only = last.removeprefix("--only=").split(",")
            methods, datasets, *models = chosen(name, kinds_of(printed, table.datasets), only)
            assert row.method in methods and datasets == [*column.datasets[:1]]
            for kind, left in zip(("generator", "retriever"), models, strict=True):
                assert getattr(row, kind) in left  # and not all of a method with several
                same = {getattr(one, kind) for one in printed.rows if one.method == row.method}
                chosen_ones = same & {*left}
                assert len(same) == 1 or chosen_ones < same or not getattr(row, kind)


class Asking:
    """A job with a language model."""

    def __init__(self, model: Any):
        self.model = model


def test_records_have_the_parameters_of_readers(tmp_path: Path) -> None:
    """Of a published checkpoint, also behind a server that takes its tokens; counted in a file; not
    known of a server that is asked by chat."""
    published = {"hub:a/big": 7.6}
    models = {
        "big": Local("hub:a/big"),
        "served": Server("served", "http://localhost/v1", "hub:a/big"),
        "chat": Server("chat", "http://localhost/v1"),
        "here": Local(),
        "gone": Local("hub:a/none"),
        "file": Local(str(tmp_path / "reader.gguf")),
    }
    (tmp_path / "reader.gguf").write_bytes(b"abc")
    results = {name: write(tmp_path / name, [1, 0], name) for name in models}
    jobs: Any = {tmp_path / name: Asking(model) for name, model in models.items()}
    found = describe_runs(results.values(), jobs, published)
    assert {name: found["parameters"][name] for name in models} == {
        "big": 7.6, "served": 7.6, "chat": None, "here": 0.135, "gone": None, "file": None
    }  # fmt: skip
    # SHA-256 of "abc", as FIPS 180 prints it
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert found["files"] == {"file": sha256, "reader.gguf": sha256}
    assert found["data"] == {"d": {"passages": 27_218}}


def test_printed_values_stand_beside_the_papers_models(tmp_path: Path) -> None:
    of_paper = RAG._replace(printed=35.4, comparable=True)
    text = page(tmp_path, of_paper, substitutes=[])
    assert "EM, percent: 0.0 [-10.0, 10.0], n = 20, printed 35.4 (-35.4) differs<br>" in text
