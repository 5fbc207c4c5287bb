"""The cells of a reproduced table, and their record."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.evaluation.significance import Interval
from jaxrag.evaluation.summary import name_of
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.printed.comparison import CALIBRATED, MEAN_OF_ALL, PERCENT, Cell, Column
from jaxrag.reproduction.printed.measured import Measured, difference, mean_interval
from jaxrag.reproduction.printed.models import same_model, shown_name
from jaxrag.reproduction.printed.tables import AVERAGE, PrintedTable
from jaxrag.reproduction.tables import Scale, Table
from jaxrag.types import InputError


def table_cells(
    table: Table,
    printed: PrintedTable,
    scale: Scale,
    results: Mapping[tuple[int, str], Results],
    *,
    whole: bool = True,
    substituted: bool = False,
) -> list[Cell]:
    """The cells of a table whose jobs have been executed, by rows, means over data sets last.

    Args:
      table: the declaration.
      printed: the printed table.
      scale: of the results.
      results: by row and questions, as `work.add_table` returns them.
      whole: whether runs answered all questions.
      substituted: whether other models or data stand for the paper's; then no printed value stands
        beside ours.
    """
    paper = scale == "paper" and not substituted
    measured = _Measured(table, printed, scale, results)
    cells: list[Cell] = []
    for number, row in enumerate(printed.rows):
        facts = measured.facts(number)
        model = facts.get("model", "")
        same = not model or not row.generator or same_model(row.generator, model)
        for cell in measured.row(number):
            value = cell.printed if paper and same else None
            outputs = results.get((number, cell.column.data))
            spent = outputs.seconds if outputs else 0.0
            cells.append(
                cell._replace(printed=value, comparable=paper and whole, seconds=spent, **facts)
            )
    return cells


class _Measured:
    """Our values of a table; each is measured once."""

    def __init__(
        self,
        table: Table,
        printed: PrintedTable,
        scale: Scale,
        results: Mapping[tuple[int, str], Results],
    ):
        self._table, self._printed, self._results = table, printed, results
        self._scale: Scale = scale

    def facts(self, number: int) -> dict[str, str]:
        """A row's language model, retriever and setting, as `Cell` has them."""
        own = (outputs for (row, _), outputs in self._results.items() if row == number)
        run = next((run for outputs in own for _, run in outputs.runs()), None)
        if run is None:
            return {}
        model = name_of(run.config, "language_model")
        retriever = name_of(run.config, "retriever") if run.config.get("retriever") else ""
        words = [word for word in run.config["method"]["name"].split() if "=" in word]
        setting = " ".join(words).replace("=", " = ")
        return {
            "model": "" if model == "unnamed" else shown_name(model),
            "retriever": shown_name(retriever),
            "setting": CALIBRATED if "calibration" in run.config else setting,
        }

    def row(self, number: int) -> Iterator[Cell]:
        """The cells of a row, with all printed values of its own data sets."""
        row = self._printed.rows[number]
        values, cells = self._table.values(row), list[Cell]()
        for column in self._table.columns(self._printed, self._scale):
            names = [name for name in column.datasets if name in values]
            for metric in dict.fromkeys(m for name in names for m in values[name]):
                printed = values[names[0]][metric] if column.same else None
                ours = self._value(number, column, metric)
                cells.append(self._cell(number, column, metric, printed, ours, names[0]))
        yield from cells
        for metric, value in row.values.get(AVERAGE, {}).items():
            own = [c for c in cells if metric in (c.metric, MEAN_OF_ALL)]
            means = [cell.ours.interval for cell in own if cell.ours and cell.ours.interval.n]
            whole = own and len(means) == len(own)
            mean = Measured(mean_interval(means, [c.column for c in own])) if whole else None
            same = value if all(cell.column.same for cell in own) else None
            yield self._cell(number, Column(AVERAGE, ()), metric, same, mean, AVERAGE)

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
        return Cell(number, column, metric, unit, printed, ours, doubt, comparable=False)

    @functools.cache  # noqa: B019 - as many as a table has values
    def _value(self, number: int, column: Column, metric: str) -> Measured | None:
        row, outputs = self._printed.rows[number], self._results.get((number, column.data))
        compared = self._printed.differences.get(metric)
        if compared is not None and row.minus is not None:
            ours, theirs = (self._value(n, column, compared) for n in (number, row.minus))
            return None if ours is None or theirs is None else difference(ours, theirs)
        if outputs is None or self._table.reason(row, metric, self._scale) or not outputs.there:
            return None
        measures = {**self._table.measures, **self._table.lines[row.method].measures}
        if metric in measures:
            return measures[metric](outputs)
        name = self._printed.metric_of(metric, column.datasets[0] if column.same else "")
        return None if name is None else outputs.scored().measure(name)


def as_json(cells: Sequence[Cell], printed: PrintedTable) -> dict[str, Any]:
    """The cells as plain JSON: entries of a table's record.

    Returns:
      "cells", each with "values" where its value is a mean over questions: those of "ids" of the
      cell's "data", in their order, null where there is none.
    """
    ids, lines = dict[str, dict[str, None]](), []
    for cell in cells:
        if cell.ours and cell.ours.values:
            ids.setdefault(cell.column.data, {}).update(dict.fromkeys(cell.ours.values))
    for cell in cells:
        row, interval = printed.rows[cell.row], cell.interval
        values = {} if cell.ours is None else cell.ours.values
        own = [values.get(name) for name in ids.get(cell.column.data, ())]
        each = [None if value is None else round(value, 6) for value in own]
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
                "model": cell.model,
                "retriever": cell.retriever,
                **({"setting": cell.setting} if cell.setting else {}),
                **({"seconds": round(cell.seconds, 1)} if cell.seconds else {}),
                "ours": None if interval is None else interval._asdict(),
                "agrees": cell.agrees,
                **({"doubt": cell.doubt} if cell.doubt else {}),
                **({"values": each} if values else {}),
            }
        )
    return {"ids": {data: list(names) for data, names in ids.items()}, "cells": lines}


def read_cells(record: Mapping[str, Any], file: Path) -> list[Cell]:
    """The cells of a table's record, as `as_json` wrote them.

    Args:
      record: of the table.
      file: where it was read, for the message.

    Raises:
      InputError: they are damaged.
    """
    try:
        return [_read_cell(line, record["ids"]) for line in record.get("cells", ())]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{file} has cells that cannot be read ({error!r}): make the table again."
        ) from error


def _read_cell(line: Mapping[str, Any], ids: Mapping[str, Sequence[str]]) -> Cell:
    ours, unit = line["ours"], str(line["unit"])
    values = {}
    if "values" in line:
        pairs = zip(ids[line["data"]], line["values"], strict=True)
        values = {str(name): float(value) for name, value in pairs if value is not None}
    factor = 100 if unit in PERCENT else 1
    if ours is not None:
        mean, low, high = (float(ours[name]) / factor for name in ("mean", "low", "high"))
        ours = Measured(Interval(mean, low, high, int(ours["n"])), values)
    return Cell(
        row=int(line["row"]),
        column=Column(str(line["data"]), tuple(map(str, line["datasets"]))),
        metric=str(line["metric"]),
        unit=unit,
        printed=None if line["printed"] is None else float(line["printed"]),
        ours=ours,
        doubt=str(line.get("doubt", "")),
        comparable=line["agrees"] is not None,
        model=str(line["model"]),
        retriever=str(line["retriever"]),
        setting=str(line.get("setting", "")),
        seconds=float(line.get("seconds", 0)),
    )
