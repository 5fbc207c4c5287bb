"""Runs one config at several values of one setting; stored results are reused.

    jaxrag sweep --config configs/dtr.py:dtr@quickstart \\
        --key method.gate.threshold --values 0,0.01,0.05,0.1,0.3,1,3 --workdir runs/sweep

Writes one run directory per value, prints one table, and writes ``WORKDIR/report.html`` and its
figures as SVG files in ``WORKDIR/figures``. Values that lead to the same prompts cost no further
calls of the language model, in this sweep and in later ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from jaxrag.evaluation.report.figure_files import write_figures
from jaxrag.evaluation.report.page import write_report
from jaxrag.experiments.configuration import parse, script, show
from jaxrag.runs.edits import edited
from jaxrag.runs.run import Run, execute
from jaxrag.types import InputError


def with_value(run: Run, key: str, text: str) -> Run:
    """``run`` with the setting at dotted ``key`` read from ``text``, and a label that says so.

    Raises:
      InputError: no such setting, or the text is no value of its type.
    """
    changed = edited(run, {key: text})
    return dataclasses.replace(changed, label=f"{run.name} {key.rpartition('.')[2]}={text}")


def main(argv: Sequence[str]) -> int:
    """Runs the sweep."""
    run, values = parse(argv, "sweep", kind=Run)
    if not values.workdir or not values["values"].value:
        raise InputError("give --workdir=DIRECTORY and --values=A,B,C")
    errors, directories = 0, []
    for text in values["values"].value:
        directories.append(Path(values.workdir) / f"{values.key.rpartition('.')[2]}={text}")
        errors += execute(with_value(run, values.key, text), directories[-1])["errors"]
    show(directories)
    page = Path(values.workdir) / "report.html"
    write_report(directories, page)
    write_figures(page, page.parent / "figures")
    print(f"wrote {page}, and its figures to {page.parent / 'figures'}")
    return 1 if errors else 0


if __name__ == "__main__":
    script(main)
