"""Lets a language model judge whether the answers of finished runs are correct.

    jaxrag judge runs/dtr runs/standard_rag --config configs/judge.py:server \\
        --config.model.model=NAME --config.model.urls=http://HOST:PORT/v1

A directory that is no run stands for all runs below it. The judgements are written to
``judgements.json`` in each run's directory, and are one more column, "judged %", of ``jaxrag
compare`` and ``jaxrag report`` from then on, with the share of replies that are judgements and
their agreement with exact match. Replies are kept in the store, so the same command goes on after
an interruption; another judge's replace them in the file. ``--config configs/judge.py`` alone is a
model of 135 million parameters, for a test.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from jaxrag.evaluation.status import named_directories
from jaxrag.experiments.configuration import parse_job, script, show
from jaxrag.runs.judge import Judge
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Judges the runs and prints their table."""
    judge, names, _ = parse_job(argv, "judge", kind=Judge)
    if not names:
        raise InputError("give run directories, or a parent of some: jaxrag judge RUN...")
    runs = named_directories(names)
    errors = sum(map(judge.judge, runs))
    show(runs)
    if errors:
        print(f"next: the same command, which tries again the {errors:,} answers with an error")
    else:
        print(f"next: jaxrag report {shlex.join(names)}")
    return 1 if errors else 0


if __name__ == "__main__":
    script(main)
