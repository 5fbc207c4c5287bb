"""The cells of a reproduced table, and their record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.evaluation.cells import PERCENT, Cell, CellMaker, Column
from jaxrag.evaluation.measured import Measured
from jaxrag.evaluation.printed import PrintedTable
from jaxrag.evaluation.significance import Interval
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.tables import Scale, Table
from jaxrag.types import InputError


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

    def read(number: int, column: Column, metric: str) -> Measured | None:
        row, one = printed.rows[number], results.get((number, column.data))
        if one is None or table.reason(row, metric, scale) or not one.there:
            return None
        measures = {**table.measures, **table.lines[row.method].measures}
        if metric in measures:
            return measures[metric](one)
        ours = printed.metric_of(metric, column.datasets[0] if column.same else "")
        return None if ours is None else one.scored().measure(ours)

    columns = table.columns(printed, scale)
    maker = CellMaker(printed, columns, read, comparable=scale == "paper" and whole)
    rows = enumerate(printed.rows)
    return [cell for number, row in rows for cell in maker.of_row(number, table.values(row))]


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
    factor = 100 if unit in PERCENT else 1
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
