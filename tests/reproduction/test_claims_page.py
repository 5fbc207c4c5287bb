"""The page of claims, from records whose values are known."""

import json
from pathlib import Path
from typing import Any

import pytest

from jaxrag.reproduction.claims import At, Claim, FigureClaim
from jaxrag.reproduction.claims_page import NONE, _summary, claims_page, judge
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.types import InputError

BETTER, WORSE = "dpr_ais_dynamic", "dpr_ais"
CLAIM = Claim(
    "pairs/a", "Weights help.", "section 4", "pairs/table4", {"method": BETTER}, [{"method": WORSE}]
)
DRAWN = FigureClaim("pairs/b", "It is more.", "section 5", "pairs/figure3", At("a"), None)
ROWS = [row.method for row in printed_tables()[CLAIM.table].rows]
(DATA,) = printed_tables()[CLAIM.table].datasets


def line(method: str, values: list[float] | None, metric: str = "EM") -> dict[str, Any]:
    """A cell of a record; with None it was not measured."""
    row = {"row": ROWS.index(method), "method": method, "data": DATA, "datasets": [DATA]}
    rest = {"metric": metric, "unit": "percent", "printed": None, "agrees": None}
    if values is None:
        return {**row, **rest, "model": "", "retriever": "", "ours": None}
    mean = 100 * sum(values) / len(values)
    ours = {"mean": mean, "low": mean - 9, "high": mean + 9, "n": len(values)}
    return {**row, **rest, "model": "m", "retriever": "", "ours": ours, "values": values}


def write_record(path: Path, folder: str, *cells: dict[str, Any], **fields: Any) -> Path:
    count = len(next((cell["values"] for cell in cells if "values" in cell), []))
    record = {
        "name": CLAIM.table, "scale": folder.partition("-")[0], "date": "2026-11-25",
        "models": ["m"], "parameters": {"m": 1.5}, "ids": {DATA: [f"q{i}" for i in range(count)]},
        "cells": cells, **fields,
    }  # fmt: skip
    file = path / folder / f"{record['name'].replace('/', '-')}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(record))
    return file


def page(path: Path, *claims: Claim | FigureClaim) -> str:
    return claims_page(claims or [CLAIM, DRAWN], path, path)


ALL_RIGHT, ALL_WRONG = [1.0] * 20, [0.0] * 20


@pytest.mark.parametrize(
    ("folder", "substitutes", "words"),
    [
        ("paper", [], ("replicated", "contradicted")),
        ("paper-m", ["m for all generators"], ("same direction", "opposite")),
        ("small", [], ("same direction", "opposite")),
    ],
)
def test_verdicts_name_the_paper_only_with_its_models_and_data(
    tmp_path: Path, folder: str, substitutes: list[str], words: tuple[str, str]
) -> None:
    better, worse = line(BETTER, ALL_RIGHT), line(WORSE, ALL_WRONG)
    write_record(tmp_path, folder, better, worse, substitutes=substitutes, settings=["gates set"])
    # p = 2 / 2^20; the paper prints 36.81 - 36.61
    text = page(tmp_path)
    assert f"<summary>{words[0]}: +100.00 [+100.00, +100.00]</summary>" in text
    printed = ", printed +0.20" * (folder == "paper")
    assert f"n = 20, p = 1.9e-06{printed}: {words[0]}</details>" in text
    assert "<td>+0.20; holds for 1 of 1</td>" in text
    made = f"m, scale {folder.partition('-')[0]}, gates set, 2026-11-25"
    assert f'<a href="{folder}/pairs-table4.json">{made}</a>' in text
    better, worse = line(BETTER, ALL_WRONG), line(WORSE, ALL_RIGHT)
    lie = {"id": CLAIM.id, "verdict": words[0]}
    write_record(tmp_path, folder, better, worse, substitutes=substitutes, claims=[lie])
    assert f"<summary>{words[1]}: -100.00 [-100.00, -100.00]</summary>" in page(tmp_path)


def test_an_open_claim_says_how_many_questions_would_decide_it(tmp_path: Path) -> None:
    """Differences 1, -1, 0, 0: variance 2 / 3; 7.8489 * (2 / 3) / 0.002^2 = 1,308,147."""
    write_record(tmp_path, "small", line(BETTER, [1.0, 0, 1, 0]), line(WORSE, [0.0, 1, 1, 0]))
    summary = page(tmp_path).partition("<summary>")[2].partition("</summary>")[0]
    assert summary.startswith("open: +0.00 [") and "; 1,308," in summary
    assert summary.endswith(" questions would decide")


