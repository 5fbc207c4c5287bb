"""Claims of the papers, each tied to cells of a table, with a verdict from our runs.

A claim says that one row is better than another. Each comparison is a difference whose 95 %
interval is paired over the questions that both rows answered:

- replicated: the interval is above zero for every comparison of the claim;
- contradicted: it is below zero for at least one;
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

from jaxrag.evaluation.significance import Interval, needed_questions
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
    """

    subject: str
    unit: str
    printed: float | None
    ours: Interval | None
    needed: int | None
    once: bool = False
    paired: bool = True

    @property
    def verdict(self) -> Verdict:
        """What our interval says."""
        if self.ours is None:
            return "not measured"
        if self.once:
            return "undecided"
        if self.ours.low > 0:
            return "replicated"
        return "contradicted" if self.ours.high < 0 else "undecided"


def overall(comparisons: Sequence[Comparison]) -> Verdict:
    """The verdict on a claim: of its worst comparison."""
    found = {one.verdict for one in comparisons}
    for verdict in _WORST_FIRST:
        if verdict in found:
            return verdict
    return "not measured"


def compare(claim: Claim, printed: PrintedTable, cells: Sequence[Cell]) -> list[Comparison]:
    """The comparisons of a claim, of cells of its table at any scale."""
    known = {(c.row, c.column, c.metric): c for c in cells}
    wanted = [c.column for c in cells if claim.metric in (c.metric, MEAN_OF_ALL)]
    columns = [column for column in dict.fromkeys(wanted) if column.data != AVERAGE]
    ours = rows_of(claim.ours, printed, claim.metric)[0]
    others = [n for where in claim.theirs for n in rows_of(where, printed, claim.metric)]
    found = []
    for theirs in others or [None]:
        pair = _Pair(claim, printed, ours, theirs)
        each = [one for column in columns for one in pair.on(column, known)]
        found += each if claim.over == "each" else pair.averaged(each)
    return [one.comparison for one in found]


def printed_effects(claim: Claim, printed: PrintedTable) -> list[float]:
    """The paper's own differences of a claim's comparisons, better is positive."""
    ours = rows_of(claim.ours, printed, claim.metric)[0]
    others = [n for where in claim.theirs for n in rows_of(where, printed, claim.metric)]
    found = []
    for theirs in others or [None]:
        pair = _Pair(claim, printed, ours, theirs)
        shared = pair.shared(printed.rows[ours].datasets)
        groups = [[one] for one in shared] if claim.over == "each" else [shared]
        found += [pair.effect(group) for group in groups]
    return [one for one in found if one is not None]


def rows_of(where: Where, printed: PrintedTable, metric: str) -> list[int]:
    """The numbers of the rows that match ``where`` and have a metric.

    Raises:
      KeyError: there is none.
    """
    found = [
        number
        for number, row in enumerate(printed.rows)
        if all(_attribute(row, name) == value for name, value in where.items())
        and any(metric in cells for cells in row.values.values())
    ]
    if not found:
        raise KeyError(f"{printed.id} has no row {dict(where)} with {metric}")
    return found


def _attribute(row: PrintedRow, name: str) -> Any:
    return row.other[name] if name in row.other else getattr(row, name, None)


class _Value(NamedTuple):
    """A printed value of a row: its data set and metric."""

    dataset: str
    metric: str


