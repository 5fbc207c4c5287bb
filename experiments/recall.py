"""Compares retrievers by the gold passages that they find, and prints the table.

python -m experiments.recall --config configs/recall.py:tiny --workdir runs/recall
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from absl import flags
from rich.console import Console
from rich.table import Table

from experiments.configuration import parse, script
from jaxrag.jobs.recall import Recall, execute
from jaxrag.types import InputError


def _define(values: flags.FlagValues) -> None:
    flags.DEFINE_string("workdir", "", "directory of the job", flag_values=values)


def main(argv: Sequence[str]) -> int:
    """Compares by one config."""
    job, values = parse(argv, _define, kinds=(Recall,))
    if not values.workdir:
        raise InputError("give --workdir=DIRECTORY, such as --workdir=runs/recall")
    rows = execute(job, values.workdir)
    Console(width=max(Console().width, 104)).print(table(rows))
    return 0


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Means in percent with their intervals."""
    columns = [name for name in rows[0] if name not in ("data", "index", "questions")]
    shown = Table("data", "questions", "retriever", *columns, caption="percent, 95 % intervals")
    for row in rows:
        cells = [
            "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * value for value in row[name]))
            for name in columns
        ]
        shown.add_row(row["data"], str(row["questions"]), row["index"], *cells)
    return shown


if __name__ == "__main__":
    script(main)
