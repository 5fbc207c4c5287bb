"""Trains selectors of ARS-RAG from stored reward tables, and prints what they come to.

    python -m experiments.select --config configs/train_selector.py:paper@tables/boolq \
        --workdir runs/selector

The same command again goes on where it was stopped: every training that is done is kept. The
directory then holds curves.jsonl, selector.json, report.html with its tables as report.md, and in
``selectors`` the trained selectors. No language model is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags
from rich.console import Console

from experiments.configuration import parse, script
from jaxrag.evaluation.selector_report import tables_of
from jaxrag.jobs.selector import TrainSelector, execute
from jaxrag.types import InputError


def _define(values: flags.FlagValues) -> None:
    flags.DEFINE_string("workdir", "", "directory of the job", flag_values=values)


def main(argv: Sequence[str]) -> int:
    """Trains by one config."""
    job, values = parse(argv, _define, kinds=(TrainSelector,))
    if not values.workdir:
        raise InputError("give --workdir=DIRECTORY, such as --workdir=runs/selector")
    found = execute(job, values.workdir)
    console = Console(width=max(Console().width, 160))
    for table in found["tables"]:
        for grid in tables_of(table):
            console.print(grid.terminal())
    print(f"wrote {Path(values.workdir) / 'report.html'}")
    return 0


if __name__ == "__main__":
    script(main)
