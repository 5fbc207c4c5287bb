"""Verdicts on claims about figures, from points whose intervals are known."""

import dataclasses
from typing import Any

import pytest

from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.claims import CLAIMS
from jaxrag.reproduction.claims import At, FigureClaim, compare_points, overall


def point(mean: float, low: float, high: float) -> dict[str, float]:
    return {"progress": 0.0, "mean": mean, "low": low, "high": high, "n": 10}


PICTURES: dict[str, Any] = {
    "r3/figure0": {
        "nq": {
            "a": [point(20, 10, 30), point(40, 36, 45)],
            "b": [point(20, 10, 30), point(30, 27, 34)],
        },
        "arc": {"a": [point(50, 40, 60)], "b": [point(45, 30, 60)]},
    }
}


def claim(ours: At, theirs: At | None, **changes: Any) -> FigureClaim:
    return FigureClaim("r3/x", "A claim.", "section 1", "r3/figure0", ours, theirs, **changes)


def test_last_points_are_compared_as_independent_means() -> None:
    nq, arc = compare_points(claim(At("a"), At("b")), PICTURES)
    # 40 - 30, down by hypot(40 - 36, 34 - 30) = 5.657, up by hypot(45 - 40, 30 - 27) = 5.831
    assert nq.ours is not None and nq.ours[:3] == pytest.approx((10, 4.343, 15.831), abs=1e-3)
    assert nq.subject == "nq, a, last point, against b, last point"
    assert (nq.verdict, arc.verdict) == ("replicated", "undecided")
    assert overall([nq, arc]) == "undecided"


def test_first_and_last_point_and_zero() -> None:
    nq, _ = compare_points(claim(At("a", 0), At("a"), lower=True), PICTURES)
    # -20 + 40, down by hypot(10, 4) = 10.770, up by hypot(10, 5) = 11.180
    assert nq.ours is not None and nq.ours[:3] == pytest.approx((20, 9.230, 31.180), abs=1e-3)
    nq, _ = compare_points(claim(At("a", 0), None), PICTURES)
    assert nq.ours is not None and nq.ours[:3] == (20, 10, 30) and nq.ours.n == 10
    assert nq.subject == "nq, a, first point, against 0"


def test_p_values_are_adjusted_for_the_number_of_panels() -> None:
    """10 with a half-width of 9 has p = 0.029; twice that, of two panels, is not significant."""
    panel = {"a": [point(10, 1, 19)]}
    alone, both = {"r3/figure0": {"nq": panel}}, {"r3/figure0": {"nq": panel, "arc": panel}}
    assert [one.verdict for one in compare_points(claim(At("a"), None), alone)] == ["replicated"]
    assert [one.verdict for one in compare_points(claim(At("a"), None), both)] == ["undecided"] * 2


def test_a_point_by_its_number_and_another_unit() -> None:
    seconds = claim(At("a", 0), At("b", 1), lower=True, unit="seconds")
    (nq,) = compare_points(seconds, {"r3/figure0": {"nq": PICTURES["r3/figure0"]["nq"]}})
    # 30 - 20, down by hypot(10, 3) = 10.440, up by hypot(10, 4) = 10.770
    assert nq.ours is not None and nq.ours[:3] == pytest.approx((10, -0.440, 20.770), abs=1e-3)
    assert nq.subject == "nq, a, first point, against b, point 2"
    assert (nq.unit, nq.paired, nq.once) == ("seconds", False, False)


def test_a_point_that_was_measured_once_decides_nothing() -> None:
    pictures = {"r3/figure0": {"nq": {"x": point(9, 9, 9), "y": point(5, 5, 5)}}}
    (one,) = compare_points(claim(At("x", None), At("y", None)), pictures)
    assert one.ours is not None and one.ours.mean == 4 and one.once
    assert one.verdict == "undecided"


def test_values_of_questions_are_compared_in_pairs() -> None:
    """q4 has no value on the other side. 100 (x - 0.5 y) of q1 to q3: 50, 100, -50; mean 33.3."""
    x = {**point(0.75, 0.0, 1.0), "values": {"q1": 1.0, "q2": 1.0, "q3": 0.0, "q4": 1.0}}
    y = {**point(0.7, 0.0, 1.0), "values": {"q3": 1.0, "q1": 1.0, "q2": 0.0}}
    pictures = {"r3/figure0": {"nq": {"x": x, "y": y}}}
    half = claim(At("x", None), At("y", None), factor=0.5, shares=True)
    (one,) = compare_points(half, pictures)
    assert one.ours is not None and one.ours.mean == pytest.approx(100 / 3) and one.ours.n == 3
    assert one.subject == "nq, x, against 0.5 x y" and one.paired and not one.once
    assert one.ours.low >= -50 and one.ours.high <= 100
    # of the 8 signs of 0.5, 1 and 0.5, 6 have a sum of 1 or more
    assert one.p == pytest.approx(0.75, abs=0.02)
    (other,) = compare_points(dataclasses.replace(half, lower=True), pictures)
    assert other.ours is not None and other.ours.mean == pytest.approx(-100 / 3)


def test_a_bound() -> None:
    pictures = {"r3/figure0": {"nq": {"x": point(0.7, 0.6, 0.75)}}}
    bounded = claim(At("x", None), None, shares=True, bound=50.0)
    (one,) = compare_points(bounded, pictures)
    assert one.ours is not None and one.ours[:3] == pytest.approx((20, 10, 25))
    assert one.subject == "nq, x, against 50" and one.paired and one.ours.n == 10


def test_values_of_seeds_have_students_interval() -> None:
    """Differences 1, 2 and 3: 2 +- 4.3027 (Student, 2 degrees of freedom) * 1 / sqrt(3)."""
    x = {**point(3.0, 0, 9), "values": {"0": 2.0, "1": 3.0, "2": 4.0}}
    y = {**point(1.0, 0, 9), "values": {"0": 1.0, "1": 1.0, "2": 1.0}}
    pictures = {"r3/figure0": {"nq": {"x": [y, x]}}}
    rises = claim(At("x"), At("x", 0), unit="reward", over_seeds=True)
    (one,) = compare_points(rises, pictures)
    assert one.ours is not None and one.ours[:3] == pytest.approx((2, -0.484, 4.484), abs=1e-3)
    assert one.verdict == "undecided" and one.paired and one.ours.n == 3


def test_series_that_are_not_drawn_are_not_measured() -> None:
    found = compare_points(claim(At("72B"), At("a")), PICTURES)
    assert {one.verdict for one in found} == {"not measured"}
    with pytest.raises(KeyError):
        compare_points(claim(At("a"), At("b"), picture="r3/other"), PICTURES)


@pytest.mark.parametrize(
    "one", [claim for claim in CLAIMS if isinstance(claim, FigureClaim)], ids=lambda one: one.id
)
def test_claims_are_tied_to_declared_series(one: FigureClaim) -> None:
    assert one.figure in {*ALL.figures, *ALL.tables}
    figure = ALL.figures.get(one.figure)
    named = {point.series for point in (one.ours, one.theirs) if point}
    assert not figure or not figure.series or named <= {*figure.series}
