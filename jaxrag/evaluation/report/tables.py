"""Tables of a summary and others, for the terminal and as Markdown or HTML."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table

from jaxrag.core.printable import html_text, markdown_text, terminal_text
from jaxrag.evaluation import metrics, precision
from jaxrag.evaluation.judgements import JUDGED
from jaxrag.evaluation.need import SEARCHED, SKIPPED, lost, places
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.significance import Difference, Interval
from jaxrag.evaluation.summary import Row
from jaxrag.types import InputError

PERCENT = (*metrics.ACCURACY, JUDGED, *precision.NAMES, *metrics.RETRIEVAL, *metrics.GATE)


def number(name: str, value: float) -> str:
    """A metric as it is printed: percent with one decimal for shares, three digits for costs."""
    if math.isnan(value):
        return "–"
    if name in PERCENT:
        return f"{100 * value:.1f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def with_interval(name: str, mean: Interval) -> tuple[str, str]:
    """A mean and its interval as texts; the interval is empty where there is none."""
    if not mean.n:
        return "–", ""
    if no_interval(name, mean):
        return number(name, mean.mean), ""
    return number(name, mean.mean), f"[{number(name, mean.low)}, {number(name, mean.high)}]"


def no_interval(name: str, mean: Interval) -> bool:
    """Whether it is a share of questions that retrieve, of a method without a gate."""
    return name in metrics.GATE and mean.low == mean.high


def difference_text(delta: Difference | None, *, share: bool = True) -> tuple[str, str]:
    """A paired difference as text, and its interval with p-value; shares are in points."""
    if delta is None or not delta.n:
        return "–", ""
    mean, low, high = (f"{100 * value:+.1f}" if share else f"{value:+.2f}" for value in delta[:3])
    return mean, f"[{low}, {high}] p{p_text(delta.p)}"


def p_text(p: float) -> str:
    """A p-value with its relation: "<0.001", "=0.042", "=0.31"."""
    return "<0.001" if p < 0.001 else f"={p:.3f}" if p < 0.1 else f"={p:.2f}"


def count_text(row: Row) -> str:
    """Number of answered questions; those without gold, errors, whether the run is unfinished."""
    notes = [f"{row.without_gold:,} without gold"] * bool(row.without_gold)
    notes += [errors_text(row)] * bool(row.errors) + ["unfinished"] * (not row.finished)
    return f"{row.answered:,}" + (f" ({', '.join(notes)})" if notes else "")


def errors_text(row: Row) -> str:
    """Number of questions that ended in an error."""
    return f"{row.errors} error{'s' * (row.errors > 1)}"


TERMINAL = {
    "exact_match": "EM %",
    "f1": "F1 %",
    JUDGED: "judged %",
    "precision_positive": "precision\nof yes",
    "precision_macro": "macro\nprecision",
    "trigger": "retrieves",
    "llm_calls": "calls",
    "searches": "searches",
    "prompt_tokens": "tokens in",
    "new_tokens": "out",
}
"""Columns of the terminal's table; a report has all metrics."""

OPTIONAL = ("ir_accuracy", JUDGED, *precision.NAMES)
"""Metrics that are left out where no run defines them."""

HEADINGS = {
    "exact_match": "EM %",
    "f1": "F1 %",
    "contains": "contains %",
    "sub_em": "sub EM %",
    JUDGED: "judged %",
    "precision_positive": "precision of yes %",
    "precision_macro": "macro precision %",
    "recall": "recall %",
    "coverage": "coverage %",
    "hit": "hit %",
    "pool_recall": "in pool %",
    "ir_accuracy": "IR %",
    "trigger": "retrieves %",
    "llm_calls": "LLM calls",
    "prompt_tokens": "prompt tokens",
    "new_tokens": "new tokens",
    "searches": "searches",
    "seconds": "seconds",
    "store_hits": "store hits",
}
"""Headings of the metrics in the tables of Markdown and HTML."""

DEFINITIONS = {
    "exact_match": "share of answers equal to a gold one but for case, articles and punctuation",
    "f1": "overlap of an answer's words with those of the gold answer that is closest",
    "contains": "share of answers that contain a gold answer, in whole words",
    JUDGED: "share of answers that a language model judges correct",
    "precision_positive": "share of the answers yes (or true) that are right",
    "precision_macro": "mean over the classes of the share of their answers that are right",
    "recall": "share of the gold passages that the reader was given, where the method searched",
    "coverage": "share of the searched questions whose reader was given all gold passages",
    "hit": "share of the searched questions whose reader was given at least one gold passage",
    "pool_recall": "share of the gold passages that a search found, read or not",
    "ir_accuracy": "share of questions whose first passage read holds a gold answer",
    "trigger": "share of the questions that were sent to retrieval",
    "llm_calls": "requests to the language model",
    "prompt_tokens": "tokens that the model was given",
    "new_tokens": "tokens that it wrote",
    "searches": "requests to the index",
    "seconds": "the engines' time when results were first computed, compilation apart; – where a "
    "store of an earlier version held results",
    "store_hits": "results that were taken from the store",
}
"""What the columns of the page's table mean."""

