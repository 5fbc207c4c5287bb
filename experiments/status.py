"""Prints the progress of runs, read from their files without disturbing them.

    jaxrag status runs/dtr runs/pairs
    jaxrag status runs --prices prices.json

A directory that is no run stands for all runs below it, and "runs/*" for all that it matches.
``--prices`` names a list of models' prices (`jaxrag.evaluation.prices` has its form); the dollars
that the remaining questions cost are then estimated from the tokens of those that are answered.

Exit code 0: all runs are finished; 1: some are not; 2: wrong input.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from jaxrag.core.printable import terminal_text
from jaxrag.core.progress import duration_text
from jaxrag.evaluation.prices import prices, read_prices
from jaxrag.evaluation.status import Status, status
from jaxrag.experiments.configuration import parse_runs, script

_COSTS = ("llm_calls", "prompt_tokens", "new_tokens", "searches", "store_hits")


def main(argv: Sequence[str]) -> int:
    """Prints one row per run."""
    runs, values = parse_runs(argv, "status")
    price_table = prices() | (read_prices(Path(values.prices)) if values.prices else {})
    statuses = [status(path, prices=price_table) for path in runs]
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("run", "state", "answered", "last write", "left", "retrieves"):
        table.add_column(heading.replace(" ", "\n"), overflow="fold")
    priced = [run.dollars_left for run in statuses if run.dollars_left is not None]
    for heading in (*_COSTS, *(["dollars_left"] if priced else [])):
        table.add_column(heading.replace("_", "\n"), justify="right")
    for run in statuses:
        cells = _cells(run) + ([_dollars(run.dollars_left)] if priced else [])
        table.add_row(*map(terminal_text, cells))
    Console(width=max(Console().width, 100)).print(table)
    unfinished = sum(run.state != "finished" for run in statuses)
    if len(statuses) > 1:
        dollars = f"; {_dollars(sum(priced))} dollars left where a price is known" if priced else ""
        print(f"{len(statuses):,} runs, {unfinished:,} not finished{dollars}")
    return 1 if unfinished else 0


def _dollars(amount: float | None) -> str:
    return "" if amount is None else f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.2g}"


def _cells(run: Status) -> list[str]:
    remaining = "?" if run.left is None else duration_text(run.left)
    trigger = "" if run.trigger is None else f"{100 * run.trigger:.1f} %"
    return [
        str(run.path),
        run.state,
        f"{run.answered:,}/{run.asked:,}" + (f", {run.errors:,} failed" if run.errors else ""),
        f"{duration_text(run.idle)} ago",
        "" if run.state == "finished" else remaining,
        trigger,
        *(f"{run.totals[name]:,.0f}" for name in _COSTS),
    ]


if __name__ == "__main__":
    script(main)
