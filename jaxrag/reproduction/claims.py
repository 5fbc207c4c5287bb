"""Claims of the papers about tables and figures, with verdicts from the records of ours.

A comparison is a difference with a 95 % interval and a two-sided p-value: over the questions that
both sides answered, by a sign-flip test; over seeds, or seeds and questions, by Student's interval;
else, as between disjoint groups of questions, of two independent means.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxrag.evaluation.significance import (
    LEVEL,
    Interval,
    holm,
    interval_p,
    needed_questions,
    seed_interval,
    sign_flip_test,
)
from jaxrag.reproduction.printed.comparison import MEAN_OF_ALL, PERCENT, Cell, Column
from jaxrag.reproduction.printed.measured import Measured, mean_interval
from jaxrag.reproduction.printed.measured import difference as paired
from jaxrag.reproduction.printed.tables import AVERAGE, PrintedTable

Verdict = Literal["replicated", "contradicted", "undecided", "not measured"]
Where = Mapping[str, Any]
"""Identifies a row of a printed table: attributes of `PrintedRow`, or entries of its ``other``."""

_WORST_FIRST: tuple[Verdict, ...] = ("contradicted", "not measured", "undecided", "replicated")


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of a paper about a table, in our words.

    Attributes:
      ours, theirs: the row that is better, and those that it is compared with.
      over: "each" data set and metric for itself, or their "average".
    """

    id: str  # such as "dtr/best-average"
    text: str
    source: str  # where the paper makes it
    table: str
    ours: Where
    theirs: Sequence[Where]
    metric: str = "EM"  # that is compared; `MEAN_OF_ALL`: all metrics of all data sets
    over: Literal["each", "average"] = "each"
    lower: bool = False  # whether a lower value is better
    datasets: tuple[str, ...] = ()  # that are compared; empty for all that both rows have
    bound: float = math.nan  # compared with instead of ``theirs``, in the table's unit


