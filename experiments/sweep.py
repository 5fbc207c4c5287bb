"""Runs one config at several values of one or more settings; stored results are reused.

    jaxrag sweep --config configs/dtr.py:dtr@quickstart --values 0,0.2,0.4,0.8 --workdir runs/sweep
    jaxrag sweep --config configs/dtr.py:dtr@quickstart --over method.gate.threshold=0.2,0.4 \\
        --over method.select.k=1,3 --workdir runs/grid

``--over`` names a setting and its values; several of them make a grid of all combinations.
``--values`` are those of ``--key``. All are checked before the first run. Each run has a directory
of its own, such as ``WORKDIR/threshold=0.2,k=3``. Then the table is printed, and
``WORKDIR/report.html`` and its figures as SVG files in ``WORKDIR/figures`` are written. Values that
lead to the same prompts cost no further calls of the language model, in this sweep and in later
ones.
"""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.evaluation.report.figure_files import write_figures
from jaxrag.evaluation.report.page import write_report
from jaxrag.experiments.configuration import parse, script, show
from jaxrag.runs.edits import edited
from jaxrag.runs.run import Run, execute
from jaxrag.types import InputError


def read_axes(values: Any) -> dict[str, list[str]]:
    """The values of each setting, as texts; InputError if one has none or is given twice."""
    listed = ",".join(values["values"].value)
    axes: dict[str, list[str]] = {}
    for text in [*[f"{values.key}={listed}"] * bool(listed), *values.over]:
        key, _, rest = text.removeprefix("config.").partition("=")
        if key in axes:
            raise InputError(f"{key} is given twice: give all its values at once, {key}=A,B,C.")
        axes[key] = list(dict.fromkeys(value.strip() for value in rest.split(",") if value.strip()))
        if not axes[key]:
            raise InputError(f"--over is {text!r}: give NAME=A,B,C, such as method.select.k=1,3.")
    if not axes:
        raise InputError("give --values=A,B,C, or --over=NAME=A,B,C for each setting of a grid")
    return axes


def grid(run: Run, axes: Mapping[str, Sequence[str]]) -> dict[str, Run]:
    """A run for each combination, by its directory's name; InputError if a value does not fit."""
    last = [key.rpartition(".")[2] for key in axes]
    names = [key if last.count(name) > 1 else name for key, name in zip(axes, last, strict=True)]
    runs = {}
    for texts in itertools.product(*axes.values()):
        words = [f"{name}={text}" for name, text in zip(names, texts, strict=True)]
        changed = edited(run, dict(zip(axes, texts, strict=True)))
        label = " ".join([run.name, *words])
        runs[",".join(words)] = dataclasses.replace(changed, label=label)
    return runs


def main(argv: Sequence[str]) -> int:
    """Runs the sweep."""
    run, values = parse(argv, "sweep", kind=Run)
    runs = grid(run, read_axes(values))
    if not values.workdir:
        raise InputError("give --workdir=DIRECTORY, the parent of the run directories")
    directories = [Path(values.workdir) / name for name in runs]
    errors = 0
    for path, job in zip(directories, runs.values(), strict=True):
        errors += execute(job, path)["errors"]
    show(directories)
    page = Path(values.workdir) / "report.html"
    write_report(directories, page)
    write_figures(page, page.parent / "figures")
    print(f"wrote {page}, and its figures to {page.parent / 'figures'}")
    again = "the same command, which tries the failed questions again"
    print(f"next: {again if errors else f'jaxrag compare {shlex.quote(values.workdir)}'}")
    return 1 if errors else 0


if __name__ == "__main__":
    script(main)
