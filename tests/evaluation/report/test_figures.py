"""Figures: what is drawn, and that hard cases still draw."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from jaxrag.evaluation import policy
from jaxrag.evaluation.policy import COSTS, Arms
from jaxrag.evaluation.report import figures
from jaxrag.evaluation.significance import Interval
from jaxrag.evaluation.summary import Row


def row(label: str, em: float, calls: float, n: int = 50) -> Row:
    means = {
        "exact_match": Interval(em, em - 0.05, em + 0.05, n),
        "llm_calls": Interval(calls, calls, calls, n),
    }
    return Row(label, label, "factbook", Path("x"), means, {}, n, 0, True, "", {})


def parse(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def test_accuracy_against_cost_places_every_run() -> None:
    rows = [row("plain", 0.2, 1), row("<b>", 0.4, 3), row("nothing", math.nan, math.nan, n=0)]
    drawn = parse(figures.accuracy_against_cost(rows, "llm_calls", title="LLM calls"))
    marks = [e for e in drawn.iter() if e.attrib.get("class", "").startswith("mark")]
    assert [e.attrib["class"] for e in marks] == ["mark c0", "mark c1"]
    names = [e.text for e in drawn.iter("text") if e.attrib["class"].startswith("name")]
    assert names == ["plain", "<b>"]
    tips = [e.text for e in drawn.iter("title")]
    assert tips[0] == "plain: EM 20.0 [15.0, 25.0], 1.00 LLM calls"
    # EM 20 and 40 of an axis that ends at 50: heights are in that proportion.
    heights = [244 - float(marks[0].attrib["cy"]), 244 - _centre(marks[1])]
    assert heights[1] / heights[0] == pytest.approx(2, rel=0.01)


def _centre(mark: ElementTree.Element) -> float:
    numbers = [float(v) for v in re.findall(r"[\d.]+", mark.attrib["d"])]
    return (min(numbers[1::2]) + max(numbers[1::2])) / 2


def test_crowded_labels_never_overlap() -> None:
    rows = [row(f"method number {i}", 0.3, 2) for i in range(12)]
    drawn = parse(figures.accuracy_against_cost(rows, "llm_calls", title="LLM calls"))
    assert 1 < len(name_boxes(drawn)) < 12  # those that have room beside their marks
    assert_apart(name_boxes(drawn))


def name_boxes(drawn: ElementTree.Element) -> list[tuple[float, float, float]]:
    """Left end, right end and base of each name."""
    names = [e for e in drawn.iter("text") if e.attrib["class"].startswith("name")]
    middles = [(float(e.attrib["x"]), 3.5 * len(e.text or ""), e.attrib["y"]) for e in names]
    return [(middle - half, middle + half, float(base)) for middle, half, base in middles]


def assert_apart(boxes: list[tuple[float, float, float]]) -> None:
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            beside = one[1] <= other[0] or other[1] <= one[0]
            assert beside or abs(one[2] - other[2]) >= 12, (one, other)


def test_thresholds_of_a_sweep_have_names_that_do_not_overlap_inside_the_axes() -> None:
    u, right = np.geomspace(0.05, 2, 40), np.tile([1.0, 0], 20)
    values = (0, 0.01, 0.05, 0.1, 0.11, 0.12, 1, 30, 40)
    marks = [(i, f"dtr threshold={value}", float(value)) for i, value in enumerate(values)]
    boxes = name_boxes(parse(figures.uncertainty_histogram(u, right, marks)))
    assert len(boxes) == len(values)
    assert_apart(boxes)
    assert all(box[0] >= 40 and box[1] <= 388 for box in boxes)


def test_nothing_to_draw() -> None:
    empty = [row("nothing", math.nan, math.nan, n=0)]
    assert figures.accuracy_against_cost(empty, "llm_calls", title="LLM calls") == ""
    assert figures.wins_and_losses([], baseline="b", questions=0) == ""
    assert len(parse(figures.forest(empty[0].means["exact_match"], 0, top=1, reference=math.nan)))


def test_wins_and_losses_are_proportional() -> None:
    drawn = parse(figures.wins_and_losses([(1, "a", 40, 10)], baseline="b", questions=99))
    widths = {e.attrib["class"]: float(e.attrib["width"]) for e in drawn.iter("rect")}
    assert widths["win c1"] == pytest.approx(4 * widths["loss c1"])
    assert len(parse(figures.wins_and_losses([(1, "a", 0, 0)], baseline="b", questions=9)))


@pytest.mark.parametrize("case", ["usual", "all empty", "all certain", "all right", "one value"])
def test_uncertainty_figures_of_hard_cases(case: str) -> None:
    rng = np.random.default_rng(0)
    u, right = rng.gamma(1, 0.5, 80), (rng.random(80) < 0.4).astype(float)
    u[:5] = np.inf
    if case == "all empty":
        u[:] = np.inf
    if case == "all certain":
        u[:] = 0
    if case == "all right":
        right[:] = 1
    if case == "one value":
        u[:] = 0.3
    drawn = figures.uncertainty_histogram(u, right, [(0, "a", 0.0), (1, "b", 0.3)])
    assert f"Lower part of a bar: right ({int(right.sum())})" in drawn
    tips = [e.text or "" for e in parse(drawn).iter("title")]
    counts = [tuple(map(int, re.findall(r"(\d+) right, (\d+) wrong", tip)[0])) for tip in tips]
    assert sum(map(sum, counts)) == 2 * 80  # both parts of a bar tell the same
    arms = Arms(0, 1, True, None, u, right, 1 - right, {n: np.ones((2, 80)) for n in COSTS})
    drawn = figures.em_against_query_ratio(1, policy.curve(policy.settings(arms)), [])
    assert parse(drawn).findall(".//path") and "nan" not in drawn and "inf" not in drawn


def test_runs_with_one_threshold_share_its_line() -> None:
    u, right = np.array([0.1, 0.5, 0.9]), np.array([1.0, 0, 0])
    marks = [(0, "a", 0.3), (1, "b", 0.3), (2, "c", 0.6)]
    drawn = parse(figures.uncertainty_histogram(u, right, marks))
    names = [e.text for e in drawn.iter("text") if e.attrib["class"].startswith("name")]
    assert names == ["a, b", "c"]
