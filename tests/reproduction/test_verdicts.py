"""Verdicts from the JSON of a record, computed a second time without the package."""

import json
import math
import random
import statistics
from pathlib import Path
from typing import Any

from jaxrag.configs.papers.claims import CLAIMS
from jaxrag.evaluation.significance import Interval
from jaxrag.reproduction.cells import as_json
from jaxrag.reproduction.claims import overall
from jaxrag.reproduction.claims_page import judge
from jaxrag.reproduction.printed.comparison import Cell, Column
from jaxrag.reproduction.printed.measured import Measured
from jaxrag.reproduction.printed.tables import printed_tables

NAME = "dtr/table2"
N = 400
RIGHT = {"standard_rag": 0.4, "dtr_u0.001": 0.55, "dtr_u0.005": 0.42, "dtr_u0.01": 0.25}
TRIGGER = {"dtr_u0.001": 0.9, "dtr_u0.005": 0.8, "dtr_u0.01": 0.6}
Q7 = "Qwen2.5-7B-Instruct"


def record(path: Path) -> Path:
    """A record of the 7B rows, whose questions are right with the probabilities above."""
    printed, drawn, cells = printed_tables()[NAME], random.Random(7), list[Cell]()
    for number, row in enumerate(printed.rows):
        for data in printed.datasets:
            for metric, shares in (("EM", RIGHT), ("trigger_ratio", TRIGGER)):
                if row.generator != Q7 or row.method not in shares:
                    continue
                share = shares[row.method]
                values = {f"q{i}": float(drawn.random() < share) for i in range(N)}
                mean = statistics.fmean(values.values())
                half = 1.96 * math.sqrt(mean * (1 - mean) / N)
                ours = Measured(Interval(mean, mean - half, mean + half, N), values)
                column, unit = Column(data, (data,)), printed.units[metric]
                cells.append(Cell(number, column, metric, unit, None, ours, "", False))
    file = path / "dtr-table2.json"
    head = {"name": NAME, "scale": "paper", "date": "2026-12-01", "parameters": {"q": 7.62}}
    file.write_text(json.dumps({**head, **as_json(cells, printed)}))
    return file


def by_hand(file: Path, ours: str, theirs: list[str], metric: str, *, lower: bool = False) -> str:
    """The verdict: McNemar's exact test for each data set and other row, then Holm's."""
    content = json.loads(file.read_text())
    lines: dict[Any, list[float]] = {
        (c["method"], c["data"]): c["values"] for c in content["cells"] if c["metric"] == metric
    }
    found = []
    for other in theirs:
        for data in content["ids"]:
            pairs = list(zip(lines[ours, data], lines[other, data], strict=True))
            wins, losses = (sum(a - b == sign for a, b in pairs) for sign in (1, -1))
            tail = sum(math.comb(wins + losses, k) for k in range(min(wins, losses) + 1))
            gain = losses - wins if lower else wins - losses
            found.append((min(1.0, 2 * tail / 2 ** (wins + losses)), gain))
    found.sort()
    largest, signs = 0.0, []
    for rank, (p, gain) in enumerate(found):
        largest = max(largest, min(1.0, (len(found) - rank) * p))
        signs.append(math.copysign(1, gain) if largest < 0.05 else 0)
    if -1 in signs:
        return "contradicted"
    return "replicated" if all(sign == 1 for sign in signs) else "undecided"


def test_five_verdicts_follow_from_the_json_alone(tmp_path: Path) -> None:
    file = record(tmp_path)
    judged = {one.claim.id: one for one in judge(CLAIMS, json.loads(file.read_text()), file)}
    ours = {name: overall(judged[f"dtr/{name}"].comparisons) for name in (
        "beats-rag-7b-u0.001", "beats-rag-7b-u0.005", "beats-rag-7b-u0.01", "fewer-retrievals",
    )}  # fmt: skip
    expected = {
        f"beats-rag-7b-u{u}": by_hand(file, f"dtr_u{u}", ["standard_rag"], "EM")
        for u in ("0.001", "0.005", "0.01")
    }
    smaller = ["dtr_u0.001", "dtr_u0.005"]
    expected["fewer-retrievals"] = by_hand(file, "dtr_u0.01", smaller, "trigger_ratio", lower=True)
    assert ours == expected
    assert list(ours.values()) == ["replicated", "undecided", "contradicted", "replicated"]


def test_a_verdict_on_an_average_follows_from_the_json_alone(tmp_path: Path) -> None:
    """The mean of the sets' differences; its variance is the sum of theirs / m^2."""
    file = record(tmp_path)
    content = json.loads(file.read_text())
    claim = next(one for one in CLAIMS if one.id == "dtr/best-average-7b")
    lines = {(c["method"], c["data"]): c["values"] for c in content["cells"] if c["metric"] == "EM"}
    each = [
        [
            100 * (a - b)
            for a, b in zip(lines["dtr_u0.001", d], lines["standard_rag", d], strict=True)
        ]
        for d in content["ids"]
    ]
    mean = statistics.fmean(map(statistics.fmean, each))
    error = math.sqrt(sum(statistics.variance(some) / N for some in each)) / len(each)
    (judged,) = (one for one in judge(CLAIMS, content, file) if one.claim is claim)
    (found,) = (c for c in judged.comparisons if c.subject == "average, against Standard RAG")
    assert found.ours is not None and math.isclose(found.ours.mean, mean)
    assert math.isclose(found.ours.high - mean, 1.96 * error, rel_tol=0.03)
    assert found.verdict == "replicated" and mean > 3 * error
