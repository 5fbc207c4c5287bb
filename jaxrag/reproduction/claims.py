"""Claims of the papers, each tied to cells of a table, with a verdict from our runs.

A claim says that one row is better than another. Each comparison is a difference that is paired
over the questions that both rows answered, with a 95 % interval and the p-value of a sign-flip
test, adjusted for the number of the claim's comparisons (Holm):

- replicated: the difference is above zero with p < 0.05 for every comparison of the claim;
- contradicted: it is below zero with p < 0.05 for at least one;
- undecided otherwise, with the number of questions that would decide it at the difference that the
  paper prints, with a power of 80 %. So is what was measured once, such as the seconds of a run,
  which has no interval.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxrag.evaluation.significance import (
    LEVEL,
    Interval,
    holm,
    needed_questions,
    normal_p,
    sign_flip_test,
)
from jaxrag.reproduction.printed.comparison import MEAN_OF_ALL, Cell, Column
from jaxrag.reproduction.printed.measured import Measured, difference, mean_interval
from jaxrag.reproduction.printed.tables import AVERAGE, PrintedRow, PrintedTable

Verdict = Literal["replicated", "contradicted", "undecided", "not measured"]
_CellKey = tuple[int, Column, str]
"""Row, column and metric of a cell."""
Where = Mapping[str, Any]
"""Identifies a row of a printed table: attributes of `PrintedRow`, or entries of its ``other``."""

_WORST_FIRST: tuple[Verdict, ...] = ("contradicted", "not measured", "undecided", "replicated")
_PERCENT = ("percent", "points")


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of a paper about a table.

    Attributes:
      id: such as "dtr/best-average".
      text: the claim in our words.
      source: where the paper makes it.
      table: the printed table.
      ours, theirs: the row that is better, and those that it is compared with.
      metric: printed metric that is compared. `MEAN_OF_ALL`: all metrics of all data sets, their
        mean with ``over="average"``, else each for itself.
      over: "each" data set for itself, or their "average".
      factor: the others' value is multiplied by it: 0.9 claims that 90 % are reached.
      lower: whether a lower value is better.
      datasets: that are compared; empty for all that both rows have.
      bound: without ``theirs``: a number in the table's unit, with which the row is compared.
    """

    id: str
    text: str
    source: str
    table: str
    ours: Where
    theirs: Sequence[Where]
    metric: str = "EM"
    over: Literal["each", "average"] = "each"
    factor: float = 1.0
    lower: bool = False
    datasets: tuple[str, ...] = ()
    bound: float = math.nan


class Comparison(NamedTuple):
    """A comparison of two rows.

    Attributes:
      subject: what is compared: the questions and the other row.
      unit: of the values.
      printed: the paper's difference, better is positive; None where it prints none.
      ours: our difference with its interval; None if it was not measured.
      needed: questions (of each data set) that would decide it; None if it is decided or not known.
      once: whether a single measurement was made, so that the interval has no width.
      paired: whether the values of the same questions were compared; else two independent means.
      p: two-sided p-value, adjusted for the number of comparisons; NaN where it is not known.
    """

    subject: str
    unit: str
    printed: float | None
    ours: Interval | None
    needed: int | None
    once: bool = False
    paired: bool = True
    p: float = math.nan

    @property
    def verdict(self) -> Verdict:
        """The verdict of this comparison."""
        if self.ours is None:
            return "not measured"
        if self.once or not self.p < 1 - LEVEL:
            return "undecided"
        return "replicated" if self.ours.mean > 0 else "contradicted"


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of a claim with p-values that are adjusted for their number (Holm)."""
    known = [i for i, c in enumerate(comparisons) if not math.isnan(c.p)]
    new = dict(zip(known, holm([comparisons[i].p for i in known]), strict=True))
    return [c._replace(p=new.get(i, c.p)) for i, c in enumerate(comparisons)]


def overall(comparisons: Sequence[Comparison]) -> Verdict:
    """Verdict on a claim: the worst of its comparisons' verdicts."""
    verdicts = {c.verdict for c in comparisons}
    for verdict in _WORST_FIRST:
        if verdict in verdicts:
            return verdict
    return "not measured"


