"""Compares runs question by question with a baseline: intervals, differences, p-values.

    jaxrag compare runs/standard_rag runs/dtr
    jaxrag compare 'runs/*' --baseline=dtr
    jaxrag compare runs/dtr intermediate_data.json --printed=39.5

A directory that is no run stands for all runs below it, such as a sweep's. A file has the answers
of another system to the first run's questions: FlashRAG's ``intermediate_data.json``, or a .json,
.jsonl or .csv of ``question`` and ``pred``, ``prediction``, ``answer`` or ``response``, which may
hold the answer in <answer> tags, as Search-R1's model writes it. They are scored with the run's
gold answers. ``--printed`` is an exact match, in percent, of a paper. Of what is open, the last
lines say how many questions would decide it, with a power of 80 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from jaxrag.evaluation.others import read_answers
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report.tables import terminal_table
from jaxrag.evaluation.significance import needed_questions
from jaxrag.evaluation.status import named_directories
from jaxrag.evaluation.summary import Row, summarise_read
from jaxrag.experiments.configuration import parse_named, script
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Prints the table of the runs, and what would decide the open comparisons."""
    names, values = parse_named(argv, "compare")
    files = [Path(name) for name in names if Path(name).is_file()]
    directories = [name for name in names if not Path(name).is_file()]
    if not directories:
        raise InputError("give run directories, or a parent of some: jaxrag compare RUN...")
    runs = [read_run(path) for path in named_directories(directories)]
    runs += [read_answers(file, runs[0]) for file in files]
    rows = summarise_read(runs, baseline=values.baseline)
    Console(width=max(Console().width, 104)).print(terminal_table(rows))
    for line in (*_open(rows), *(_printed(row, values.printed) for row in rows if values.printed)):
        print(line)
    return 0


def _open(rows: Sequence[Row]) -> Iterator[str]:
    """The differences of exact match that may be chance, and how many questions would tell."""
    for row in rows:
        delta = row.differences.get("exact_match")
        if delta and delta.n and delta.mean and delta.low <= 0 <= delta.high:
            spread = (delta.high - delta.low) / 2 / 1.96 * math.sqrt(delta.n)
            yield (
                f"{row.label}, {100 * delta.mean:+.1f} against {row.baseline}, is open: about "
                f"{needed_questions(spread, delta.mean):,} questions would decide it"
            )


def _printed(row: Row, percent: float) -> str:
    """Where a printed exact match lies beside a run's, and how many questions would tell."""
    ours = row.means["exact_match"]
    effect, spread = ours.mean - percent / 100, math.sqrt(ours.mean * (1 - ours.mean))
    inside = ours.low <= percent / 100 <= ours.high
    needed = f"; {needed_questions(spread, effect):,} questions would decide it"
    return (
        f"{row.label}: the printed {percent:g} lies {'inside' if inside else 'outside'} the "
        f"interval of {100 * ours.mean:.1f} [{100 * ours.low:.1f}, {100 * ours.high:.1f}], "
        f"difference {100 * effect:+.1f}" + needed * bool(inside and effect and spread)
    )


if __name__ == "__main__":
    script(main)