NOTE = (
    "Brackets: 95 % bootstrap intervals over questions; costs are means per question. Recall, "
    "coverage and hit are over the questions that searched; IR: the first passage read holds an "
    "answer; seconds: of the first computation, compilation apart, as if nothing were stored. ΔEM "
    "is paired with the baseline on the same questions; p: sign-flip test, not adjusted for "
    "several comparisons."
)
READ = "Below: 95 % intervals. Costs are means per question."
READ_DIFFERENCES = " ΔEM is paired; p is not adjusted."
"""How the terminal's table is read, without and with a baseline."""

DIFFERENCES = {"delta_em": "exact_match", "delta_f1": "f1"}
"""Columns of differences from the baseline, by the names that choose them."""


def _shown(name: str, rows: Sequence[Row]) -> bool:
    return name not in OPTIONAL or any(row.means[name].n for row in rows)


def shown_metrics(rows: Sequence[Row], columns: Sequence[str] = ()) -> dict[str, str]:
    """Metrics of a table in files, and headings: of ``columns``, or all that a run defines."""
    names = [name for name in HEADINGS if name != "pool_recall" and _shown(name, rows)]
    if columns:
        names = [_metric_names()[column] for column in columns if column not in DIFFERENCES]
    return {name: HEADINGS[name] for name in names}


def check_columns(columns: Sequence[str]) -> None:
    """Raises InputError for a name that is no column, with the nearest."""
    names = [*_metric_names(), *DIFFERENCES]
    for column in columns:
        if column not in names:
            near, *_ = difflib.get_close_matches(column, names, 1, 0)
            raise InputError(
                f"no column {column!r}; nearest: {near}. There are {', '.join(names)}."
            )


def _metric_names() -> dict[str, str]:
    """Metrics by the words of their headings, such as "em"."""
    words = {name: re.findall(r"\w+", heading.lower()) for name, heading in HEADINGS.items()}
    return {"_".join(heading): name for name, heading in words.items()}


def terminal_table(rows: Sequence[Row]) -> Table:
    """A table for ``rich``, about 100 columns wide; a run's second line has n and intervals."""
    caption = terminal_text("".join(f"{note}\n" for note in notes(rows)), "bold")
    compared = any(row.baseline for row in rows)
    caption.append(READ + READ_DIFFERENCES * compared, "not bold")
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, caption=caption)
    table.caption_justify = "left"
    table.add_column("method", overflow="fold", min_width=18)
    columns = {name: heading for name, heading in TERMINAL.items() if _shown(name, rows)}
    for heading in (*columns.values(), *["ΔEM"] * compared):
        table.add_column(heading, justify="right", overflow="fold")
    for dataset in dict.fromkeys(row.dataset for row in rows):
        table.add_section()
        table.add_row(terminal_text(dataset, "bold"))
        members = [row for row in rows if row.dataset == dataset]
        for row in members:
            cells = (_two_lines(name, row.means[name]) for name in columns)
            name = terminal_text(f"{row.label}\nn = {count_text(row)}")
            against = _against(row, alone=len(members) == 1)
            table.add_row(name, *cells, *[against] * compared)
    return table


def _two_lines(name: str, mean: Interval) -> str:
    value, ends = with_interval(name, mean)
    return f"{value}\n[dim]{ends[1:-1].replace(', ', '–')}[/dim]" if name in PERCENT else value


def _against(row: Row, *, alone: bool) -> str:
    """The difference from the baseline, with its p-value and interval."""
    if not row.baseline:
        return "" if alone else "baseline"
    mean, ends = difference_text(row.differences.get("exact_match"))
    interval, _, p = ends.partition(" p")
    return f"{mean} p{p}\n[dim]{interval[1:-1].replace(',', ' to')}[/dim]" if ends else mean


def notes(rows: Sequence[Row]) -> list[str]:
    """Alarms and differences of data, to print below the table; each sentence once."""
    return list(dict.fromkeys(note for row in rows for note in row.notes))