def compare(claim: Claim, printed: PrintedTable, cells: Sequence[Cell]) -> list[Comparison]:
    """The comparisons of a claim, from the cells of its table at one scale."""
    by_place = {(c.row, c.column, c.metric): c for c in cells}
    wanted = [c.column for c in cells if claim.metric in (c.metric, MEAN_OF_ALL)]
    columns = [column for column in dict.fromkeys(wanted) if column.data != AVERAGE]
    ours = rows_of(claim.ours, printed, claim.metric)[0]
    others = [n for where in claim.theirs for n in rows_of(where, printed, claim.metric)]
    compared = []
    for theirs in others or [None]:
        pair = _Pair(claim, printed, ours, theirs)
        each = [value for column in columns for value in pair.on(column, by_place)]
        compared += each if claim.over == "each" else pair.averaged(each)
    return adjusted([value.comparison for value in compared])


def printed_effects(claim: Claim, printed: PrintedTable) -> list[float]:
    """Printed differences of the compared rows; positive where the claim holds."""
    ours = rows_of(claim.ours, printed, claim.metric)[0]
    others = [n for where in claim.theirs for n in rows_of(where, printed, claim.metric)]
    effects = []
    for theirs in others or [None]:
        pair = _Pair(claim, printed, ours, theirs)
        shared = pair.shared(printed.rows[ours].datasets)
        groups = [[cell] for cell in shared] if claim.over == "each" else [shared]
        effects += [pair.effect(group) for group in groups]
    return [effect for effect in effects if effect is not None]


def rows_of(where: Where, printed: PrintedTable, metric: str) -> list[int]:
    """The numbers of the rows that match ``where`` and have a metric.

    Raises:
      KeyError: there is none.
    """
    numbers = [
        number
        for number, row in enumerate(printed.rows)
        if all(_attribute(row, name) == value for name, value in where.items())
        and any(metric in cells for cells in row.values.values())
    ]
    if not numbers:
        raise KeyError(f"{printed.id} has no row {dict(where)} with {metric}")
    return numbers


def _attribute(row: PrintedRow, name: str) -> Any:
    return row.other[name] if name in row.other else getattr(row, name, None)


class _Value(NamedTuple):
    """A printed value of a row: its data set and metric."""

    dataset: str
    metric: str


class _Difference(NamedTuple):
    """Our difference in the table's unit.

    ``spread`` is the standard deviation of a question's difference, ``p`` the p-value, before it
    is adjusted.
    """

    interval: Interval | None = None
    spread: float = math.nan
    paired: bool = True
    p: float = math.nan


class _Compared(NamedTuple):
    """A comparison on a column; ``spread`` is the standard deviation of a question's difference."""

    comparison: Comparison
    column: Column
    spread: float


