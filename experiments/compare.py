"""Compares runs question by question with a baseline: intervals, paired differences, p-values.

    jaxrag compare runs/standard_rag runs/dtr
    jaxrag compare 'runs/*' --baseline=dtr

A directory that is no run stands for all runs below it, such as a sweep's. ``jaxrag report`` takes
the same names, and writes a page with figures and traces.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxrag.experiments.configuration import parse_runs, script, show


def main(argv: Sequence[str]) -> int:
    """Prints the table of the runs."""
    runs, values = parse_runs(argv, "compare")
    show(runs, baseline=values.baseline)
    return 0


if __name__ == "__main__":
    script(main)