class At(NamedTuple):
    """A point of a series by its position, from 0 or from -1 for the last; None: a bar."""

    series: str
    at: int | None = -1

    @property
    def label(self) -> str:
        """The point's name in tables."""
        if self.at is None:
            return self.series
        where = {0: "first point", -1: "last point"}.get(self.at, f"point {self.at + 1}")
        return f"{self.series}, {where}"

    def of(self, panel: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The point in the record of a panel; None if its series is not there."""
        points: Any = panel.get(self.series)
        return points[self.at] if points and self.at is not None else points or None


@dataclasses.dataclass(frozen=True)
class FigureClaim:
    """A statement of a paper about a figure, in every panel that shows the named series.

    Attributes:
      id, text, source, lower: as in `Claim`.
      ours, theirs: the point that is higher, and the one that it is compared with, or ``bound``.
      factor: of ``theirs``: 0.9 claims that 90 % of it are reached.
      picture: name of the picture, "" for a figure of one.
      shares: whether the means are shares from 0 to 1, and are shown in percent.
      unit: of the difference and of ``bound``. Values of questions are shares if it is "percent".
      over_seeds: whether a point's values are those of seeds, not of questions.
    """

    id: str
    text: str
    source: str
    figure: str
    ours: At
    theirs: At | None
    lower: bool = False
    factor: float = 1.0
    picture: str = ""
    shares: bool = False
    unit: str = "percent"
    bound: float = 0.0
    over_seeds: bool = False


class Comparison(NamedTuple):
    """A comparison of two rows or points; better is positive.

    Attributes:
      subject: the questions and the other side.
      ours: our difference with its interval; None if it was not measured.
      printed: the paper's difference, if it prints one.
      needed: questions of each data set that would decide what is open; None if not known.
      p: two-sided p-value; NaN where it was measured once, so that the interval has no width.
      paired: whether the values of the same questions were compared; else two independent means.
      spread: standard deviation of a question's difference, or NaN.
      freedom: degrees of freedom of p: of n seeds n - 1, of questions infinitely many.
      cell: of the better side in its table: row, data and metric; None in a figure.
    """

    subject: str
    unit: str
    ours: Interval | None = None
    printed: float | None = None
    needed: int | None = None
    p: float = math.nan
    paired: bool = True
    spread: float = math.nan
    freedom: float = math.inf
    cell: tuple[int, str, str] | None = None

    @property
    def once(self) -> bool:
        """Whether it was measured once."""
        return math.isnan(self.p)

    @property
    def verdict(self) -> Verdict:
        """The verdict of this comparison."""
        if self.ours is None:
            return "not measured"
        if not self.p < 1 - LEVEL:
            return "undecided"
        return "replicated" if self.ours.mean > 0 else "contradicted"


def overall(comparisons: Sequence[Comparison]) -> Verdict:
    """Verdict on a claim: the worst of its comparisons' verdicts."""
    verdicts = {c.verdict for c in comparisons}
    ordered: list[Verdict] = [verdict for verdict in _WORST_FIRST if verdict in verdicts]
    return ordered[0] if ordered else "not measured"


def compare(claim: Claim, printed: PrintedTable, cells: Sequence[Cell]) -> list[Comparison]:
    """The comparisons of a claim, from the cells of its table in one record."""
    by_place = {(c.row, c.column, c.metric): c for c in cells}
    all_columns = [c.column for c in cells if claim.metric in (c.metric, MEAN_OF_ALL)]
    columns = [column for column in dict.fromkeys(all_columns) if column.data != AVERAGE]
    compared: list[Comparison] = []
    for pair in _pairs(claim, printed):
        parts = [c for column in columns for c in _compare_on(column, pair, by_place)]
        compared += [_averaged(pair, parts)] if parts and claim.over == "average" else parts
    return _adjusted(compared)


def compare_points(claim: FigureClaim, pictures: Mapping[str, Any]) -> list[Comparison]:
    """A comparison for each panel of a claim's picture; KeyError if that is not there."""

    def measured(point: Mapping[str, Any] | None) -> Measured | None:
        if point is None:
            return None
        scale, of_values = 100 if claim.shares else 1, 100 if claim.unit == "percent" else 1
        ends = (scale * point[name] for name in ("mean", "low", "high"))
        values = {name: of_values * value for name, value in point.get("values", {}).items()}
        return Measured(Interval(*ends, n=int(point.get("n", 0))), values)

    compared = []
    against = f"{claim.bound:g}" if claim.theirs is None else claim.theirs.label
    against = against if claim.factor == 1 else f"{claim.factor:g} x {against}"
    for panel, series in pictures[claim.picture or claim.figure].items():
        blank = Comparison(f"{panel}, {claim.ours.label}, against {against}", claim.unit)
        ours = measured(claim.ours.of(series))
        theirs = measured(claim.theirs.of(series)) if claim.theirs else claim.bound
        compared.append(_measured(blank, ours, theirs, claim.lower, claim.factor, claim.over_seeds))
    return _adjusted(compared)


def _adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of a claim with p-values adjusted for the number of those made (Holm)."""
    known = [i for i, c in enumerate(comparisons) if not math.isnan(c.p)]
    new = dict(zip(known, holm([comparisons[i].p for i in known]), strict=True))
    changed = [c._replace(p=new.get(i, c.p)) for i, c in enumerate(comparisons)]
    return [c if c.verdict == "undecided" else c._replace(needed=None) for c in changed]


def _measured(
    comparison: Comparison,
    ours: Measured | None,
    theirs: Measured | float | None,
    lower: bool,
    factor: float = 1.0,
    over_seeds: bool = False,
) -> Comparison:
    """A comparison with our difference: ours - factor * theirs, its sign turned for "lower"."""
    if ours is None or theirs is None:
        return comparison
    bounded, other = isinstance(theirs, float), theirs
    if not isinstance(other, Measured):
        other = Measured(Interval(other, other, other, ours.interval.n))
    sign = -1 if lower else 1
    mine, other = _times(sign, ours), _times(sign * factor, other)
    gaps = np.array([v - other.values[n] for n, v in mine.values.items() if n in other.values])
    seeds = len(gaps) if over_seeds else max(len(ours.seeds), len(other.seeds))
    freedom = seeds - 1 if seeds > 1 else math.inf
    if not len(gaps):
        difference = _apart(mine.interval, other.interval)
    elif over_seeds:
        difference = seed_interval(gaps)
    else:
        difference = paired(mine, other).interval
    by_questions = len(gaps) and not over_seeds and seeds < 2
    p = sign_flip_test(gaps) if by_questions else interval_p(*difference[:3], freedom=freedom)
    flat = difference.low == difference.high
    once = flat and (len(gaps) < 2 if over_seeds else not ours.values)
    spread = [*ours.values.values()] if bounded else gaps
    return comparison._replace(
        ours=difference,
        p=math.nan if once else p,
        paired=bool(len(gaps)) or bounded or once,
        spread=float(np.std(spread, ddof=1)) if len(spread) > 1 else math.nan,
        freedom=freedom,
    )


def _times(factor: float, measured: Measured) -> Measured:
    """A value times a factor, in all its parts."""
    mean, *ends = (factor * end for end in measured.interval[:3])
    values = {name: factor * value for name, value in measured.values.items()}
    seeds = tuple(_times(factor, seed) for seed in measured.seeds)
    return Measured(Interval(mean, *sorted(ends), n=measured.interval.n), values, seeds)


def _apart(ours: Interval, theirs: Interval) -> Interval:
    """Difference of two independent means, from their intervals alone."""
    mean = ours.mean - theirs.mean
    low = math.hypot(ours.mean - ours.low, theirs.high - theirs.mean)
    high = math.hypot(ours.high - ours.mean, theirs.mean - theirs.low)
    return Interval(mean, mean - low, mean + high, n=min(ours.n, theirs.n) or ours.n)


def printed_effects(claim: Claim, printed: PrintedTable) -> list[float]:
    """Printed differences of the compared rows; positive where the claim holds."""
    effects = ([*pair.effects.values()] for pair in _pairs(claim, printed))
    means = (some if claim.over == "each" else [_mean(some)] for some in effects)
    return [mean for some in means for mean in some if mean is not None]


def rows_of(where: Where, printed: PrintedTable, metric: str) -> list[int]:
    """The numbers of the rows that match ``where`` and have a metric; KeyError if there is none."""
    numbers = [
        number
        for number, row in enumerate(printed.rows)
        if all(row.other.get(k, getattr(row, k, None)) == value for k, value in where.items())
        and any(metric in cells for cells in row.values.values())
    ]
    if not numbers:
        raise KeyError(f"{printed.id} has no row {dict(where)} with {metric}")
    return numbers


class _Pair(NamedTuple):
    """Two rows that a claim compares, or a row and, without ``theirs``, the claim's bound.

    ``effects`` are printed differences by data set and metric, better is positive; None where the
    paper leaves a value out.
    """

    claim: Claim
    printed: PrintedTable
    ours: int
    theirs: int | None
    effects: Mapping[tuple[str, str], float | None]

    def comparison(self, subject: str, data: str, metric: str) -> Comparison:
        """A comparison without values yet."""
        bound, unit = f"{self.claim.bound:g}", self.printed.units[metric]
        reference = bound if self.theirs is None else self.printed.rows[self.theirs].label
        return Comparison(f"{subject}, against {reference}", unit, cell=(self.ours, data, metric))


def _pairs(claim: Claim, printed: PrintedTable) -> Iterator[_Pair]:
    ours = rows_of(claim.ours, printed, claim.metric)[0]
    others = [n for where in claim.theirs for n in rows_of(where, printed, claim.metric)]
    for theirs in others or [None]:
        first, last = printed.rows[ours], printed.rows[ours if theirs is None else theirs]
        effects: dict[tuple[str, str], float | None] = {}
        for name in claim.datasets or first.datasets:
            for metric, mine in first.values.get(name, {}).items():
                theirs_too = metric in last.values.get(name, {})
                if not theirs_too or claim.metric not in (metric, MEAN_OF_ALL):
                    continue
                other = claim.bound if theirs is None else last.values[name][metric]
                effects[name, metric] = None
                if mine is not None and other is not None:
                    effects[name, metric] = other - mine if claim.lower else mine - other
        yield _Pair(claim, printed, ours, theirs, effects)


def _mean(effects: Sequence[float | None]) -> float | None:
    """None where a value is not printed, or nothing is compared."""
    known = [effect for effect in effects if effect is not None]
    return sum(known) / len(known) if known and len(known) == len(effects) else None


def _compare_on(
    column: Column, pair: _Pair, cells: Mapping[tuple[int, Column, str], Cell]
) -> Iterator[Comparison]:
    """The comparisons of two rows on a column, one for each metric."""
    claim, effects = pair.claim, {v: e for v, e in pair.effects.items() if v[0] in column.datasets}
    for metric in dict.fromkeys(metric for _, metric in effects):
        effect = _mean([effect for (_, name), effect in effects.items() if name == metric])
        suffix = f", {metric}" if claim.metric == MEAN_OF_ALL else ""
        one = pair.comparison(f"{column.heading}{suffix}", column.data, metric)
        ours, theirs = (
            None if row is None else _cell_value(cells.get((row, column, metric)))
            for row in (pair.ours, pair.theirs)
        )
        one = _measured(one, ours, claim.bound if pair.theirs is None else theirs, claim.lower)
        yield one._replace(printed=effect if column.same else None, needed=_needed(one, effect))


def _cell_value(cell: Cell | None) -> Measured | None:
    """A cell's value in its table's unit; None if it was not measured."""
    if cell is None or cell.ours is None or cell.interval is None:
        return None
    return _times(100 if cell.unit in PERCENT else 1, cell.ours)


def _averaged(pair: _Pair, parts: Sequence[Comparison]) -> Comparison:
    """The comparison of the means over columns."""
    effect = _mean([*pair.effects.values()])
    comparison = pair.comparison("average", AVERAGE, pair.claim.metric)._replace(printed=effect)
    means = [part.ours for part in parts if part.ours is not None]
    if len(means) < len(parts):
        return comparison
    sets = [part.cell and part.cell[1] for part in parts]
    ours, once = mean_interval(means, sets), any(part.once for part in parts)
    freedom = min(part.freedom for part in parts)
    # Equal numbers of questions of m sets: the variance is (sum of their variances) / m^2 / n.
    # Metrics of the same questions: as if they rose and fell together.
    pairs = list(zip(sets, parts, strict=True))
    spreads = (sum(p.spread for s, p in pairs if s == data) for data in dict.fromkeys(sets))
    comparison = comparison._replace(
        ours=ours,
        p=math.nan if once else interval_p(*ours[:3], freedom=freedom),
        freedom=freedom,
        paired=all(part.paired for part in parts),
        spread=math.hypot(*spreads) / len(parts),
    )
    return comparison._replace(needed=_needed(comparison, effect))


def _needed(comparison: Comparison, effect: float | None) -> int | None:
    known = comparison.ours is not None and comparison.spread > 0
    return needed_questions(comparison.spread, effect) if effect and known else None
