"""Verdicts on claims, from cells whose values are known."""

import numpy as np
import pytest

from jaxrag.evaluation.significance import Interval, interval
from jaxrag.reproduction.claims import Claim, Comparison, compare, overall, printed_effects, rows_of
from jaxrag.reproduction.printed.comparison import Cell, Column
from jaxrag.reproduction.printed.measured import Measured, over_seeds
from jaxrag.reproduction.printed.tables import PrintedTable
from tests.reproduction.test_cells import printed_row

PRINTED = PrintedTable(
    "dtr/table0",
    "DTR",
    "Table 0",
    "a test",
    {"EM": "percent", "trigger": "percent"},
    (
        printed_row("base", {"nq": {"EM": 30.0, "trigger": 100.0}, "webq": {"EM": 50.0}}),
        printed_row("ours", {"nq": {"EM": 40.0, "trigger": 75.0}, "webq": {"EM": 52.0}}),
    ),
)
NQ, WEBQ = Column("paper-nq", ("nq",)), Column("paper-webq", ("webq",))


def cell(row: int, column: Column, values: list[float], metric: str = "EM") -> Cell:
    mean = sum(values) / len(values)
    by_question = {f"q{i}": value for i, value in enumerate(values)}
    ours = Measured(Interval(mean, mean - 0.1, mean + 0.1, len(values)), by_question)
    return Cell(row, column, metric, "percent", 30.0, ours, "", True)


def claim(**changes: object) -> Claim:
    settings = {"ours": {"method": "ours"}, "theirs": [{"method": "base"}], **changes}
    return Claim("dtr/a", "A claim.", "section 1", "dtr/table0", **settings)  # type: ignore[arg-type]


def test_a_difference_on_every_question_is_replicated() -> None:
    cells = [cell(0, NQ, [0.0] * 50), cell(1, NQ, [1.0] * 50)]
    (one,) = compare(claim(datasets=("nq",)), PRINTED, cells)
    assert one.printed == 10.0 and one.ours == Interval(100.0, 100.0, 100.0, 50)
    assert one.verdict == "replicated" and one.needed is None
    (other,) = compare(
        claim(datasets=("nq",)), PRINTED, [cell(0, NQ, [1] * 9), cell(1, NQ, [0] * 9)]
    )
    assert other.verdict == "contradicted"


def test_an_undecided_claim_tells_how_many_questions_decide_it() -> None:
    # differences 1, -1, 0, 0: mean 0, sample standard deviation sqrt(2 / 3)
    cells = [cell(0, NQ, [0, 1, 1, 0]), cell(1, NQ, [1, 0, 1, 0])]
    (one,) = compare(claim(datasets=("nq",)), PRINTED, cells)
    assert one.verdict == "undecided"
    # (1.95996 + 0.84162)^2 = 7.8489; times (2 / 3) / 0.1^2 = 523.3
    assert one.needed == 524
    # 5 of 20: p = 2 / 2^5, though the interval is above zero; 7.8489 * (15 / 76) / 0.1^2 = 154.9
    cells = [cell(0, NQ, [0.0] * 20), cell(1, NQ, [1.0] * 5 + [0.0] * 15)]
    (one,) = compare(claim(datasets=("nq",)), PRINTED, cells)
    assert one.verdict == "undecided" and one.ours and one.ours.low > 0 and one.needed == 155


def test_each_and_average() -> None:
    cells = [
        cell(0, NQ, [0.0] * 20), cell(1, NQ, [1.0] * 20),
        cell(0, WEBQ, [0.5] * 20), cell(1, WEBQ, [0.25] * 20),
    ]  # fmt: skip
    each = compare(claim(), PRINTED, cells)
    assert [one.verdict for one in each] == ["replicated", "contradicted"]
    assert overall(each) == "contradicted"
    (mean,) = compare(claim(over="average"), PRINTED, cells)
    # (100 - 25) / 2 points; the paper's (10 + 2) / 2
    assert mean.ours is not None and mean.ours.mean == 37.5 and mean.printed == 6.0


