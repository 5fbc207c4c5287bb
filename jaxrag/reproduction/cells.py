"""The cells of a reproduced table: the printed number, ours with its interval, and whether they
agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrag.evaluation.printed import AVERAGE, PrintedRow, PrintedTable
from jaxrag.evaluation.significance import Interval, paired_difference
from jaxrag.reproduction.measures import USUAL, Measured, Results
from jaxrag.reproduction.tables import Column, Delta, Scale, Table
from jaxrag.types import InputError

_PERCENT = ("percent", "points")


class Cell(NamedTuple):
    """A value of a table.

    Attributes:
      row: number of the printed row.
      column, metric: where it stands.
      unit: of both values.
      printed: the paper's value; None where it prints none, or for other questions.
      ours: None if it was not measured.
      doubt: why the printed value is not certain.
      comparable: whether ours was measured in the paper's setting.
    """

    row: int
    column: Column
    metric: str
    unit: str
    printed: float | None
    ours: Measured | None
    doubt: str
    comparable: bool

    @property
    def interval(self) -> Interval | None:
        """Ours with its interval, in the table's unit."""
        if self.ours is None or not self.ours.interval.n:
            return None
        factor = 100 if self.unit in _PERCENT else 1
        mean, low, high, n = self.ours.interval
        return Interval(factor * mean, factor * low, factor * high, n)

    @property
    def agrees(self) -> bool | None:
        """Whether the printed value lies in our interval; None where they cannot be compared."""
        if not self.comparable or self.printed is None or self.interval is None:
            return None
        return self.interval.low <= self.printed <= self.interval.high


def table_cells(
    table: Table,
    printed: PrintedTable,
    scale: Scale,
    results: Mapping[tuple[int, str], Results],
    *,
    whole: bool = True,
) -> list[Cell]:
    """The cells of a table whose jobs have been executed.

    Args:
      table: the declaration.
      printed: the printed table.
      scale: of the results.
      results: by row and questions, as `work.add_table` returns them.
      whole: whether runs answered all questions.
    """
    reader = _Reader(table, printed, results)
    columns = [Column(data, names) for data, names in table.columns(printed, scale).items()]
    found = []
    for number, row in enumerate(printed.rows):
        values = table.values(row)
        own = [column for column in columns if set(column.datasets) & set(values)]
        for column in own:
            names = [name for name in column.datasets if name in values]
            for metric in dict.fromkeys(m for name in names for m in values[name]):
                found.append(
                    Cell(
                        number,
                        column,
                        metric,
                        printed.units[metric],
                        values[names[0]][metric] if column.same else None,
                        reader.measure(number, column.data, metric),
                        row.doubts.get(f"{names[0]} {metric}", row.doubts.get("", "")),
                        scale == "paper" and whole,
                    )
                )
        if AVERAGE in row.values:
            found += _averages(number, row, found, printed, comparable=scale == "paper" and whole)
    return found


def _averages(
    number: int, row: PrintedRow, cells: Sequence[Cell], printed: PrintedTable, *, comparable: bool
) -> list[Cell]:
    """The means over a row's columns."""
    found = []
    for metric, value in row.values[AVERAGE].items():
        own = [c for c in cells if c.row == number and metric in (c.metric, MEAN_OF_ALL)]
        known = [cell.ours.interval for cell in own if cell.ours and cell.ours.interval.n]
        mean = Measured(mean_interval(known)) if len(known) == len(own) and own else None
        column = Column(AVERAGE, ())
        doubt = row.doubts.get(f"{AVERAGE} {metric}", row.doubts.get("", ""))
        shown = value if comparable else None
        found.append(
            Cell(number, column, metric, printed.units[metric], shown, mean, doubt, comparable)
        )
    return found


MEAN_OF_ALL = "mean_of_8_columns"
"""A mean over all data sets and metrics of a row (ARS-RAG's Table 1)."""


