"""The report's tables as HTML: the runs, and the papers' numbers beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from jaxrag.evaluation import metrics
from jaxrag.evaluation.paper_numbers import PaperNumber, printed
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.report import figures, svg, tables
from jaxrag.evaluation.summary import Row, name_of

GROUPS = {
    "accuracy": ("f1", "contains", "precision_positive", "precision_macro"),
    "retrieval": ("recall", "coverage", "hit", "pool_recall", "ir_accuracy", "trigger"),
    "cost per question": metrics.COSTS + metrics.TIMINGS,
}


def mark(run: int) -> str:
    """The mark of the ``run``-th run of a data set, as it is in the figures."""
    return svg.drawing([svg.marker(7, 7, run)], says="", width=14, height=14)


def main_table(rows: Sequence[Row]) -> str:
    """The rows as an HTML table; columns that repeat recall everywhere are left out."""
    shown = {
        group: [name for name in names if _worth_showing(name, rows)]
        for group, names in GROUPS.items()
    }
    compared = any(row.differences for row in rows)
    groups = "".join(
        f'<th colspan="{len(names) + (3 + compared if group == "accuracy" else 0)}">{group}</th>'
        for group, names in shown.items()
        if names or group == "accuracy"
    )
    baseline = next((row.baseline for row in rows if row.baseline), "")
    delta = f"<th>ΔEM vs<br>{escape(baseline)}</th>" if compared else ""
    heads = "".join(
        f"<th{_first(group, name, names)}>{tables.HEADINGS[name].replace(' ', '<br>', 1)}</th>"
        for group, names in shown.items()
        for name in names
    )
    top = svg.nice_top(
        max(
            [row.means["exact_match"].high for row in rows if row.means["exact_match"].n], default=1
        )
    )
    reference = next((r.means["exact_match"].mean for r in rows if not r.differences), math.nan)
    body = []
    for i, row in enumerate(rows):
        em, ends = tables.with_interval("exact_match", row.means["exact_match"])
        strip = figures.forest(
            row.means["exact_match"], i, top=top, reference=reference if compared else math.nan
        )
        cells = "".join(
            f"<td{_first(group, name, names)}>{_cell(row, name)}</td>"
            for group, names in shown.items()
            for name in names
        )
        body.append(
            f'<tr><td><span class="method">{mark(i)}{_breakable(row.label)}</span></td>'
            f'<td class="first">{row.answered:,}<small>{_amiss(row)}</small></td>'
            f'<td><b>{em}</b><span class="ci">{ends}</span></td><td class="forest">{strip}</td>'
            f"{_delta(row) if compared else ''}{cells}</tr>"
        )
    return (
        f'<table><thead><tr class="groups"><th></th>{groups}</tr>'
        f'<tr><th>method</th><th class="first">n</th><th>EM %</th><th></th>{delta}{heads}</tr>'
        f"</thead><tbody>{''.join(body)}</tbody></table>"
    )


def _breakable(label: str) -> str:
    return escape(label).replace("_", "_<wbr>")


def _worth_showing(name: str, rows: Sequence[Row]) -> bool:
    known = [row for row in rows if row.means[name].n]
    same = all(row.means[name].mean == row.means["recall"].mean for row in known)
    return bool(known) and not (name in ("coverage", "hit", "pool_recall") and same)


def _first(group: str, name: str, names: Sequence[str]) -> str:
    return ' class="first"' if group != "accuracy" and name == names[0] else ""


def _cell(row: Row, name: str) -> str:
    found = row.means[name]
    mean, ends = tables.with_interval(name, found)
    fewer = f"<small>n = {found.n:,}</small>" if 0 < found.n < row.answered else ""
    return f"{mean}<small>{ends}</small>{fewer}" if name in tables.PERCENT else mean


def _delta(row: Row) -> str:
    if not row.differences:
        return "<td><small>baseline</small></td>"
    mean, rest = tables.difference_text(row.differences["exact_match"])
    ends, _, p = rest.partition(" p")
    below = "".join(f"<small>{escape(part)}</small>" for part in (ends, f"p{p}" if p else ""))
    return f"<td>{mean}{below}</td>"


def _amiss(row: Row) -> str:
    return tables.errors_text(row) if row.errors else "" if row.finished else "unfinished"


def papers_table(runs: Sequence[RunRecords], rows: Sequence[Row]) -> str:
    """Printed numbers beside ours, with the settings that differ; empty where none is printed."""
    lines = []
    for run, row in zip(runs, rows, strict=True):
        for number in printed(row.dataset, row.method):
            lines.append(_paper_line(run, row, number))
    if not lines:
        return ""
    return (
        "<h3>Beside the papers</h3><p class='note'>The same method and data set as the papers "
        "print them. Settings differ, so these are no targets; what differs is named.</p>"
        "<div class='wide'><table><thead><tr><th>method</th><th>EM % here</th><th>EM % printed</th>"
        "<th>F1 % here</th><th>F1 % printed</th><th>trigger % here</th><th>trigger % printed</th>"
        "<th class='long'>printed in, with</th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _paper_line(run: RunRecords, row: Row, number: PaperNumber) -> str:
    def ours(name: str) -> str:
        return tables.number(name, row.means[name].mean)

    def theirs(value: float | None) -> str:
        return "–" if value is None else f"{value:.1f}"

    model = name_of(run.config, "language_model")
    retriever = f", {number.retriever}, {number.passages} passages" if number.retriever else ""
    asked = "the entire test set" if number.questions is None else f"{number.questions:,} questions"
    precise = f"; precision {theirs(number.precision)}, of which kind it does not say"
    setting = (
        f"{number.paper} {number.table} ({number.method}): {number.generator} (here {model})"
        f"{retriever}; {asked} (here {row.answered:,})"
        f"{'' if number.precision is None else precise}"
    )
    return (
        f'<tr><td><span class="method">{_breakable(row.label)}</span></td>'
        f"<td><b>{ours('exact_match')}</b></td><td>{theirs(number.exact_match)}</td>"
        f"<td><b>{ours('f1')}</b></td><td>{theirs(number.f1)}</td>"
        f"<td><b>{ours('trigger')}</b></td><td>{theirs(number.trigger)}</td>"
        f"<td class='long'>{escape(setting)}</td></tr>"
    )
