"""Prints the progress of runs, read from their files without disturbing them.

    python -m experiments.status runs/dtr runs/pairs

Exit code 0: all runs are finished; 1: some are not; 2: wrong input.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from experiments.configuration import script
from jaxrag.evaluation.status import Status, status
from jaxrag.text.printable import terminal_text
from jaxrag.types import InputError

_COSTS = ("llm_calls", "prompt_tokens", "new_tokens", "searches", "store_hits")


def main(argv: Sequence[str]) -> int:
    """Prints one row per run."""
    if not argv[1:] or any(argument.startswith("-") for argument in argv[1:]):
        raise InputError("give run directories: python -m experiments.status RUN...")
    found = [status(path) for path in argv[1:]]
    table = Table("run", "state", "answered", "errors", "last write", "engine time left", "trigger")
    for name in _COSTS:
        table.add_column(name.replace("_", " "), justify="right")
    for one in found:
        table.add_row(*map(terminal_text, _cells(one)))
    Console(width=max(Console().width, 120)).print(table)
    return 0 if all(one.state == "finished" for one in found) else 1


def _cells(one: Status) -> list[str]:
    left = "" if one.state == "finished" else _time(one.left)
    trigger = "" if one.trigger is None else f"{100 * one.trigger:.1f} %"
    return [
        str(one.path),
        one.state,
        f"{one.answered:,}/{one.asked:,}",
        str(one.errors),
        f"{_time(one.idle)} ago",
        left,
        trigger,
        *(f"{one.totals[name]:,.0f}" for name in _COSTS),
    ]


def _time(seconds: float | None) -> str:
    """A duration in a unit that fits."""
    if seconds is None:
        return "?"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * 86400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


if __name__ == "__main__":
    script(main)