def mean_interval(intervals: Sequence[Interval]) -> Interval:
    """The mean of means of independent sets of questions, with an approximate 95 % interval.

    The variances that the half-widths imply are added, as for normal distributions. ``n`` is the
    number of all questions.
    """
    count = len(intervals)
    mean = sum(one.mean for one in intervals) / count
    low = math.sqrt(sum((one.mean - one.low) ** 2 for one in intervals)) / count
    high = math.sqrt(sum((one.high - one.mean) ** 2 for one in intervals)) / count
    return Interval(mean, mean - low, mean + high, sum(one.n for one in intervals))


class _Reader:
    """Measures cells, each once."""

    def __init__(
        self, table: Table, printed: PrintedTable, results: Mapping[tuple[int, str], Results]
    ):
        self._table, self._printed, self._results = table, printed, results
        self._known: dict[tuple[int, str, str], Measured | None] = {}

    def measure(self, row: int, data: str, metric: str) -> Measured | None:
        """The value of a row; None where its jobs were not executed, or the metric is left out."""
        key = row, data, metric
        if key not in self._known:
            self._known[key] = self._measured(*key)
        return self._known[key]

    def _measured(self, row: int, data: str, metric: str) -> Measured | None:
        found, printed = self._results.get((row, data)), self._printed.rows[row]
        if found is None or self._table.reason(printed, metric) or not found.there:
            return None
        if metric in self._table.deltas:
            return self._difference(row, data, self._table.deltas[metric])
        measures = {**USUAL, **self._table.measures, **self._table.lines[printed.method].measures}
        return measures[metric](found)

    def _difference(self, row: int, data: str, delta: Delta) -> Measured | None:
        rows = self._printed.rows
        other = rows.index(delta.baseline(rows[row], rows))
        ours = self.measure(row, data, delta.metric)
        theirs = self.measure(other, data, delta.metric)
        if ours is None or theirs is None:
            return None
        return difference(ours, theirs)


def difference(ours: Measured, theirs: Measured) -> Measured:
    """Ours minus theirs, paired on the questions that both answered."""
    names = [name for name in ours.values if name in theirs.values]
    pairs = np.array([(ours.values[name], theirs.values[name]) for name in names]).reshape(-1, 2)
    found = paired_difference(pairs[:, 0], pairs[:, 1])
    values = dict(zip(names, (pairs[:, 0] - pairs[:, 1]).tolist(), strict=True))
    return Measured(Interval(*found[:4]), values)


def as_json(cells: Sequence[Cell], printed: PrintedTable) -> list[dict[str, Any]]:
    """The cells as plain JSON, without the values of single questions."""
    lines = []
    for cell in cells:
        row, found = printed.rows[cell.row], cell.interval
        lines.append(
            {
                "row": cell.row,
                "method": row.method,
                "label": row.label,
                "generator": row.generator,
                "passages": row.passages,
                "data": cell.column.data,
                "datasets": list(cell.column.datasets),
                "metric": cell.metric,
                "unit": cell.unit,
                "printed": cell.printed,
                "ours": None if found is None else found._asdict(),
                "agrees": cell.agrees,
                **({"doubt": cell.doubt} if cell.doubt else {}),
            }
        )
    return lines


def read_cells(record: Mapping[str, Any], file: Path) -> list[Cell]:
    """The cells of a table's record, as `as_json` wrote them; no values of single questions.

    Args:
      record: of the table.
      file: where it was read, for the message.

    Raises:
      InputError: they are damaged.
    """
    try:
        return [_read_cell(line) for line in record.get("cells", ())]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{file} has cells that cannot be read ({error!r}): make the table again."
        ) from error


def _read_cell(line: Mapping[str, Any]) -> Cell:
    ours, unit = line["ours"], str(line["unit"])
    factor = 100 if unit in _PERCENT else 1
    if ours is not None:
        mean, low, high = (float(ours[name]) / factor for name in ("mean", "low", "high"))
        ours = Measured(Interval(mean, low, high, int(ours["n"])))
    return Cell(
        row=int(line["row"]),
        column=Column(str(line["data"]), tuple(map(str, line["datasets"]))),
        metric=str(line["metric"]),
        unit=unit,
        printed=None if line["printed"] is None else float(line["printed"]),
        ours=ours,
        doubt=str(line.get("doubt", "")),
        comparable=line["agrees"] is not None,
    )
