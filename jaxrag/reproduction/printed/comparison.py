"""Cells of a paper's printed table: the printed value, ours with its interval, whether they agree.

Reports of runs and reproduced tables both show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxrag.evaluation.significance import Interval
from jaxrag.reproduction.printed.measured import Measured, difference, mean_interval
from jaxrag.reproduction.printed.tables import AVERAGE, PrintedTable

MEAN_OF_ALL = "mean_of_8_columns"
"""A mean over all data sets and metrics of a row (ARS-RAG's Table 1)."""

PERCENT = ("percent", "points")
"""Units of values that are shares in our records."""


CALIBRATED = "set on training questions"
"""The setting of a gate whose threshold retrieves for a wanted share of training questions."""


class Column(NamedTuple):
    """A column of a printed table.

    Attributes:
      data: our questions; `AVERAGE` for means.
      datasets: the printed data sets that they stand for.
    """

    data: str
    datasets: tuple[str, ...]

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
      row: number of the printed row.
      column, metric: where it stands.
      unit: of both values.
      printed: the paper's value; None where it prints none, or for other questions.
      ours: None if it was not measured.
      doubt: why the printed value is not certain.
      comparable: whether ours was measured in the paper's setting.
      model, retriever: names of what the row ran with; "" if not known.
      setting: of the run's gate, such as "u = 0.2", or `CALIBRATED`; "" if not known.
    """

    row: int
    column: Column
    metric: str
    unit: str
    printed: float | None
    ours: Measured | None
    doubt: str
    comparable: bool
    model: str = ""
    retriever: str = ""
    setting: str = ""

    @property
    def interval(self) -> Interval | None:
        """Our value with its interval, in the table's unit."""
        if self.ours is None or not self.ours.interval.n:
            return None
        return self.scaled(self.ours.interval)

    def scaled(self, interval: Interval) -> Interval:
        """An interval in the table's unit."""
        factor = 100 if self.unit in PERCENT else 1
        mean, low, high, n = interval
        return Interval(factor * mean, factor * low, factor * high, n)

    @property
    def deviations(self) -> dict[str, float]:
        """Sample standard deviations, in the table's unit, of a mean over seeds of trainings.

        Of the "seeds": between their means; of the "questions": between theirs, if it is a mean
        over questions. Empty for one seed.
        """
        if self.ours is None or not self.ours.seeds:
            return {}
        factor = 100 if self.unit in PERCENT else 1
        means = {
            "seeds": [one.interval.mean for one in self.ours.seeds],
            "questions": [*self.ours.values.values()],
        }
        return {
            name: factor * float(np.std(some, ddof=1))
            for name, some in means.items()
            if len(some) > 1
        }

    @property
    def agrees(self) -> bool | None:
        """Whether the printed value lies in our interval; None where they cannot be compared."""
        if not self.comparable or self.printed is None or self.interval is None:
            return None
        return self.interval.low <= self.printed <= self.interval.high


class CellMaker:
    """Makes the cells of a printed table; each value is measured once.

    Args:
      printed: the table.
      columns: all its columns, without that of means.
      read: our value of a row (by its number) in a column, by printed metric; None if it was not
        measured. Printed differences are computed from the values of two rows instead.
      comparable: whether values are measured in the paper's setting.
    """

    def __init__(
        self,
        printed: PrintedTable,
        columns: Sequence[Column],
        read: Callable[[int, Column, str], Measured | None],
        *,
        comparable: bool = False,
    ):
        self._printed, self._columns, self._read = printed, columns, read
        self._comparable = comparable
        self._known: dict[tuple[int, Column, str], Measured | None] = {}

    def of_row(
        self, number: int, values: Mapping[str, Mapping[str, float | None]] | None = None
    ) -> list[Cell]:
        """Cells of the printed row ``number``: of each data set, then the means over data sets.

        ``values``, by data set and metric, stand in for the row's own: some rows print means only.
        """
        row = self._printed.rows[number]
        cells = [*self._of_datasets(number, row.values if values is None else values)]
        if AVERAGE in row.values:
            cells += self._averages(number, cells)
        return cells

    def _of_datasets(
        self, number: int, values: Mapping[str, Mapping[str, float | None]]
    ) -> Iterator[Cell]:
        for column in self._columns:
            names = [name for name in column.datasets if name in values]
            for metric in dict.fromkeys(m for name in names for m in values[name]):
                printed = values[names[0]][metric] if column.same else None
                ours = self._value(number, column, metric)
                yield self._cell(number, column, metric, printed, ours, names[0])

    def _averages(self, number: int, cells: Sequence[Cell]) -> Iterator[Cell]:
        """The means over a row's columns; the printed ones only of the same data sets."""
        for metric, value in self._printed.rows[number].values[AVERAGE].items():
            own = [c for c in cells if metric in (c.metric, MEAN_OF_ALL)]
            measured = [cell.ours.interval for cell in own if cell.ours and cell.ours.interval.n]
            whole = own and len(measured) == len(own)
            sets = [cell.column for cell in own]
            mean = Measured(mean_interval(measured, sets)) if whole else None
            printed = value if all(cell.column.same for cell in own) else None
            yield self._cell(number, Column(AVERAGE, ()), metric, printed, mean, AVERAGE)

    def _cell(
        self,
        number: int,
        column: Column,
        metric: str,
        printed: float | None,
        ours: Measured | None,
        dataset: str,
    ) -> Cell:
        row, unit = self._printed.rows[number], self._printed.units[metric]
        doubt = row.doubts.get(f"{dataset} {metric}", row.doubts.get("", ""))
        return Cell(number, column, metric, unit, printed, ours, doubt, self._comparable)

    def _value(self, number: int, column: Column, metric: str) -> Measured | None:
        key = number, column, metric
        if key not in self._known:
            self._known[key] = self._measured(*key)
        return self._known[key]

    def _measured(self, number: int, column: Column, metric: str) -> Measured | None:
        compared, minus = self._printed.differences.get(metric), self._printed.rows[number].minus
        if compared is None or minus is None:
            return self._read(number, column, metric)
        ours, theirs = (self._value(row, column, compared) for row in (number, minus))
        return None if ours is None or theirs is None else difference(ours, theirs)