class _Difference(NamedTuple):
    """Our difference in the table's unit; ``spread`` is the standard deviation of a question's."""

    interval: Interval | None = None
    spread: float = math.nan
    paired: bool = True


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
        found = []
        for name, metric in values:
            mine = self.printed.rows[self.ours].values[name][metric]
            other: float | None = self.claim.bound
            if self.theirs is not None:
                other = self.printed.rows[self.theirs].values[name][metric]
            if mine is None or other is None:
                return None
            found.append(self._sign * (mine - self.claim.factor * other))
        return sum(found) / len(found) if found else None

    def on(self, column: Column, known: Mapping[_CellKey, Cell]) -> list[_Compared]:
        """The comparisons on a column, one for each metric."""
        shared = self.shared(column.datasets)
        return [
            self._of_metric(column, metric, [one for one in shared if one.metric == metric], known)
            for metric in dict.fromkeys(one.metric for one in shared)
        ]

    def _of_metric(
        self, column: Column, metric: str, values: Sequence[_Value], known: Mapping[_CellKey, Cell]
    ) -> _Compared:
        unit = self.printed.units[metric]
        found, spread, paired = self._measured(
            column, metric, known, 100 if unit in _PERCENT else 1
        )
        effect = self.effect(values)
        shown = effect if column.same else None
        named = f", {metric}" if self.claim.metric == MEAN_OF_ALL else ""
        subject = f"{column.heading}{named}, {self._against}"
        needed = _needed(found, spread, effect)
        once = found is not None and found.low == found.high and math.isnan(spread)
        comparison = Comparison(subject, unit, shown, found, needed, once, paired)
        return _Compared(comparison, column, spread)

    def _measured(
        self, column: Column, metric: str, known: Mapping[_CellKey, Cell], factor: int
    ) -> _Difference:
        ours = known.get((self.ours, column, metric))
        if ours is None or ours.ours is None or not ours.ours.interval.n:
            return _Difference()
        mine = _scaled(ours.ours, self._sign * factor)
        if self.theirs is None:
            bound = self._sign * self.claim.bound
            spread = _spread(list(mine.values.values()))
            return _Difference(_shifted(mine.interval, -bound), spread)
        theirs = known.get((self.theirs, column, metric))
        if theirs is None or theirs.ours is None or not theirs.ours.interval.n:
            return _Difference()
        other = _scaled(theirs.ours, self._sign * factor * self.claim.factor)
        if mine.values and other.values:
            found = difference(mine, other)
            return _Difference(found.interval, _spread(list(found.values.values())))
        return _Difference(unpaired(mine.interval, other.interval), paired=False)

    def averaged(self, each: Sequence[_Compared]) -> list[_Compared]:
        """The comparison of the means over columns."""
        if not each:
            return []
        known = [one.comparison.ours for one in each]
        whole = [one for one in known if one is not None]
        sets = [one.column for one in each]
        found = mean_interval(whole, sets) if len(whole) == len(known) else None
        effect = self.effect(self.shared(self.printed.rows[self.ours].datasets))
        # Equal numbers of questions of m sets: the variance is (sum of their variances) / m^2 / n.
        # Metrics of the same questions: as if they rose and fell together.
        spreads = [sum(one.spread for one in each if one.column == c) for c in dict.fromkeys(sets)]
        spread = math.hypot(*spreads) / len(each)
        unit, subject = self.printed.units[self.claim.metric], f"average, {self._against}"
        needed = _needed(found, spread, effect)
        once = any(one.comparison.once for one in each)
        paired = all(one.comparison.paired for one in each)
        comparison = Comparison(subject, unit, effect, found, needed, once, paired)
        return [_Compared(comparison, Column(AVERAGE, ()), spread)]


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def _shifted(interval: Interval, by: float) -> Interval:
    return Interval(*(end + by for end in interval[:3]), n=interval.n)


def _scaled(value: Measured, factor: float) -> Measured:
    mean, *ends = (factor * part for part in value.interval[:3])
    interval = Interval(mean, min(ends), max(ends), value.interval.n)
    return Measured(interval, {name: factor * one for name, one in value.values.items()})


def unpaired(ours: Interval, theirs: Interval) -> Interval:
    """The difference of two means without values a question, as if they were independent."""
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
                "subject": one.subject,
                "unit": one.unit,
                "printed": one.printed,
                "ours": None if one.ours is None else one.ours._asdict(),
                "verdict": one.verdict,
                "needed": one.needed,
                "once": one.once,
                "paired": one.paired,
            }
            for one in comparisons
        ],
    }
