"""A reproduced table for the terminal, as Markdown, an HTML page, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxrag.evaluation.printed import AVERAGE, PrintedRow, PrintedTable
from jaxrag.evaluation.report.document import document
from jaxrag.evaluation.report.export import LatexCell, csv_table, latex_file, latex_table
from jaxrag.evaluation.report.tables import Grid
from jaxrag.reproduction.cells import Cell
from jaxrag.reproduction.tables import Table
from jaxrag.text.printable import html_text

NOTE = (
    "Each cell: our value [95 % bootstrap interval over questions]; below it the printed value, "
    "with ours minus it. At paper scale it agrees if it lies in our interval. At other scales "
    "models and data are others, so no agreement is judged, and values of data that stand for "
    "other sets have no printed value. Averages are over the columns shown."
)


def grids(cells: Sequence[Cell], printed: PrintedTable) -> list[Grid]:
    """A grid a metric, with a row for each printed row that has it."""
    return [_grid(metric, cells, printed) for metric in printed.metrics]


def _grid(metric: str, cells: Sequence[Cell], printed: PrintedTable) -> Grid:
    headings, rows = _layout(metric, cells, printed)
    lines = [(label, *(cell_text(c) if c else "" for c in own)) for label, own in rows]
    return Grid(headings, lines)


def _layout(
    metric: str, cells: Sequence[Cell], printed: PrintedTable
) -> tuple[tuple[str, ...], list[tuple[str, list[Cell | None]]]]:
    """Headings of a metric's table, and its rows: label and cells, None where there is none."""
    own = [cell for cell in cells if cell.metric == metric]
    columns = dict.fromkeys(cell.column for cell in own)
    order = [c for c in columns if c.data != AVERAGE] + [c for c in columns if c.data == AVERAGE]
    rows = []
    for number in dict.fromkeys(cell.row for cell in own):
        known = {cell.column: cell for cell in own if cell.row == number}
        rows.append((row_label(printed.rows[number], printed), [known.get(c) for c in order]))
    unit = printed.units[metric]
    heading = f"{metric.replace('_', ' ')}{'' if unit in metric else f', {unit}'}"
    return (heading, *(column.heading for column in order)), rows


def row_label(row: PrintedRow, printed: PrintedTable) -> str:
    """A row's label, with the settings that differ from other rows of the same label."""
    parts = [row.label]
    same = [one for one in printed.rows if one.label == row.label]
    if len({one.generator for one in same}) > 1 and row.generator:
        parts.append(row.generator)
    if len({one.retriever for one in same}) > 1 and row.retriever:
        parts.append(row.retriever)
    if len({one.passages for one in same}) > 1 and row.passages is not None:
        parts.append(f"{row.passages} passage{'s' * (row.passages != 1)}")
    for name, value in row.other.items():
        if len({one.other.get(name) for one in same}) > 1:
            parts.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(parts)


def cell_text(cell: Cell) -> str:
    """Our value with its interval, the printed one, and whether they agree."""
    ours, interval = _ours(cell)
    printed = _printed(cell)
    return " ".join(filter(None, (ours, interval))) + (f"\n{printed}" if printed else "")


def _ours(cell: Cell) -> tuple[str, str]:
    """Our value, and its interval if it has one."""
    found, digits = cell.interval, _digits(cell)
    if found is None:
        return "not measured", ""
    if found.low == found.high:
        return f"{found.mean:.{digits}f}", ""
    return f"{found.mean:.{digits}f}", f"[{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _printed(cell: Cell) -> str:
    """The printed value, the difference, and whether they agree."""
    if cell.printed is None:
        return ""
    text = f"printed {cell.printed:g}"
    if cell.interval is not None:
        text += f" ({cell.interval.mean - cell.printed:+.{_digits(cell)}f})"
    if cell.agrees is not None:
        text += " agrees" if cell.agrees else " differs"
    return text + (" (?)" if cell.doubt else "")


def _digits(cell: Cell) -> int:
    return {"percent": 1, "points": 1, "fraction": 3, "usd_total": 3}.get(cell.unit, 2)


