"""Cells of a printed table, as values and texts: the paper's and ours, and whether they agree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxrag.evaluation.significance import Interval
from jaxrag.reproduction.printed.measured import Measured
from jaxrag.reproduction.printed.tables import AVERAGE, PrintedRow, PrintedTable

MEAN_OF_ALL = "mean_of_8_columns"
"""A mean over all data sets and metrics of a row (ARS-RAG's Table 1)."""

PERCENT = ("percent", "points")
"""Units of values that are shares in our records."""

CALIBRATED = "set on training questions"
"""The setting of a gate whose threshold retrieves for a wanted share of training questions."""


class Column(NamedTuple):
    """A column of a printed table."""

    data: str  # our questions; `AVERAGE` for means
    datasets: tuple[str, ...]  # the printed data sets that they stand for

    @property
    def same(self) -> bool:
        """Whether the questions are of the printed data set."""
        name = self.data.removeprefix("paper-")
        return len(self.datasets) == 1 and (
            name == self.datasets[0] or name.startswith(f"{self.datasets[0]}_")
        )

    @property
    def heading(self) -> str:
        """The name of the questions, with the data sets that they stand for."""
        name = self.data.removeprefix("paper-")
        if self.same or self.data == AVERAGE:
            return name if name == self.data or not self.datasets else self.datasets[0]
        return f"{name} (for {', '.join(self.datasets)})"


class Cell(NamedTuple):
    """A cell of a printed table, with our value.

    Attributes:
      model, retriever: names of what the row ran with; "" if not known.
      seconds: in which its runs answered, on the machines where they ran; 0 if not known.
    """

    row: int  # number of the printed row
    column: Column
    metric: str
    unit: str  # of both values
    printed: float | None  # the paper's value; None where it prints none, or for other questions
    ours: Measured | None  # None if it was not measured
    doubt: str  # why the printed value is not certain
    comparable: bool  # whether ours was measured in the paper's setting
    model: str = ""
    retriever: str = ""
    setting: str = ""  # of the run's gate, such as "u = 0.2", or `CALIBRATED`; "" if not known
    seconds: float = 0.0

    @property
    def interval(self) -> Interval | None:
        """Our value with its interval, in the table's unit."""
        if self.ours is None or not self.ours.interval.n:
            return None
        return self.scaled(self.ours.interval)

    @property
    def factor(self) -> int:
        """What a value of our records is multiplied by for the table's unit."""
        return 100 if self.unit in PERCENT else 1

    def scaled(self, interval: Interval) -> Interval:
        """An interval in the table's unit."""
        return Interval(*(self.factor * value for value in interval[:3]), n=interval.n)

    @property
    def deviations(self) -> dict[str, float]:
        """Sample standard deviations, in the table's unit, of a mean over seeds of trainings.

        Of the "seeds": between their means; of the "questions": between theirs, if it is a mean
        over questions. Empty for one seed.
        """
        if self.ours is None or not self.ours.seeds:
            return {}
        seeds = [seed.interval.mean for seed in self.ours.seeds]
        means = {"seeds": seeds, "questions": [*self.ours.values.values()]}
        return {
            name: self.factor * float(np.std(some, ddof=1))
            for name, some in means.items()
            if len(some) > 1
        }

    @property
    def agrees(self) -> bool | None:
        """Whether the printed value lies in our interval; None where they cannot be compared."""
        if not self.comparable or self.printed is None or self.interval is None:
            return None
        return self.interval.low <= self.printed <= self.interval.high


def cell_text(cell: Cell) -> str:
    """Our value with its interval, the printed one, and whether they agree."""
    ours = " ".join(filter(None, our_text(cell)))
    return "\n".join(filter(None, (ours, printed_text(cell))))


def our_text(cell: Cell) -> tuple[str, str]:
    """Our value, and its interval if it has one; empty if it was not measured."""
    interval, digits = cell.interval, _digits(cell)
    if interval is None:
        return "", ""
    if interval.low == interval.high:
        return f"{interval.mean:.{digits}f}", ""
    ends = f"[{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
    if cell.ours and cell.ours.seeds:
        ends += f", {len(cell.ours.seeds)} seeds (sd {cell.deviations['seeds']:.{digits}f})"
    return f"{interval.mean:.{digits}f}", ends


def printed_text(cell: Cell) -> str:
    """The printed value beside ours, the difference, and whether they agree."""
    if cell.printed is None or cell.interval is None:
        return ""
    text = f"printed {cell.printed:g} ({cell.interval.mean - cell.printed:+.{_digits(cell)}f})"
    if cell.agrees is not None:
        text += " agrees" if cell.agrees else " differs"
    return text + (" (?)" if cell.doubt else "")


def _digits(cell: Cell) -> int:
    return {"percent": 1, "points": 1, "count": 2, "seconds_total": 2}.get(cell.unit, 3)


def metric_label(metric: str, printed: PrintedTable) -> str:
    """A printed metric with its unit."""
    unit = printed.units[metric]
    return f"{metric.replace('_', ' ')}{'' if unit in metric else f', {unit}'}"


def row_label(row: PrintedRow, printed: PrintedTable) -> str:
    """A row's label, with the settings that differ from other rows of the same label."""
    parts: list[str | None] = [row.label]
    same = [other for other in printed.rows if other.label == row.label]
    for name in ("generator", "retriever"):
        if len({getattr(other, name) for other in same}) > 1:
            parts.append(getattr(row, name))
    if len({other.passages for other in same}) > 1 and row.passages is not None:
        parts.append(f"{row.passages} passage{'s' * (row.passages != 1)}")
    for name, value in row.other.items():
        if len({other.other.get(name) for other in same}) > 1:
            parts.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(filter(None, parts))
