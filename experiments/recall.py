"""Compares retrievers, or queries, by the gold passages that they find, and prints the table.

    python -m experiments.recall --config configs/recall.py:tiny --workdir runs/recall

configs/query_recall.py compares the queries of a distilled student with its teacher's and with the
questions themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from absl import flags
from rich.console import Console
from rich.table import Table

from experiments.configuration import parse, script
from jaxrag.jobs import query_recall, recall
from jaxrag.types import InputError

JOBS: dict[type, Callable[[Any, str], list[dict[str, Any]]]] = {
    recall.Recall: recall.execute,
    query_recall.QueryRecall: query_recall.execute,
}
"""What executes a job, by its kind; each returns the rows of its table."""


def _define(values: flags.FlagValues) -> None:
    flags.DEFINE_string("workdir", "", "directory of the job", flag_values=values)


def main(argv: Sequence[str]) -> int:
    """Compares by one config."""
    job, values = parse(argv, _define, kinds=tuple(JOBS))
    if not values.workdir:
        raise InputError("give --workdir=DIRECTORY, such as --workdir=runs/recall")
    rows = JOBS[type(job)](job, values.workdir)
    Console(width=max(Console().width, 104)).print(table(rows))
    return 0


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Means in percent with their intervals, and paired differences where the rows have them.

    What is the same for all rows is said above the table.
    """
    labels = {"data": "data", "questions": "questions", "index": "retriever", "queries": "queries"}
    labels = {name: label for name, label in labels.items() if name in rows[0]}
    columns = [name for name in rows[0] if name not in (*labels, "minus_question")]
    same = [name for name in labels if all(row[name] == rows[0][name] for row in rows[1:])]
    title = ", ".join(f"{labels.pop(name)}: {rows[0][name]}" for name in same)
    compared = any("minus_question" in row for row in rows)
    caption = "percent, 95 % intervals" + "; Δ: minus the question's own" * compared
    shown = Table(*labels.values(), *columns, title=title or None, caption=caption)
    for row in rows:
        cells = ["{:.1f} [{:.1f}, {:.1f}]".format(*_percent(row[name])) for name in columns]
        for place, name in enumerate(columns if "minus_question" in row else ()):
            less = _percent(row["minus_question"][name])
            cells[place] += "\nΔ {:+.1f} [{:+.1f}, {:+.1f}]".format(*less)
        shown.add_row(*(str(row[name]) for name in labels), *cells)
    return shown


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values[:3]]


if __name__ == "__main__":
    script(main)