def left_out(table: Table, printed: PrintedTable) -> list[str]:
    """The rows and metrics that are not reproduced, with the reason."""
    reasons: dict[str, list[str]] = {}
    for row in printed.rows:
        if reason := table.left_out.get(row.method):
            reasons.setdefault(reason, []).append(row_label(row, printed))
    for metric, reason in table.unmeasured.items():
        reasons.setdefault(reason, []).append(metric.replace("_", " "))
    return [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]


def summary(cells: Sequence[Cell]) -> str:
    """How many values were measured, and how many agree."""
    measured = [cell for cell in cells if cell.interval is not None]
    judged = [cell for cell in measured if cell.agrees is not None]
    text = f"{len(measured)} of {len(cells)} values measured"
    if judged:
        text += f"; {sum(bool(c.agrees) for c in judged)} of {len(judged)} agree with the paper"
    sizes = sorted({cell.interval.n for cell in measured if cell.interval})
    if sizes:
        n = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
        text += f"; n = {n} questions"
    return f"{text}."


def facts(record: Mapping[str, Any]) -> dict[str, str]:
    """When, where and by which version a table was made."""
    environment = record["environment"]
    devices = ", ".join(f"{n} {kind}" for kind, n in environment["devices"].items())
    return {"Date": record["date"], "Devices": devices, "jaxrag": str(environment["jaxrag"])}


def markdown(
    cells: Sequence[Cell],
    table: Table,
    printed: PrintedTable,
    record: Mapping[str, Any],
) -> str:
    """The page as Markdown; the table's record has its scale, date and environment."""
    scale = record["scale"]
    parts = [f"## {printed.paper}, {printed.name}: {printed.caption} (scale {scale})", ""]
    parts += [f"{summary(cells)} {'; '.join(f'{k}: {v}' for k, v in facts(record).items())}", ""]
    parts += [f"{grid.markdown()}" for grid in grids(cells, printed)]
    parts += [f"Not reproduced: {text}." for text in left_out(table, printed)]
    parts += table.notes
    return "\n".join([*parts, "", NOTE, ""])


def html(
    cells: Sequence[Cell],
    table: Table,
    printed: PrintedTable,
    record: Mapping[str, Any],
) -> str:
    """The page as HTML; the table's record has its scale, date and environment."""
    sections = "".join(f"<section>{grid.html()}</section>" for grid in grids(cells, printed))
    for text in left_out(table, printed):
        sections += f"<p class='note'>{html_text(f'Not reproduced: {text}.')}</p>"
    caption = printed.caption[:1].upper() + printed.caption[1:]
    for text in table.notes:
        sections += f"<p class='note'>{html_text(text)}</p>"
    return document(
        title=f"{printed.paper}, {printed.name}",
        lede=f"{caption}. Scale: {record['scale']}. {summary(cells)}",
        facts=list(facts(record).items()),
        sections=sections,
        reading=(NOTE,),
        markdown=markdown(cells, table, printed, record),
        configs="",
    )


def csv(cells: Sequence[Cell], printed: PrintedTable) -> str:
    """The cells as CSV, a line each; values are in the printed table's unit."""
    headings = ("row", "questions", "metric", "unit", "ours", "low", "high", "n", "printed")
    lines = []
    for cell in cells:
        ours = cell.interval or (None, None, None, 0)
        label = row_label(printed.rows[cell.row], printed)
        agrees = {True: "yes", False: "no", None: ""}[cell.agrees]
        place = (label, cell.column.heading, cell.metric, cell.unit)
        lines.append((*place, *ours, cell.printed, agrees))
    return csv_table((*headings, "agrees"), lines)


def latex(cells: Sequence[Cell], printed: PrintedTable) -> str:
    """The page's tables as LaTeX; interval and printed value stand behind ours."""
    parts = {}
    for metric in printed.metrics:
        headings, rows = _layout(metric, cells, printed)
        lines = [(label, *map(_latex_cell, own)) for label, own in rows]
        parts[f"{printed.paper}, {printed.name}: {metric}"] = latex_table(headings, lines)
    return latex_file(parts, NOTE)


def _latex_cell(cell: Cell | None) -> LatexCell:
    if cell is None:
        return ""
    ours, interval = _ours(cell)
    return ours, " ".join(filter(None, (interval, _printed(cell))))
