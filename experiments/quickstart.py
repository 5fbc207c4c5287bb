"""Four methods, and DTR without its gate, answer real questions with models from pip.

    make quickstart        or        jaxrag quickstart

SmolLM2-135M-Instruct reads, all-MiniLM-L6-v2 and ScaNN retrieve. The questions are 100 of the World
Factbook about 40 countries. The same command continues an interrupted run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from jaxrag.evaluation.report.page import write_report
from jaxrag.experiments.configuration import parse_plain, script, show
from jaxrag.runs.config_file import load
from jaxrag.runs.run import execute

METHODS = ("no_retrieval", "standard_rag", "pairs", "dtr", "dtr_wo_ugt")


def config(method: str, data: str = "quickstart") -> str:
    """The config of a method, as ``--config`` takes it."""
    return f"configs/dtr.py:{method}@{data}"


def main(argv: Sequence[str]) -> int:
    """Runs the methods and writes the report."""
    values = parse_plain(argv, "quickstart")
    started, workdir = time.monotonic(), Path(values.workdir)
    errors = 0
    for method in METHODS:
        run = load(config(method, values.data))
        errors += execute(run, workdir / method)["errors"]
    directories = [workdir / method for method in METHODS]
    show(directories)
    write_report(directories, workdir / "report.html")
    print(
        f"{time.monotonic() - started:.0f} s. The report, with every question's trace: "
        f"{workdir / 'report.html'}"
    )
    return 1 if errors else 0


if __name__ == "__main__":
    script(main)