class _Pair(NamedTuple):
    """Two rows of a table; without ``theirs``, a row and the claim's bound."""

    claim: Claim
    printed: PrintedTable
    ours: int
    theirs: int | None

    @property
    def _sign(self) -> int:
        return -1 if self.claim.lower else 1

    @property
    def _against(self) -> str:
        if self.theirs is None:
            return f"against {self.claim.bound:g}"
        return f"against {self.printed.rows[self.theirs].label}"

    def shared(self, datasets: Sequence[str]) -> list[_Value]:
        """The values of some data sets that are compared."""
        rows = [self.printed.rows[n] for n in (self.ours, self.theirs) if n is not None]
        wanted = self.claim.datasets or datasets
        return [
            _Value(name, metric)
            for name in datasets
            if name in wanted
            for metric in rows[0].values.get(name, {})
            if self.claim.metric in (metric, MEAN_OF_ALL)
            and all(metric in row.values.get(name, {}) for row in rows)
        ]

    def effect(self, values: Sequence[_Value]) -> float | None:
        """The printed difference, better is positive; the mean over several values."""
        differences = []
        for name, metric in values:
            mine = self.printed.rows[self.ours].values[name][metric]
            other: float | None = self.claim.bound
            if self.theirs is not None:
                other = self.printed.rows[self.theirs].values[name][metric]
            if mine is None or other is None:
                return None
            differences.append(self._sign * (mine - self.claim.factor * other))
        return sum(differences) / len(differences) if differences else None

    def on(self, column: Column, cells: Mapping[_CellKey, Cell]) -> list[_Compared]:
        """The comparisons on a column, one for each metric."""
        shared = self.shared(column.datasets)
        return [
            self._of_metric(column, metric, [v for v in shared if v.metric == metric], cells)
            for metric in dict.fromkeys(v.metric for v in shared)
        ]

    def _of_metric(
        self, column: Column, metric: str, values: Sequence[_Value], cells: Mapping[_CellKey, Cell]
    ) -> _Compared:
        unit = self.printed.units[metric]
        factor = 100 if unit in _PERCENT else 1
        ours, spread, paired, p = self._measured(column, metric, cells, factor)
        effect = self.effect(values)
        printed = effect if column.same else None
        named = f", {metric}" if self.claim.metric == MEAN_OF_ALL else ""
        subject = f"{column.heading}{named}, {self._against}"
        needed = _needed(ours, spread, effect)
        once = ours is not None and ours.low == ours.high and math.isnan(spread)
        comparison = Comparison(subject, unit, printed, ours, needed, once, paired, p)
        return _Compared(comparison, column, spread)

    def _measured(
        self, column: Column, metric: str, cells: Mapping[_CellKey, Cell], factor: int
    ) -> _Difference:
        ours = cells.get((self.ours, column, metric))
        if ours is None or ours.ours is None or not ours.ours.interval.n:
            return _Difference()
        mine = _scaled(ours.ours, self._sign * factor)
        if self.theirs is None:
            bound = self._sign * self.claim.bound
            over = _shifted(mine.interval, -bound)
            return _Difference(over, _spread(list(mine.values.values())), p=normal_p(*over[:3]))
        theirs = cells.get((self.theirs, column, metric))
        if theirs is None or theirs.ours is None or not theirs.ours.interval.n:
            return _Difference()
        other = _scaled(theirs.ours, self._sign * factor * self.claim.factor)
        if mine.values and other.values:
            paired = difference(mine, other)
            values = list(paired.values.values())
            return _Difference(paired.interval, _spread(values), p=sign_flip_test(np.array(values)))
        apart = unpaired(mine.interval, other.interval)
        return _Difference(apart, paired=False, p=normal_p(*apart[:3]))

    def averaged(self, each: Sequence[_Compared]) -> list[_Compared]:
        """The comparison of the means over columns."""
        if not each:
            return []
        means = [part.comparison.ours for part in each]
        whole = [mean for mean in means if mean is not None]
        sets = [part.column for part in each]
        ours = mean_interval(whole, sets) if len(whole) == len(means) else None
        effect = self.effect(self.shared(self.printed.rows[self.ours].datasets))
        # Equal numbers of questions of m sets: the variance is (sum of their variances) / m^2 / n.
        # Metrics of the same questions: as if they rose and fell together.
        spreads = [sum(p.spread for p in each if p.column == c) for c in dict.fromkeys(sets)]
        spread = math.hypot(*spreads) / len(each)
        unit, subject = self.printed.units[self.claim.metric], f"average, {self._against}"
        needed = _needed(ours, spread, effect)
        once = any(p.comparison.once for p in each)
        paired = all(p.comparison.paired for p in each)
        p = math.nan if ours is None or once else normal_p(*ours[:3])
        comparison = Comparison(subject, unit, effect, ours, needed, once, paired, p)
        return [_Compared(comparison, Column(AVERAGE, ()), spread)]


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def _shifted(interval: Interval, by: float) -> Interval:
    return Interval(*(end + by for end in interval[:3]), n=interval.n)


def _scaled(value: Measured, factor: float) -> Measured:
    mean, *ends = (factor * part for part in value.interval[:3])
    interval = Interval(mean, min(ends), max(ends), value.interval.n)
    return Measured(interval, {name: factor * v for name, v in value.values.items()})


def unpaired(ours: Interval, theirs: Interval) -> Interval:
    """Difference of two independent means, from their intervals alone."""
    mean = ours.mean - theirs.mean
    low = math.hypot(ours.mean - ours.low, theirs.high - theirs.mean)
    high = math.hypot(ours.high - ours.mean, theirs.mean - theirs.low)
    return Interval(mean, mean - low, mean + high, min(ours.n, theirs.n))


def _needed(ours: Interval | None, spread: float, effect: float | None) -> int | None:
    decided = ours is None or ours.low > 0 or ours.high < 0
    if decided or not effect or not spread > 0:
        return None
    return needed_questions(spread, effect)


def as_json(name: str, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """A claim, by its id, with its verdict as plain JSON."""
    return {
        "id": name,
        "verdict": overall(comparisons),
        "comparisons": [
            {
                "subject": c.subject,
                "unit": c.unit,
                "printed": c.printed,
                "ours": None if c.ours is None else c.ours._asdict(),
                "verdict": c.verdict,
                "needed": c.needed,
                "once": c.once,
                "paired": c.paired,
                "p": None if math.isnan(c.p) else c.p,
            }
            for c in comparisons
        ],
    }
