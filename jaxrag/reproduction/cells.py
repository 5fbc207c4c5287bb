"""The cells of a reproduced table, and their record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.evaluation.significance import Interval
from jaxrag.evaluation.summary import name_of, shown_name
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.printed.comparison import CALIBRATED, MEAN_OF_ALL, PERCENT, Cell, Column
from jaxrag.reproduction.printed.measured import Measured, difference, mean_interval
from jaxrag.reproduction.printed.models import same_model
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

    ``results`` are those of `work.add_table`. If runs did not answer the ``whole`` of the questions
    no cell agrees; if models or data are ``substituted`` no printed value stands beside ours.
    """
    paper = scale == "paper" and not substituted
    measured = _Measured(table, printed, scale, results)
    cells: list[Cell] = []
    for number, row in enumerate(printed.rows):
        facts = _facts(outputs for (n, _), outputs in results.items() if n == number)
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


def _facts(results: Iterable[Results]) -> dict[str, str]:
    """A row's language model, retriever and setting, as `Cell` has them."""
    run = next((run for outputs in results for _, run in outputs.runs()), None)
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


class _Measured(NamedTuple):
    """Our values of a table."""

    table: Table
    printed: PrintedTable
    scale: Scale
    results: Mapping[tuple[int, str], Results]

    def row(self, number: int) -> Iterator[Cell]:
        """The cells of a row, with all printed values of its own data sets."""
        row, units = self.printed.rows[number], self.printed.units
        values, cells = self.table.values(row), list[Cell]()
        for column in self.table.columns(self.printed, self.scale):
            names = [name for name in column.datasets if name in values]
            for metric in dict.fromkeys(m for name in names for m in values[name]):
                printed = values[names[0]][metric] if column.same else None
                ours, doubt = self._value(number, column, metric), row.doubt(names[0], metric)
                place = (number, column, metric, units[metric])
                cells.append(Cell(*place, printed, ours, doubt, comparable=False))
        yield from cells
        for metric, value in row.values.get(AVERAGE, {}).items():
            parts = [c for c in cells if metric in (c.metric, MEAN_OF_ALL)]
            means = [cell.ours.interval for cell in parts if cell.ours and cell.ours.interval.n]
            complete = parts and len(means) == len(parts)
            mean = Measured(mean_interval(means, [c.column for c in parts])) if complete else None
            same = value if all(cell.column.same for cell in parts) else None
            place = (number, Column(AVERAGE, ()), metric, units[metric])
            yield Cell(*place, same, mean, row.doubt(AVERAGE, metric), comparable=False)

    def _value(self, number: int, column: Column, metric: str) -> Measured | None:
        row, outputs = self.printed.rows[number], self.results.get((number, column.data))
        compared = self.printed.differences.get(metric)
        if compared is not None and row.minus is not None:
            ours, theirs = (self._value(n, column, compared) for n in (number, row.minus))
            return None if ours is None or theirs is None else difference(ours, theirs)
        if outputs is None or not outputs.there:
            return None
        measures = {**self.table.measures, **self.table.lines[row.method].measures}
        if metric in measures:
            return outputs.measure(measures[metric])
        name = self.printed.metric_of(metric, column.datasets[0] if column.same else "")
        return None if name is None else outputs.measure(lambda seed: seed.scored().measure(name))


def as_json(cells: Sequence[Cell], printed: PrintedTable) -> dict[str, Any]:
    """The cells as plain JSON: entries of a table's record.

    Returns:
      "cells", each with "values" where its value is a mean over questions: those of "ids" of the
      cell's "data", in their order, null where there is none. A mean over seeds of trainings has
      "seeds", the value of each with its own interval and values, and "sd", in the table's unit:
      the sample standard deviation between the seeds' means and between the questions' means.
    """
    ids, lines = dict[str, dict[str, None]](), []
    for cell in cells:
        if cell.ours and cell.ours.values:
            ids.setdefault(cell.column.data, {}).update(dict.fromkeys(cell.ours.values))
    for cell in cells:
        row, names = printed.rows[cell.row], [*ids.get(cell.column.data, ())]
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
                "ours": None if cell.interval is None else cell.interval._asdict(),
                "agrees": cell.agrees,
                **({"doubt": cell.doubt} if cell.doubt else {}),
                **_values_of(cell.ours, names),
            }
        )
        if cell.ours and cell.ours.seeds:
            lines[-1]["seeds"] = [
                {**cell.scaled(seed.interval)._asdict(), **_values_of(seed, names)}
                for seed in cell.ours.seeds
            ]
            lines[-1]["sd"] = cell.deviations
    return {"ids": {data: [*names] for data, names in ids.items()}, "cells": lines}


def _values_of(ours: Measured | None, ids: Sequence[str]) -> dict[str, Any]:
    """Values in the order of ``ids``; empty for what is no mean over questions."""
    if ours is None or not ours.values:
        return {}
    values = (ours.values.get(name) for name in ids)
    return {"values": [None if value is None else round(value, 6) for value in values]}


def read_cells(record: Mapping[str, Any], file: Path) -> list[Cell]:
    """The cells of a table's record, written by `as_json`; InputError if they are damaged."""
    try:
        return [_read_cell(line, record["ids"]) for line in record.get("cells", ())]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{file} has cells that cannot be read ({error!r}): make the table again."
        ) from error


def _read_measured(
    interval: Mapping[str, Any], line: Mapping[str, Any], ids: Sequence[str], unit: str
) -> Measured:
    """A value of an interval in the table's unit, and of the values of a line."""
    pairs = zip(ids, line["values"], strict=True) if "values" in line else ()
    values = {str(name): float(value) for name, value in pairs if value is not None}
    factor = 100 if unit in PERCENT else 1
    mean, low, high = (float(interval[name]) / factor for name in ("mean", "low", "high"))
    return Measured(Interval(mean, low, high, int(interval["n"])), values)


def _read_cell(line: Mapping[str, Any], ids: Mapping[str, Sequence[str]]) -> Cell:
    ours, unit = line["ours"], str(line["unit"])
    names = ids.get(line["data"], ())
    if ours is not None:
        seeds = tuple(_read_measured(seed, seed, names, unit) for seed in line.get("seeds", ()))
        ours = _read_measured(ours, line, names, unit)._replace(seeds=seeds)
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
