"""A reproduced table for the terminal, as Markdown and LaTeX; pieces of pages in HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxrag.core.printable import html_text
from jaxrag.evaluation.report.export import latex_file, latex_table
from jaxrag.evaluation.report.tables import Grid
from jaxrag.reproduction.listing import by_reason
from jaxrag.reproduction.printed.comparison import (
    CALIBRATED,
    Cell,
    Column,
    cell_text,
    metric_label,
    row_label,
)
from jaxrag.reproduction.printed.models import RETRIEVERS, TRAINED, same_model
from jaxrag.reproduction.printed.tables import AVERAGE, PrintedRow, PrintedTable
from jaxrag.reproduction.tables import Scale, Table

NOTE = (
    "A row names the language model that answered. Each cell: our value [95 % bootstrap interval "
    "over questions; of several seeds of a training, an interval over both]; where the paper's "
    "model answered its questions, also the printed value, with ours minus it, and whether it lies "
    "in our interval. Rows of the paper whose models are one model here appear once; rows that "
    "were not run are left out. Averages are over the columns shown."
)

_MODEL = re.compile(r"[\w.:-]*\d+B\b[\w.-]*(, \d+-shot)?")
"""A printed generator and its demonstrations, which ours has none of: "Llama3-8B, 15-shot"."""

_THRESHOLD = re.compile(r" \((u = [\d.]+)\)")
"""A threshold in a printed label, such as "DTR (u = 0.001)"."""


class Rows(NamedTuple):
    """Labels of the rows of a table that were run, each once, by number; and their cells."""

    labels: Mapping[int, str]
    cells: Sequence[Cell]


def shown_rows(cells: Sequence[Cell], printed: PrintedTable) -> Rows:
    """The rows with their own models in place of other ones of the paper."""
    run = {cell.row for cell in cells if cell.interval}
    own: dict[int, list[Cell]] = {number: [] for number in sorted(run)}
    for cell in cells:
        own.get(cell.row, []).append(cell)
    rows = {
        n: _reset(_renamed(printed.rows[n], some), printed.rows[n], some) for n, some in own.items()
    }
    numbers: dict[object, int] = {}
    for number, row in rows.items():
        others = {k: v for k, v in row.other.items() if k != "block"}  # of the printed table
        values = tuple((cell.column, cell.metric, cell.interval) for cell in own[number])
        models = _ran(own[number]) or number  # a row without models is itself alone
        key = row.label, row.generator, row.retriever, row.passages, str(others), models, values
        numbers.setdefault(key, number)
    distinct = printed._replace(rows=tuple(rows[number] for number in numbers.values()))
    labels = {}
    for number in numbers.values():
        label, (model, _) = row_label(rows[number], distinct), _ran(own[number]) or ("", "")
        labels[number] = label if model in label else f"{label}, {model}"
    return Rows(labels, [cell for cell in cells if cell.row in labels])


def _ran(cells: Sequence[Cell]) -> tuple[str, str] | None:
    """What a row ran with; None if nothing of it was measured, or its model is not known."""
    return next(((c.model, c.retriever) for c in cells if c.interval and c.model), None)


def _reset(row: PrintedRow, as_in_paper: PrintedRow, cells: Sequence[Cell]) -> PrintedRow:
    """A row whose label has the threshold with which it ran."""
    setting = next((cell.setting for cell in cells if cell.interval and cell.setting), "")
    if setting == CALIBRATED:
        as_printed = _THRESHOLD.search(row.label)
        whose = f"{as_in_paper.generator} at " if as_in_paper.generator else ""
        printed = f"{whose}{as_printed[1]}" if as_printed else "printed"
        setting = f"set to retrieve as often as {printed}"
    if not setting or setting in row.label:
        return row
    return row._replace(label=f"{_THRESHOLD.sub('', row.label)} ({setting})")


def _renamed(row: PrintedRow, cells: Sequence[Cell]) -> PrintedRow:
    """A row whose models, if others ran, are these, in its label, too."""
    model, retriever = _ran(cells) or ("", "")
    if not model or (row.generator and same_model(row.generator, model)):
        return row
    label, printed = _MODEL.sub(model, row.label), row.retriever or ""
    if retriever and printed in (*RETRIEVERS, "SiDR_MS") and not same_model(printed, retriever):
        label = label.replace(printed, retriever)
    others = {name: value for name, value in row.other.items() if name != "judge"}  # a model, too
    return row._replace(label=label, generator=model, retriever=retriever, other=others)


def grids(cells: Sequence[Cell], printed: PrintedTable) -> list[Grid]:
    """One grid per metric, with a row for each printed row that has the metric."""
    rows, parts = shown_rows(cells, printed), []
    for metric in printed.metrics:
        metric_cells = [cell for cell in rows.cells if cell.metric == metric]
        columns, lines = columns_of(metric_cells), []
        for number in dict.fromkeys(cell.row for cell in metric_cells):
            texts = {cell.column: cell_text(cell) for cell in metric_cells if cell.row == number}
            lines.append((rows.labels[number], *(texts.get(column, "") for column in columns)))
        heads = (metric_label(metric, printed), *(column.heading for column in columns))
        parts += [Grid(heads, lines)] if lines else []
    return parts


def columns_of(cells: Sequence[Cell]) -> list[Column]:
    """The columns of cells, those of means last."""
    columns = dict.fromkeys(cell.column for cell in cells)
    return sorted(columns, key=lambda column: column.data == AVERAGE)


def left_out(table: Table, printed: PrintedTable, scale: Scale) -> list[str]:
    """The rows that are not reproduced at a scale, with the reason."""
    reasons = ((row_label(row, printed), table.without(row.method, scale)) for row in printed.rows)
    return by_reason((label, reason) for label, reason in reasons if reason)


def summary(cells: Sequence[Cell], printed: PrintedTable) -> str:
    """How many values of the rows that were run were measured and agree; the retriever, if one."""
    missing = {cell.row for cell in cells} - {cell.row for cell in cells if cell.interval}
    cells = shown_rows(cells, printed).cells
    measured = [cell for cell in cells if cell.interval is not None]
    judged = [cell for cell in measured if cell.agrees is not None]
    text = f"{len(measured)} of {len(cells)} values measured"
    text += f"; {len(missing)} rows of the paper were not run" if missing else ""
    if judged:
        text += f"; {sum(bool(c.agrees) for c in judged)} of {len(judged)} agree with the paper"
    sizes = sorted({cell.interval.n for cell in measured if cell.interval})
    if sizes:
        n = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
        text += f"; n = {n} questions"
    retrievers = {cell.retriever for cell in measured if cell.retriever}
    single = len(retrievers) == 1 and not any(name.startswith(TRAINED) for name in retrievers)
    return f"{text}; retriever: {retrievers.pop()}." if single else f"{text}."


def facts(record: Mapping[str, Any]) -> dict[str, str]:
    """When, where and by which version a table was made, and by which prompts of the user's."""
    environment = record["environment"]
    devices = ", ".join(f"{n} {kind}" for kind, n in environment["devices"].items())
    texts = {"Date": record["date"], "Devices": devices, "jaxrag": str(environment["jaxrag"])}
    further = {
        "Prompts": ", ".join(
            f"{name} from {replaced['file']} ({replaced['digest']})"
            for name, replaced in record.get("prompts", {}).items()
        ),
        "SHA-256": "; ".join(f"{k} {v}" for k, v in record.get("files", {}).items()),
        "Thresholds": "; ".join(record.get("thresholds", ())),
        "Left out": "; ".join(record.get("failed", ())),
    }
    return texts | {name: text for name, text in further.items() if text}


