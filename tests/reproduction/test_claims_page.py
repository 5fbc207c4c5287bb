"""The page of claims, from comparisons that are known, and from the cells of a record."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

from jaxrag.evaluation.significance import Interval
from jaxrag.reproduction import claims_page as module
from jaxrag.reproduction.claims import Claim, Comparison
from jaxrag.reproduction.claims_page import claims_page
from jaxrag.reproduction.figure_claims import At, FigureClaim
from jaxrag.reproduction.printed.tables import printed_tables

BETTER = {"method": "dpr_ais_dynamic"}
CLAIM = Claim(
    "pairs/a", "Weights help.", "section 4", "pairs/table4", BETTER, [{"method": "dpr_ais"}]
)
ERRR = Claim(
    "errr/a",
    "ERRR is best.",
    "section 4",
    "errr/table2",
    {"method": "frozen_errr"},
    [{"method": "react"}],
)


def compared(mean: float, low: float, high: float, p: float, **others: Any) -> Comparison:
    ours = Interval(mean, low, high, 100)
    return Comparison("nq, against A", "percent", 1.5, ours, None, p=p)._replace(**others)


def write_record(path: Path, scale: str, **fields: Any) -> None:
    record = {"name": CLAIM.table, "scale": scale, "date": "2026-11-25", "models": ["m"]}
    file = path / scale / "pairs-table4.json"
    file.parent.mkdir()
    file.write_text(json.dumps({**record, "limit": 100, **fields}))


def page(path: Path, *comparisons: Comparison, scale: str = "small") -> str:
    write_record(path, scale)
    with mock.patch.object(module, "compare", return_value=comparisons):
        return claims_page([CLAIM, ERRR], [], path)


def test_one_comparison_is_whole_in_its_row(tmp_path: Path) -> None:
    text = page(tmp_path, compared(-3, -7, 1, 0.2, needed=3338))
    # the paper prints 36.81 - 36.61
    assert (
        "| 1 | Weights help. (section 4, EM) | +0.20; holds for 1 of 1 | **open**: "
        "-3.00 [-7.00, +1.00], n = 100; 3,338 questions would decide | m, 2026-11-25 |" in text
    )
    assert "each comparison\n" not in text
    assert "- pairs/table4: m, first 100 questions, 2026-11-25" in text


def test_several_comparisons_have_a_range_and_a_line_each(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        compared(8.25, 3.5, 12.75, 0.01),
        compared(-3, -5, -1, 0.01, printed=None),
        compared(0, 0, 0, 1.0, subject="webq, against A"),
        compared(2, -1, 4, 0.3, needed=1368, paired=False),
        compared(0, 0, 0, 1.0, ours=None),
    )
    assert (
        "**opposite**: -3.00 to +8.25; 1 same direction, 1 opposite, 2 open, 1 not measured; 1,368 "
        "questions would decide; not paired | m, 2026-11-25 |" in text
    )
    lines = text.partition("### PAIRS, scale small: each comparison\n")[2].splitlines()
    assert lines[3:8] == [
        "| 1 | nq, against A | +1.50 | +8.25 [+3.50, +12.75] | 100 | same direction |  |",
        "| 1 | nq, against A |  | -3.00 [-5.00, -1.00] | 100 | opposite |  |",
        "| 1 | webq, against A | +1.50 | +0.00 [+0.00, +0.00] | 100 | open; "
        "all differences are 0 |  |",
        "| 1 | nq, against A | +1.50 | +2.00 [-1.00, +4.00] | 100 | open; not paired | 1,368 |",
        "",
    ]


def test_what_was_measured_once_has_no_interval(tmp_path: Path) -> None:
    once = {"once": True, "unit": "seconds"}
    text = page(
        tmp_path,
        compared(64.46, 64.46, 64.46, 0.0, **once),
        compared(-67.5, -67.5, -67.5, 0.0, **once),
    )
    assert "-67.50 to +64.46; 2 open; measured once, without an interval |" in text
    assert "| +64.46 | 100 | open; measured once, without an interval |" in text


def test_a_scale_without_a_result_of_a_claim(tmp_path: Path) -> None:
    small = page(tmp_path, compared(2, 1, 3, 0.01))
    text = page(tmp_path, compared(2, 1, 3, 0.01), scale="paper")
    # only what was measured at the papers' scale is a verdict; the first line says if there is none
    result = "+2.00 [+1.00, +3.00], n = 100 | m, 2026-11-25 |"
    assert "no verdict" in small.splitlines()[0] and "no verdict" not in text.splitlines()[0]
    assert f"| **same direction**: {result} **replicated**: {result}\n" in text
    assert "| small | small: measured with | paper | paper: measured with |" in text
    # ERRR's Table 2 prints 0.4815 - 0.477, 0.48 - 0.451 and 0.369 - 0.344
    row = "+0.005 to +0.029; holds for 3 of 3 | not measured |  | not measured |  |"
    assert f"| 1 | ERRR is best. (section 4, EM) | {row}" in text


def test_a_verdict_is_computed_from_the_values_of_questions(tmp_path: Path) -> None:
    """What a record says of its claims is not read."""
    ids = [f"q{i}" for i in range(20)]

    def line(row: int, method: str, values: list[float]) -> dict[str, Any]:
        mean = 100 * sum(values) / len(values)
        ours = {"mean": mean, "low": mean - 9, "high": mean + 9, "n": 20}
        place = {"row": row, "method": method, "data": name, "datasets": [name], "metric": "EM"}
        rest = {"unit": "percent", "printed": None, "agrees": None, "generator": None}
        return {**place, **rest, "ours": ours, "values": values}

    printed = printed_tables()[CLAIM.table].rows
    rows, (name, *_) = [row.method for row in printed], printed[0].datasets
    better, worse = rows.index("dpr_ais_dynamic"), rows.index("dpr_ais")
    cells = [line(better, "dpr_ais_dynamic", [0.0] * 20), line(worse, "dpr_ais", [1.0] * 20)]
    lie = {"id": CLAIM.id, "verdict": "replicated", "comparisons": []}
    write_record(tmp_path, "small", ids={name: ids}, cells=cells, claims=[lie])
    assert "**opposite**: -100.00 [-100.00, -100.00], n = 20" in claims_page([CLAIM], [], tmp_path)


def test_claims_about_figures_follow_those_about_tables(tmp_path: Path) -> None:
    point = {"mean": 30.0, "low": 20.0, "high": 40.0, "n": 10}
    drawn = FigureClaim("pairs/b", "It is more.", "section 5", "pairs/figure3", At("a"), None)
    record = {"name": "pairs/figure3", "scale": "small", "date": "2026-11-26"}
    file = tmp_path / "small" / "pairs-figure3.json"
    file.parent.mkdir()
    pictures = {"pairs/figure3": {"nq": {"a": [point]}}}
    file.write_text(json.dumps({**record, "pictures": pictures}))
    text = claims_page([CLAIM], [drawn], tmp_path)
    assert (
        "| 1 | Weights help. (section 4, EM) | +0.20; holds for 1 of 1 | not measured |  |" in text
    )
    assert (
        "| 2 | It is more. (section 5) | drawn, without numbers | **same direction**: "
        "+30.00 [+20.00, +40.00], n = 10 | 2026-11-26 |" in text
    )
