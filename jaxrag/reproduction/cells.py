"""The cells of a reproduced table, and their record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.evaluation.significance import Interval
from jaxrag.evaluation.summary import name_of
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.printed.comparison import CALIBRATED, PERCENT, Cell, CellMaker, Column
from jaxrag.reproduction.printed.measured import Measured
from jaxrag.reproduction.printed.models import same_model, shown_name
from jaxrag.reproduction.printed.tables import PrintedTable
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
    """The cells of a table whose jobs have been executed.

    Args:
      table: the declaration.
      printed: the printed table.
      scale: of the results.
      results: by row and questions, as `work.add_table` returns them.
      whole: whether runs answered all questions.
      substituted: whether other models or data stand for the paper's; then no printed value stands
        beside ours.
    """

    def read(number: int, column: Column, metric: str) -> Measured | None:
        row, outputs = printed.rows[number], results.get((number, column.data))
        if outputs is None or table.reason(row, metric, scale) or not outputs.there:
            return None
        measures = {**table.measures, **table.lines[row.method].measures}
        if metric in measures:
            return outputs.measure(measures[metric])
        ours = printed.metric_of(metric, column.datasets[0] if column.same else "")
        return None if ours is None else outputs.measure(lambda one: one.scored().measure(ours))

    columns = table.columns(printed, scale)
    paper = scale == "paper" and not substituted
    maker = CellMaker(printed, columns, read, comparable=paper and whole)
    names: dict[int, tuple[str, str, str]] = {}
    for (number, _), outputs in results.items():
        for run in outputs.runs():
            names.setdefault(number, _names(run.config))
    return [
        _with_models(cell, names.get(number, ("", "", "")), row.generator, paper=paper)
        for number, row in enumerate(printed.rows)
        for cell in maker.of_row(number, table.values(row))
    ]


def _names(config: Mapping[str, Any]) -> tuple[str, str, str]:
    """The language model and the retriever of a run, and the setting in its name."""
    retriever = name_of(config, "retriever") if config.get("retriever") else ""
    model = name_of(config, "language_model")
    words = [word for word in config["method"]["name"].split() if "=" in word]
    setting = CALIBRATED if "calibration" in config else " ".join(words).replace("=", " = ")
    return ("" if model == "unnamed" else shown_name(model)), shown_name(retriever), setting


def _with_models(
    cell: Cell, names: tuple[str, str, str], generator: str | None, *, paper: bool
) -> Cell:
    """The cell of a row that ran with some models; without a printed value of another generator."""
    model, retriever, setting = names
    same = not model or not generator or same_model(generator, model)
    printed = cell.printed if paper and same else None
    return cell._replace(printed=printed, model=model, retriever=retriever, setting=setting)


def questions_of(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """The ids of all questions with a value in some cell, by `Column.data`."""
    by_data: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.ours is not None and cell.ours.values:
            by_data.setdefault(cell.column.data, {}).update(dict.fromkeys(cell.ours.values))
    return {data: list(ids) for data, ids in by_data.items()}


def as_json(cells: Sequence[Cell], printed: PrintedTable) -> dict[str, Any]:
    """The cells as plain JSON: entries of a table's record.

    Returns:
      "cells", each with "values" where its value is a mean over questions: those of "ids" of the
      cell's "data", in their order, null where there is none. A mean over seeds of trainings has
      "seeds", the value of each with its own interval and values, and "sd", in the table's unit:
      the sample standard deviation between the seeds' means and between the questions' means.
    """
    ids = questions_of(cells)
    lines = []
    for cell in cells:
        row, names = printed.rows[cell.row], ids.get(cell.column.data, ())
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
                "ours": None if cell.interval is None else cell.interval._asdict(),
                "agrees": cell.agrees,
                **({"doubt": cell.doubt} if cell.doubt else {}),
                **_values_of(cell.ours, names),
                **_seeds_of(cell, names),
            }
        )
    return {"ids": ids, "cells": lines}


def _values_of(ours: Measured | None, ids: Sequence[str]) -> dict[str, Any]:
    """Values in the order of ``ids``; empty for what is no mean over questions."""
    if ours is None or not ours.values:
        return {}
    own = (ours.values.get(name) for name in ids)
    return {"values": [None if value is None else round(value, 6) for value in own]}


def _seeds_of(cell: Cell, ids: Sequence[str]) -> dict[str, Any]:
    if cell.ours is None or not cell.ours.seeds:
        return {}
    seeds = [
        {**cell.scaled(one.interval)._asdict(), **_values_of(one, ids)} for one in cell.ours.seeds
    ]
    return {"seeds": seeds, "sd": cell.deviations}


def read_cells(record: Mapping[str, Any], file: Path) -> list[Cell]:
    """The cells of a table's record, as `as_json` wrote them.

    Old records have no values, and name the models of the table, not those of its rows.

    Args:
      record: of the table.
      file: where it was read, for the message.

    Raises:
      InputError: they are damaged.
    """
    try:
        ids, models = record.get("ids", {}), record.get("models") or [""]
        table = shown_name(models[0]) if len(models) == 1 else ""
        paper = record.get("scale") == "paper" and not record.get("substitutes")
        return [
            _with_models(
                _read_cell(line, ids),
                (line.get("model", table), line.get("retriever", ""), line.get("setting", "")),
                line.get("generator"),
                paper=paper,
            )
            for line in record.get("cells", ())
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{file} has cells that cannot be read ({error!r}): make the table again."
        ) from error


def _read_measured(
    interval: Mapping[str, Any], line: Mapping[str, Any], ids: Sequence[str], unit: str
) -> Measured:
    """A value of an interval in the table's unit, and of the values of a line."""
    values = {}
    if "values" in line:
        pairs = zip(ids, line["values"], strict=True)
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
    )