def test_the_mean_of_all_columns() -> None:
    """Metrics of a data set have the same questions; a trigger ratio is printed for one set."""
    printed = PRINTED._replace(units={**PRINTED.units, "mean_of_8_columns": "percent"}, rows=(
        printed_row("base", {"nq": {"EM": 30.0, "trigger": 90.0}, "webq": {"EM": 50.0},
                             "average": {"mean_of_8_columns": 56.0}}),
        printed_row("ours", {"nq": {"EM": 40.0, "trigger": 80.0}, "webq": {"EM": 56.0},
                             "average": {"mean_of_8_columns": 58.0}}),
    ))  # fmt: skip
    values = {("EM", 0): [0.0, 1, 1, 0], ("EM", 1): [1.0, 0, 1, 0]}
    values |= {("trigger", 0): [0.0, 0, 0, 0], ("trigger", 1): [1.0, 1, 1, 1]}
    places = [(NQ, "EM"), (NQ, "trigger"), (WEBQ, "EM")]
    cells = [
        cell(row, col, values[metric, row], metric) for col, metric in places for row in (0, 1)
    ]
    whole = claim(metric="mean_of_8_columns", over="average")
    (mean,) = compare(whole, printed, cells)
    # differences of means: 0, 100, 0; printed: (10 - 10 + 6) / 3
    assert mean.ours is not None and mean.ours.mean == pytest.approx(100 / 3)
    assert mean.printed == 2.0 and mean.ours.n == 8 and mean.paired
    # spreads 81.65 + 0 on nq and 81.65 on webq: hypot / 3 = 38.49; 7.8489 * 38.49^2 / 2^2 = 2907.0
    assert mean.needed == 2907
    assert printed_effects(whole, printed) == [2.0]
    each = compare(claim(metric="mean_of_8_columns"), printed, cells)
    assert [one.subject for one in each] == [
        "nq, EM, against Base", "nq, trigger, against Base", "webq, EM, against Base",
    ]  # fmt: skip
    (lacking,) = compare(whole, printed, cells[:-1])
    assert lacking.ours is None


def test_equal_differences_have_no_width_but_are_no_single_measurement() -> None:
    same = [cell(row, NQ, [value] * 6) for row, value in ((1, 1.0), (0, 0.0))]
    (one,) = compare(claim(datasets=("nq",)), PRINTED, same)
    assert not one.once and one.verdict == "replicated"


def test_a_bound() -> None:
    # our trigger ratio is 50 % with an interval of 10 points: 30 points below 80 %
    cells = [cell(1, NQ, [0.0, 1.0], "trigger")]
    bounded = claim(theirs=(), metric="trigger", lower=True, bound=80.0)
    (one,) = compare(bounded, PRINTED, cells)
    assert one.ours is not None and one.ours[:3] == pytest.approx((30.0, 20.0, 40.0))
    assert one.printed == 5.0 and one.subject == "nq, against 80"


def test_what_is_missing_is_not_measured() -> None:
    found = compare(claim(), PRINTED, [cell(1, NQ, [1.0])])
    assert [one.verdict for one in found] == ["not measured"]
    assert overall([]) == "not measured"
    done = Comparison("nq", "percent", Interval(1, 0.5, 2, 9), p=0.01)
    assert overall([done]) == "replicated"
    assert overall([done, done._replace(p=0.06)]) == "undecided"
    with pytest.raises(KeyError, match="has no row"):
        rows_of({"method": "other"}, PRINTED, "EM")


def test_seeds_of_trainings_count_in_a_comparison() -> None:
    """A gain on every question that only one seed of three has is not replicated."""
    names = [f"q{i}" for i in range(40)]

    def trained(gain: float) -> Measured:
        return Measured(interval(np.full(40, gain)), dict.fromkeys(names, gain))

    ours = over_seeds([trained(0.9), trained(0.0), trained(0.1)])
    theirs = Measured(interval(np.zeros(40)), dict.fromkeys(names, 0.0))
    cells = [cell(row, NQ, [0.0])._replace(ours=one) for row, one in ((1, ours), (0, theirs))]
    (one,) = compare(claim(datasets=("nq",)), PRINTED, cells)
    # Student's interval of 90, 0 and 10: 33.3 +- 4.303 * 49.3 / sqrt(3)
    assert one.ours is not None and one.ours.low == pytest.approx(33.333 - 122.5, abs=0.2)
    assert one.p == pytest.approx(0.362, abs=0.001) and one.verdict == "undecided"