def markdown_table(rows: Sequence[Row]) -> str:
    """The rows as GitHub-flavoured Markdown, a table per data set and the note on how to read."""
    parts = []
    columns = shown_metrics(rows)
    for dataset in dict.fromkeys(row.dataset for row in rows):
        members = [row for row in rows if row.dataset == dataset]
        baseline = next((row.baseline for row in members if row.baseline), "")
        delta = [f"ΔEM vs {markdown_text(baseline)}"] if baseline else []
        heading = ["method", "n", *columns.values(), *delta]
        lines = [heading, ["---", *["---:"] * (len(heading) - 1)]]
        for row in members:
            cells = [_inline(row, name) for name in columns]
            compared = difference_text(row.differences.get("exact_match"))
            text = " ".join(compared) if row.baseline else "baseline"
            lines.append([markdown_text(row.label), count_text(row), *cells, *[text] * len(delta)])
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"**{markdown_text(dataset)}**\n\n{body}\n")
        if classes := class_grid(members):
            parts.append(classes.markdown())
        parts += [f"{markdown_text(note)}\n" for note in notes(members)]
    return "\n".join([*parts, NOTE, ""])


def _inline(row: Row, name: str) -> str:
    mean, ends = with_interval(name, row.means[name])
    texts = (mean, ends, markdown_text(baseline_text(row, name)))
    return " ".join(filter(None, texts)) if name in PERCENT else mean


def baseline_text(row: Row, name: str) -> str:
    """A retrieval metric of the baseline on the questions of a run that defines it for fewer."""
    same = row.baseline_on_same.get(name)
    if same is None or not 0 < same.n < row.answered:
        return ""
    return f"({row.baseline} on these {same.n:,}: {number(name, same.mean)})"


class Grid(NamedTuple):
    """A table of texts; the first column names the rows."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def terminal(self) -> Table:
        """The table for ``rich``."""
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for place, heading in enumerate(self.headings):
            names = (row[0][:15] for row in self.rows if not place)
            least = max(map(len, (*heading.split(), *names)))
            words = not place or any(row[place][:1].isalpha() for row in self.rows)
            justify = "left" if words else "right"
            heading_text = terminal_text(heading)
            table.add_column(heading_text, justify=justify, min_width=least, overflow="fold")
        for row in self.rows:
            table.add_row(*map(terminal_text, row))
        return table

    def markdown(self) -> str:
        """The table as GitHub-flavoured Markdown."""
        rule = ("---", *["---:"] * (len(self.headings) - 1))
        lines = [self.headings, rule, *self.rows]
        return "".join(f"| {' | '.join(map(markdown_text, line))} |\n" for line in lines)

    def html(self) -> str:
        """The table as HTML of the report's page."""
        head, *body = (
            f"<tr>{''.join(f'<{tag}>{html_text(cell)}</{tag}>' for cell in row)}</tr>"
            for tag, row in [("th", self.headings), *(("td", row) for row in self.rows)]
        )
        return (
            f'<div class="wide"><table><thead>{head}</thead>'
            f"<tbody>{''.join(body)}</tbody></table></div>"
        )


def need_grid(
    runs: Sequence[RunRecords], names: Sequence[str], needs: Sequence[Mapping[str, str]]
) -> Grid | None:
    """Questions of gated runs by the ``needs`` of a search, and where gold was lost."""
    lines, marked = [], places(runs)
    for run, name, kinds in zip(runs, names, needs, strict=True):
        counts = Counter(kinds.values())
        where = Counter(lost(line) for line in run.records if line["question_id"] in kinds)
        numbers = list[int]()
        for part in (SKIPPED, SEARCHED):
            by_kind = [counts[kind] for kind in part]
            numbers += [sum(by_kind), *by_kind]
        numbers += [where[kind] for kind in marked]
        if kinds:
            lines.append((name, *(f"{count:,}" for count in numbers)))
    gold = [f"gold {kind}" for kind in marked]
    headings = ("was the search needed?", "skips", *SKIPPED, "searches", *SEARCHED, *gold)
    return Grid(headings, lines) if lines else None


def class_grid(rows: Sequence[Row]) -> Grid | None:
    """Accuracy by class of the runs of a data set, if its classes have names."""
    names = list(dict.fromkeys(name for row in rows for name in row.classes))
    if not names:
        return None
    lines = []
    for row in rows:
        means = [row.classes.get(name) for name in names]
        cells = [" ".join(with_interval("exact_match", mean)) if mean else "–" for mean in means]
        lines.append((row.label, *cells))
    size = {name: max(row.classes[name].n for row in rows if name in row.classes) for name in names}
    return Grid(("accuracy by class, %", *(f"{n} (n = {size[n]:,})" for n in names)), lines)
