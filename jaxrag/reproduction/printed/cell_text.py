"""Texts of the cells and rows of printed tables, beside our values."""

from __future__ import annotations

from jaxrag.reproduction.printed.comparison import Cell
from jaxrag.reproduction.printed.tables import PrintedRow, PrintedTable


def cell_text(cell: Cell) -> str:
    """Our value with its interval, the printed one, and whether they agree."""
    ours = " ".join(filter(None, our_text(cell)))
    return "\n".join(filter(None, (ours, printed_text(cell))))


def our_text(cell: Cell) -> tuple[str, str]:
    """Our value, and its interval if it has one; empty if it was not measured."""
    interval, digits = cell.interval, _digits(cell)
    if interval is None:
        return "", ""
    if interval.low == interval.high:
        return f"{interval.mean:.{digits}f}", ""
    ends = f"[{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
    if cell.ours and cell.ours.seeds:
        ends += f", {len(cell.ours.seeds)} seeds (sd {cell.deviations['seeds']:.{digits}f})"
    return f"{interval.mean:.{digits}f}", ends


def printed_text(cell: Cell) -> str:
    """The printed value beside ours, the difference, and whether they agree."""
    if cell.printed is None or cell.interval is None:
        return ""
    text = f"printed {cell.printed:g} ({cell.interval.mean - cell.printed:+.{_digits(cell)}f})"
    if cell.agrees is not None:
        text += " agrees" if cell.agrees else " differs"
    return text + (" (?)" if cell.doubt else "")


def _digits(cell: Cell) -> int:
    return {"percent": 1, "points": 1, "fraction": 3, "usd_total": 3}.get(cell.unit, 2)


def metric_label(metric: str, printed: PrintedTable) -> str:
    """A printed metric with its unit."""
    unit = printed.units[metric]
    return f"{metric.replace('_', ' ')}{'' if unit in metric else f', {unit}'}"


def row_label(row: PrintedRow, printed: PrintedTable) -> str:
    """A row's label, with the settings that differ from other rows of the same label."""
    parts = [row.label]
    same = [other for other in printed.rows if other.label == row.label]
    if len({other.generator for other in same}) > 1 and row.generator:
        parts.append(row.generator)
    if len({other.retriever for other in same}) > 1 and row.retriever:
        parts.append(row.retriever)
    if len({other.passages for other in same}) > 1 and row.passages is not None:
        parts.append(f"{row.passages} passage{'s' * (row.passages != 1)}")
    for name, value in row.other.items():
        if len({other.other.get(name) for other in same}) > 1:
            parts.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(parts)
