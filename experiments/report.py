"""Turns run directories into one HTML page and a Markdown table.

    python -m experiments.report --runs runs/standard_rag --runs runs/dtr --out report.html

Directories of `experiments.train` in their place give a page of their own: loss and accuracy by
step, what changed with intervals, and where the time went. A directory of `experiments.select`
gives the page of its selectors.

``--figures=DIRECTORY`` writes the page's figures as SVG files, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags
from rich.console import Console

from experiments.configuration import parse_plain, script
from jaxrag.evaluation.figure_files import write_figures
from jaxrag.evaluation.report import write_report
from jaxrag.evaluation.selector_report import is_selector, write_selector_report
from jaxrag.evaluation.summary import BASELINE
from jaxrag.evaluation.tables import terminal_table
from jaxrag.evaluation.training_log import is_training
from jaxrag.evaluation.training_report import write_training_report
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Writes the report and prints its table."""
    values = parse_plain(argv, _define)
    console = Console(width=max(Console().width, 104))
    if any(map(is_selector, values.runs)):
        _selectors(values, console)
    else:
        _runs_or_trainings(values, console)
    page = Path(values.out)
    print(f"wrote {page} and {page.with_suffix('.md')}")
    if values.figures:
        files = write_figures(page, values.figures)
        print(f"wrote {len(files)} figures to {values.figures}")
    return 0


def _runs_or_trainings(values: Any, console: Console) -> None:
    """The page of runs, or of trainings."""
    trainings = [is_training(path) for path in values.runs]
    if any(trainings) and not all(trainings):
        raise InputError("Give --runs of methods or of trainings: a page shows one or the other.")
    if any(trainings):
        for table in write_training_report(values.runs, values.out):
            console.print(table.terminal())
    else:
        rows = write_report(values.runs, values.out, baseline=values.baseline)
        console.print(terminal_table(rows))


def _selectors(values: Any, console: Console) -> None:
    """The page of the one directory of selectors."""
    if len(values.runs) > 1:
        raise InputError("Give one --runs of selectors: its page shows nothing else.")
    for table in write_selector_report(values.runs[0], values.out):
        console.print(table.terminal())


def _define(values: flags.FlagValues) -> None:
    flags.DEFINE_multi_string(
        "runs", [], "run directory; give it once for each run", flag_values=values
    )
    flags.DEFINE_string(
        "out", "report.html", "page to write; the table goes beside it as .md", flag_values=values
    )
    flags.DEFINE_string(
        "figures", "", "directory for the page's figures as SVG files", flag_values=values
    )
    flags.DEFINE_string(
        "baseline", BASELINE, "method or run directory to compare with", flag_values=values
    )


if __name__ == "__main__":
    script(main)
