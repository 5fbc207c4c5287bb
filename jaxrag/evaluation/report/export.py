"""Tables as files for other programs: CSV for spreadsheets and scripts, LaTeX for papers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

from jaxrag.core.printable import csv_text, latex_text
from jaxrag.evaluation.report import tables
from jaxrag.evaluation.summary import Row

LatexCell = str | tuple[str, str]
"""Plain text of a cell, or a value and the interval that stands behind it in smaller type."""

_DIFFERENCES = {"delta_em": "ΔEM", "delta_f1": "ΔF1"}


def csv_table(headings: Sequence[str], rows: Sequence[Sequence[str | float | None]]) -> str:
    """A table as CSV; numbers have six digits, and None and NaN are empty cells."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([_csv_cell(cell) for cell in row] for row in (headings, *rows))
    return stream.getvalue()


def _csv_cell(cell: str | float | None) -> str:
    if isinstance(cell, str):
        return csv_text(cell)
    if cell is None or math.isnan(cell):
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def latex_table(headings: Sequence[str], rows: Sequence[Sequence[LatexCell]]) -> str:
    """A table as a ``tabular`` with the rules of the package booktabs."""
    lines = [f"\\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}", r"\toprule"]
    lines += [_latex_row(headings), r"\midrule", *map(_latex_row, rows)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def latex_file(parts: Mapping[str, str], note: str) -> str:
    """Several ``tabular`` by their names, with comments: the names, and how to read them."""
    comments = [r"Needs \usepackage{booktabs}.", note]
    lines = "".join(f"% {' '.join(text.splitlines())}\n" for text in comments)
    blocks = (f"\n% {latex_text(name)}\n{table}" for name, table in parts.items())
    return lines + "".join(blocks)


def _latex_row(cells: Sequence[LatexCell]) -> str:
    text = " & ".join(map(_latex_cell, cells))
    guard = "{}" if text.lstrip().startswith(("[", "*")) else ""  # options of the row before it
    return rf"{guard}{text} \\"


def _latex_cell(cell: LatexCell) -> str:
    if isinstance(cell, str):
        return latex_text(cell)
    value, interval = map(latex_text, cell)
    return f"{value} {{\\scriptsize {interval}}}" if interval else value


def runs_csv(rows: Sequence[Row], columns: Sequence[str] = ()) -> str:
    """The report's table as CSV, see `runs_columns`."""
    return csv_table(*runs_columns(rows, columns))


def runs_columns(
    rows: Sequence[Row], columns: Sequence[str] = ()
) -> tuple[list[str], list[list[str | float | None]]]:
    """Headings and cells of means with the ends of their intervals, and of paired differences.

    Shares, and differences of them, are in percent. A difference has its p-value beside it; None
    for the baseline. ``columns`` are those of `tables.shown_metrics` and `tables.DIFFERENCES`; ()
    are all.
    """
    names = tables.shown_metrics(rows, columns)
    compared = [name for name in _DIFFERENCES if not columns or name in columns]
    headings = ["data set", "method", "n", "errors", "finished", "baseline"]
    for heading in names.values():
        headings += [heading, f"{heading} low", f"{heading} high"]
    for heading in (_DIFFERENCES[name] for name in compared):
        headings += [heading, f"{heading} low", f"{heading} high", f"p of {heading}"]
    lines = list[list[str | float | None]]()
    for row in rows:
        state = "yes" if row.finished else "no"
        line = [row.dataset, row.label, row.answered, row.errors, state, row.baseline]
        for name in names:
            factor = 100.0 if name in tables.PERCENT else 1.0
            values = [factor * value for value in row.means[name][:3]]
            alone = tables.no_interval(name, row.means[name])
            line += [values[0], None, None] if alone else values
        for name in compared:
            delta = row.differences.get(tables.DIFFERENCES[name])
            line += [None] * 4 if delta is None else [*(100.0 * v for v in delta[:3]), delta.p]
        lines.append(line)
    return headings, lines


def runs_latex(rows: Sequence[Row], columns: Sequence[str] = ()) -> str:
    """The report's table as LaTeX, a ``tabular`` per data set; ``columns`` as for `runs_csv`."""
    names, parts = tables.shown_metrics(rows, columns), {}
    compared = [_DIFFERENCES["delta_em"]] * (not columns or "delta_em" in columns)
    for dataset in dict.fromkeys(row.dataset for row in rows):
        members = [row for row in rows if row.dataset == dataset]
        lines = []
        for row in members:
            cells = [tables.with_interval(name, row.means[name]) for name in names]
            means = [
                (mean, ends if name in tables.PERCENT else "")
                for name, (mean, ends) in zip(names, cells, strict=True)
            ]
            change = tables.difference_text(row.differences.get("exact_match"))
            last = [change if row.baseline else "baseline"] * len(compared)
            lines.append((row.label, tables.count_text(row), *means, *last))
        parts[dataset] = latex_table(("method", "n", *names.values(), *compared), lines)
    return latex_file(parts, tables.NOTE)
