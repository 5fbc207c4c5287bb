"""A reproduced table for the terminal, as Markdown, an HTML page, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxrag.evaluation.cells import Cell
from jaxrag.evaluation.printed import AVERAGE, PrintedTable
from jaxrag.evaluation.report.cell_text import (
    cell_text,
    metric_label,
    our_text,
    printed_text,
    row_label,
)
from jaxrag.evaluation.report.document import document
from jaxrag.evaluation.report.export import LatexCell, csv_table, latex_file, latex_table
from jaxrag.evaluation.report.tables import Grid
from jaxrag.reproduction.tables import Scale, Table
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
    return (metric_label(metric, printed), *(column.heading for column in order)), rows


def left_out(table: Table, printed: PrintedTable, scale: Scale) -> list[str]:
    """The rows and metrics that are not reproduced at a scale, with the reason."""
    reasons: dict[str, list[str]] = {}
    for row in printed.rows:
        if reason := table.without(row.method, scale):
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
    """When, where and by which version a table was made, and by which prompts of the user's."""
    environment = record["environment"]
    devices = ", ".join(f"{n} {kind}" for kind, n in environment["devices"].items())
    found = {"Date": record["date"], "Devices": devices, "jaxrag": str(environment["jaxrag"])}
    text = prompts_text(record)
    return {**found, "Prompts": text} if text else found


def prompts_text(record: Mapping[str, Any]) -> str:
    """The prompt sets that files replaced; empty if all were ours, as in older records."""
    return ", ".join(
        f"{name} from {one['file']} ({one['digest']})"
        for name, one in record.get("prompts", {}).items()
    )


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
    parts += [f"Not reproduced: {text}." for text in left_out(table, printed, scale)]
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
    for text in left_out(table, printed, record["scale"]):
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
    ours, interval = our_text(cell)
    return ours, " ".join(filter(None, (interval, printed_text(cell))))
