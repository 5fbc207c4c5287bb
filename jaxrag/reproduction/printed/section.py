"""The section of a report with the papers' numbers: printed rows beside the runs nearest to them.

The cells are those of reproduced tables (`comparison`): averages over data sets and differences
between rows appear where the report has the runs for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxrag.core.printable import html_text
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.summary import Row
from jaxrag.reproduction.printed.cell_text import metric_label, our_text, printed_text, row_label
from jaxrag.reproduction.printed.comparison import Cell, CellMaker, Column
from jaxrag.reproduction.printed.matches import matches
from jaxrag.reproduction.printed.measured import Measured, ScoredRun
from jaxrag.reproduction.printed.tables import AVERAGE, PrintedTable, printed_tables

NOTE = (
    "Of every printed table with a run's method, generator and data set, the row whose settings "
    "are nearest stands beside the run; runs of other models stand beside none. Compared are "
    "retriever, judge, kind of reranker, number of passages, threshold, and training or test "
    "questions; prompts, all other settings and what a retriever was trained on are not. Where a "
    "setting or the number of questions differs, the printed value is not a target. A cell: our "
    "value [95 % interval], the printed one, ours minus it; (?) marks printed values that are not "
    "certain. An average weights data sets equally; it stands where the report has all data sets "
    "of the row, a difference where it has both rows."
)

MEANINGS: Mapping[str, str] = {
    "f1_mean_over_aliases": "mean over aliases",
    "contains": "the answer contains a gold one",
    "precision_macro": "mean over classes",
}
"""Definitions of our metrics that do not follow from the printed name."""


class _Series(NamedTuple):
    """Runs of one method and the printed row beside them.

    Attributes:
      label: of the runs.
      row: number of the printed row.
      differs: as in `PrintedMatch`.
      runs: by data set.
      sizes: numbers of questions answered, by data set.
    """

    label: str
    row: int
    differs: tuple[str, ...]
    runs: dict[str, ScoredRun]
    sizes: dict[str, int]


def papers_section(runs: Sequence[RunRecords], rows: Sequence[Row]) -> str:
    """HTML of the papers' numbers beside ours; empty if no row prints a run's method and data.

    ``rows`` summarise ``runs``, in their order.
    """
    lines = _series(runs, rows)
    parts = [
        _table(printed, lines[name]) for name, printed in printed_tables().items() if name in lines
    ]
    if not parts:
        return ""
    note = f"<p class='note'>{html_text(NOTE)}</p>"
    return f"<section><h2>Numbers in the papers</h2>{note}{''.join(parts)}</section>"


def _series(runs: Sequence[RunRecords], rows: Sequence[Row]) -> dict[str, list[_Series]]:
    """Runs with the same label, printed row and settings that differ, by printed table."""
    tables: dict[str, dict[tuple[str, int, tuple[str, ...]], _Series]] = {}
    for run, row in zip(runs, rows, strict=True):
        scored = ScoredRun(run, row.means)
        for match in matches(run.config):
            key = row.label, match.table.rows.index(match.row), match.differs
            own = tables.setdefault(match.table.id, {}).setdefault(key, _Series(*key, {}, {}))
            own.runs[match.dataset], own.sizes[match.dataset] = scored, row.answered
    return {name: list(table.values()) for name, table in tables.items()}


def _table(printed: PrintedTable, series: Sequence[_Series]) -> str:
    """A printed table: a line for each row that runs stand beside, a group of columns a metric."""
    cells = [_cells(printed, own, series) for own in series]
    measured = {(cell.metric, cell.column.data) for some in cells for cell in some}
    names = (*printed.datasets, AVERAGE)
    columns = {
        metric: printed_here
        for metric in printed.metrics
        if (printed_here := [name for name in names if (metric, name) in measured])
    }
    sizes = [name for name in printed.datasets if any(name in own.sizes for own in series)]
    body = [_row(printed, row, own, sizes, columns) for row, own in zip(series, cells, strict=True)]
    title = f"{printed.paper}, {printed.name}: {printed.caption}"
    heads = _heads(printed, sizes, columns)
    return (
        f"<h3>{html_text(title)}</h3><div class='wide'><table class='printed'>"
        f"<thead>{heads}</thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _heads(
    printed: PrintedTable, sizes: Sequence[str], columns: Mapping[str, Sequence[str]]
) -> str:
    """The metrics, and below them the data sets, with what the metric is on them."""
    groups = [("questions", sizes), *((metric_label(m, printed), d) for m, d in columns.items())]
    first = "".join(
        f"<th colspan='{len(names)}'>{html_text(group)}</th>" for group, names in groups
    )
    texts = [(name, "") for name in sizes]
    for metric, names in columns.items():
        texts += [(name, MEANINGS.get(printed.metric_of(metric, name) or "", "")) for name in names]
    second = "".join(
        f"<th>{html_text(name)}{f'<br>{html_text(meaning)}' if meaning else ''}</th>"
        for name, meaning in texts
    )
    return f"<tr class='groups'><th></th>{first}</tr><tr><th></th>{second}</tr>"


def _cells(printed: PrintedTable, own: _Series, series: Sequence[_Series]) -> list[Cell]:
    """The measured cells of a row."""

    def read(number: int, column: Column, metric: str) -> Measured | None:
        runs = [s for s in series if s.row == number and column.data in s.runs]
        if not runs:
            return None
        # of another row, the runs whose settings differ from the paper as this one's do
        s = min(runs, key=lambda s: (s is not own, len({*s.differs} ^ {*own.differs})))
        ours = printed.metric_of(metric, column.data)
        return None if ours is None else s.runs[column.data].measure(ours)

    columns = [Column(name, (name,)) for name in printed.datasets]
    cells = CellMaker(printed, columns, read).of_row(own.row)
    return [
        cell
        for cell in cells
        if cell.interval and (cell.column.data in own.runs or cell.column.data == AVERAGE)
    ]


def _row(
    printed: PrintedTable,
    own: _Series,
    cells: Sequence[Cell],
    sizes: Sequence[str],
    columns: Mapping[str, Sequence[str]],
) -> str:
    """HTML of a row of a printed table: its runs, their sizes and values."""
    row, by_place = printed.rows[own.row], {(cell.metric, cell.column.data): cell for cell in cells}
    label = f"beside {row_label(row, printed)}. "
    label += f"Differs: {'; '.join(own.differs)}" if own.differs else "No compared setting differs"
    values = [_size(own.sizes.get(name), row.questions.get(name)) for name in sizes]
    for metric, names in columns.items():
        baseline = row.minus if metric in printed.differences else None
        minus = "" if baseline is None else f"minus {row_label(printed.rows[baseline], printed)}"
        values += [_cell(by_place.get((metric, name)), minus) for name in names]
    return (
        f"<tr><td><span class='method'>{html_text(own.label)}</span>"
        f"<small>{html_text(label)}</small></td>{''.join(values)}</tr>"
    )


def _size(ours: int | None, printed: int | None) -> str:
    if ours is None:
        return "<td></td>"
    return _td(f"{ours:,}", f"printed {printed:,}" if printed else "")


def _cell(cell: Cell | None, minus: str) -> str:
    if cell is None:
        return "<td></td>"
    value, ends = our_text(cell)
    return _td(value, minus, ends, printed_text(cell))


def _td(value: str, *below: str) -> str:
    small = "".join(f"<small>{html_text(text)}</small>" for text in below if text)
    return f"<td>{html_text(value)}{small}</td>"