def test_several_comparisons_have_a_range_and_a_line_each(tmp_path: Path) -> None:
    both = Claim(**{**CLAIM.__dict__, "theirs": [{"method": WORSE}, {"method": BETTER}]})
    write_record(tmp_path, "small", line(BETTER, ALL_RIGHT), line(WORSE, ALL_WRONG))
    text = page(tmp_path, both)
    assert "<summary>open: +0.00 to +100.00; 1 same direction, 1 open</summary>" in text
    assert text.count("against DPR-AIS") == 2 and text.count("<br>") == 1


def test_a_claim_of_which_a_comparison_lacks_is_incomplete(tmp_path: Path) -> None:
    file = write_record(tmp_path, "small", line(BETTER, ALL_RIGHT), line(WORSE, ALL_WRONG))
    (judged,) = judge([CLAIM], json.loads(file.read_text()), file)
    missing = judged.comparisons[0]._replace(ours=None)
    both = judged._replace(comparisons=[*judged.comparisons, missing])
    assert _summary(both) == "incomplete: +100.00; 1 same direction, 1 not measured"


def test_a_share_that_the_user_set_is_no_finding(tmp_path: Path) -> None:
    cells = [line(BETTER, ALL_RIGHT), line(WORSE, ALL_WRONG)]
    file = write_record(tmp_path, "small", *cells, thresholds=["dtr on nq: 0.3"])
    share = Claim(**{**CLAIM.__dict__, "metric": "trigger_ratio"})
    assert [j.claim for j in judge([CLAIM, share], json.loads(file.read_text()), file)] == [CLAIM]


@pytest.mark.parametrize("parameters", [{}, {"m": None}, {"m": 0.999}, {"m": 7.0, "s": 0.135}])
def test_tables_of_small_or_unknown_readers_judge_nothing(
    tmp_path: Path, parameters: dict[str, float | None]
) -> None:
    better, worse = line(BETTER, ALL_RIGHT), line(WORSE, ALL_WRONG)
    write_record(tmp_path, "small", better, worse, parameters=parameters)
    assert page(tmp_path).endswith(f"\n{NONE}")
    write_record(tmp_path, "small", better, worse)
    assert NONE not in page(tmp_path)


def test_every_record_of_a_claim_has_a_line_and_figures_follow_tables(tmp_path: Path) -> None:
    for folder in ("small", "paper-m"):
        write_record(tmp_path, folder, line(BETTER, ALL_RIGHT), line(WORSE, ALL_WRONG))
    point = {"mean": 30.0, "low": 20.0, "high": 40.0, "n": 10}
    pictures = {"pairs/figure3": {"nq": {"a": [point]}}}
    write_record(tmp_path, "small", name="pairs/figure3", pictures=pictures)
    text = page(tmp_path)
    places = [text.index(f'href="{name}"') for name in (
        "paper-m/pairs-table4.json", "small/pairs-table4.json", "small/pairs-figure3.json",
    )]  # fmt: skip
    assert places == sorted(places)
    assert "<td>drawn, without numbers</td>" in text
    assert "<summary>same direction: +30.00 [+20.00, +40.00]</summary>" in text


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("pairs/figure3", {}),
        ("pairs/table4", {"cells": [{"row": 0}]}),
        ("pairs/table4", {"ids": 1}),
    ],
)
def test_damaged_records_are_refused(tmp_path: Path, name: str, fields: dict[str, Any]) -> None:
    cells = (line(BETTER, ALL_RIGHT),) if "table" in name else ()
    file = write_record(tmp_path, "small", *cells, name=name, **fields)
    with pytest.raises(InputError, match=f"{file.name} (does not fit the claim|has cells)"):
        page(tmp_path)


def test_what_was_measured_once_has_no_interval(tmp_path: Path) -> None:
    """Seconds of a whole run, in one of two data sets of a claim."""
    point = {"mean": 9.0, "low": 9.0, "high": 9.0, "n": 10}
    write_record(
        tmp_path, "small", name="pairs/figure3", pictures={"pairs/figure3": {"nq": {"a": [point]}}}
    )
    assert "<summary>open: +9.00</summary>nq, a, last point, against 0: +9.00, n = 10, " in (
        page(tmp_path)
    )
    assert "measured once: open" in page(tmp_path)