def setting_text(record: Mapping[str, Any]) -> str:
    """The scale, and all models, data and settings that are not the paper's."""
    changes = [*record.get("substitutes", ()), *record.get("settings", ())]
    limit = [f"first {record['limit']:,} questions"] if record.get("limit") else []
    sizes = {data["passages"] for data in record.get("data", {}).values() if data.get("passages")}
    if limit and len(sizes) == 1:
        limit = [f"{limit[0]} over {sizes.pop():,} passages"]
    return "; ".join([f"scale {record['scale']}", *changes, *limit])


def markdown(
    cells: Sequence[Cell], table: Table, printed: PrintedTable, record: Mapping[str, Any]
) -> str:
    """The page as Markdown; the table's record has its scale, date and environment."""
    scale, told = record["scale"], "; ".join(f"{k}: {v}" for k, v in facts(record).items())
    parts = [f"## {printed.paper}, {printed.name} ({setting_text(record)})", ""]
    parts += [f"In the paper: {printed.caption}. {summary(cells, printed)} {told}", ""]
    parts += [f"{grid.markdown()}" for grid in grids(cells, printed)]
    parts += [f"Not reproduced: {text}." for text in left_out(table, printed, scale)]
    parts += table.notes
    return "\n".join([*parts, "", NOTE, ""])


def latex(cells: Sequence[Cell], printed: PrintedTable) -> str:
    """The page's tables as LaTeX; interval and printed value stand behind ours."""
    parts = {}
    for grid in grids(cells, printed):
        lines = [(label, *map(_latex_cell, texts)) for label, *texts in grid.rows]
        name = f"{printed.paper}, {printed.name}: {grid.headings[0]}"
        parts[name] = latex_table(grid.headings, lines)
    return latex_file(parts, NOTE)


def _latex_cell(text: str) -> tuple[str, str]:
    value, _, rest = " ".join(text.split()).partition(" ")
    return value, rest


def opening(summary: str, lines: Sequence[str]) -> str:
    """A text that opens to lines of HTML."""
    return f"<details><summary>{html_text(summary)}</summary>{'<br>'.join(lines)}</details>"


def link(text: str, address: str) -> str:
    """A link to another file of the documentation."""
    return f'<a href="{html_text(address)}">{html_text(text)}</a>'


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of HTML cells, without an empty line, so that Markdown takes it as it is."""
    tagged = [("th", headings), *(("td", row) for row in rows)]
    lines = (
        f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>" for tag, cells in tagged
    )
    return "\n".join(["<table>", *lines, "</table>", ""])
