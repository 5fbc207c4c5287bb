"""Turns run directories into one HTML page, and its table as Markdown, CSV and LaTeX.

    jaxrag report runs/standard_rag runs/dtr --out report.html
    jaxrag report runs/sweep

A directory that is no run stands for all runs below it, and "runs/*" for all that it matches.
Written are ``report.html``, ``.md``, ``.csv`` (for spreadsheets: ends of intervals are columns of
their own) and ``.tex`` (a ``tabular`` per data set, for LaTeX with booktabs).

For trainings instead of runs, the page shows loss and metrics by step, and changes with intervals.

``--columns=em,retrieves,delta_em`` chooses the columns of ``.csv`` and ``.tex``, by the words of
their headings. ``--figures=DIRECTORY`` also writes the figures of the page as SVG files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from jaxrag.evaluation.report.figure_files import write_figures
from jaxrag.evaluation.report.page import write_report
from jaxrag.evaluation.report.tables import terminal_table
from jaxrag.evaluation.report.training_page import write_training_report
from jaxrag.evaluation.training_log import is_training
from jaxrag.experiments.configuration import parse_runs, script
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Writes the report and prints its table."""
    runs, values = parse_runs(argv, "report")
    console = Console(width=max(Console().width, 104))
    page = Path(values.out)
    _check_free(page)
    beside = ".md"
    if _are_trainings(runs):
        if values.columns:
            raise InputError("--columns chooses columns of the table of runs: leave it out here.")
        for table in write_training_report(runs, page):
            console.print(table.terminal())
    else:
        rows = write_report(runs, page, baseline=values.baseline, columns=values.columns)
        console.print(terminal_table(rows))
        beside = ".md, .csv and .tex"
    print(f"wrote {page}, and beside it its tables as {beside}")
    if values.figures:
        files = write_figures(page, values.figures)
        print(f"wrote {len(files)} figures to {values.figures}")
    return 0


def _check_free(page: Path) -> None:
    """Refuses to overwrite files that are not those of an earlier report at the same place."""
    if page.is_file() and b"jaxrag" in page.read_bytes():
        return
    for file in (page, *map(page.with_suffix, (".md", ".csv", ".tex"))):
        if os.path.lexists(file):
            raise InputError(f"{file} is not of an earlier report: give another --out.")


def _are_trainings(paths: Sequence[Path]) -> bool:
    """Whether the directories are trainings' rather than runs'."""
    trainings = [is_training(path) for path in paths]
    if any(trainings) and not all(trainings):
        raise InputError("Give runs of methods or of trainings: a page shows one or the other.")
    return any(trainings)


if __name__ == "__main__":
    script(main)
