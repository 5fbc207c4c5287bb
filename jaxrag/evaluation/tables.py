"""The rows of a summary as text: for the terminal and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from jaxrag.evaluation import metrics
from jaxrag.evaluation.significance import Difference, Interval
from jaxrag.evaluation.summary import Row

PERCENT = (*metrics.ACCURACY, *metrics.RETRIEVAL, *metrics.GATE)


def number(name: str, value: float) -> str:
    """A metric as it is printed: percent with one decimal for shares, three digits for costs."""
    if math.isnan(value):
        return "–"
    if name in PERCENT:
        return f"{100 * value:.1f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def with_interval(name: str, found: Interval) -> tuple[str, str]:
    """A mean and its interval as text, the second empty without questions."""
    if not found.n:
        return "–", ""
    return number(name, found.mean), f"[{number(name, found.low)}, {number(name, found.high)}]"


def difference_text(found: Difference | None) -> tuple[str, str]:
    """A paired difference in points with its interval and p-value as text."""
    if found is None or not found.n:
        return "–", ""
    low, high = 100 * found.low, 100 * found.high
    return f"{100 * found.mean:+.1f}", f"[{low:+.1f}, {high:+.1f}] p={p_text(found.p)}"


def p_text(p: float) -> str:
    """A p-value with as many digits as matter."""
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def count_text(row: Row) -> str:
    """Number of questions that the means are over, with what is amiss."""
    notes = [f"{row.errors} error{'s' * (row.errors > 1)}"] * bool(row.errors) + ["unfinished"] * (
        not row.finished
    )
    return f"{row.answered:,}" + (f" ({', '.join(notes)})" if notes else "")


TERMINAL = {
    "exact_match": "EM %",
    "f1": "F1 %",
    "contains": "cont. %",
    "recall": "recall %",
    "trigger": "trig. %",
    "llm_calls": "LLM calls",
    "prompt_tokens": "prompt tok.",
    "new_tokens": "new tok.",
    "searches": "searches",
    "seconds": "s",
}
"""Columns of the terminal's table: metric and heading."""

MARKDOWN = {
    "exact_match": "EM %",
    "f1": "F1 %",
    "contains": "contains %",
    "recall": "recall %",
    "coverage": "coverage %",
    "hit": "hit %",
    "trigger": "trigger %",
    "llm_calls": "LLM calls",
    "prompt_tokens": "prompt tokens",
    "new_tokens": "new tokens",
    "searches": "searches",
    "seconds": "seconds",
    "store_hits": "store hits",
}
"""Columns of the full table: metric and heading."""

NOTE = (
    "Brackets: 95 % bootstrap intervals over questions; costs are means per question. Recall, "
    "coverage and hit are over the questions that searched. ΔEM is paired with the baseline on "
    "the same questions; p: sign-flip test, not adjusted for several comparisons."
)


def terminal_table(rows: Sequence[Row]) -> Table:
    """The rows as a table for ``rich``; intervals stand below their means."""
    table = Table(header_style="bold", pad_edge=False, caption=NOTE, caption_justify="left")
    several = len({row.dataset for row in rows}) > 1
    for heading in (*["data set"] * several, "method"):
        table.add_column(heading, no_wrap=True)
    for heading in ("n", *TERMINAL.values(), "ΔEM"):
        table.add_column(heading, justify="right")
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        cells = ["\n".join(cell) for cell in _cells(row, TERMINAL)]
        delta = "\n".join(difference_text(row.differences.get("exact_match"))).replace(" p", "\np")
        ends = following is not None and following.dataset != row.dataset
        front = [
            *[escape(row.dataset)] * several,
            escape(row.label),
            count_text(row).replace(" (", "\n("),
        ]
        table.add_row(*front, *cells, delta if row.baseline else "baseline", end_section=ends)
    return table


def _cells(row: Row, columns: Mapping[str, str]) -> list[tuple[str, str]]:
    """Mean and interval of each column; costs stand without theirs."""
    found = {name: with_interval(name, row.means[name]) for name in columns}
    return [(mean, ends if name in PERCENT else "") for name, (mean, ends) in found.items()]


def markdown_table(rows: Sequence[Row]) -> str:
    """The rows as GitHub-flavoured Markdown, a table per data set and the note on how to read."""
    parts = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        members = [row for row in rows if row.dataset == dataset]
        baseline = next((row.baseline for row in members if row.baseline), "")
        delta = [f"ΔEM vs {baseline}"] if baseline else []
        heading = ["method", "n", *MARKDOWN.values(), *delta]
        lines = [heading, ["---", *["---:"] * (len(heading) - 1)]]
        for row in members:
            cells = [" ".join(cell).strip() for cell in _cells(row, MARKDOWN)]
            compared = difference_text(row.differences.get("exact_match"))
            shown = " ".join(compared) if row.baseline else "baseline"
            lines.append([row.label, count_text(row), *cells, *[shown] * len(delta)])
        body = "\n".join("| " + " | ".join(map(_escape, line)) + " |" for line in lines)
        parts.append(f"**{_escape(dataset)}**\n\n{body}\n")
    return "\n".join([*parts, NOTE, ""])


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
