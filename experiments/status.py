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
    known = prices() | (read_prices(Path(values.prices)) if values.prices else {})
    found = [status(path, prices=known) for path in runs]
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("run", "state", "answered", "last write", "left", "retrieves"):
        table.add_column(heading.replace(" ", "\n"), overflow="fold")
    priced = [one.dollars_left for one in found if one.dollars_left is not None]
    for heading in (*_COSTS, *(["dollars_left"] if priced else [])):
        table.add_column(heading.replace("_", "\n"), justify="right")
    for one in found:
        cells = _cells(one) + ([_dollars(one.dollars_left)] if priced else [])
        table.add_row(*map(terminal_text, cells))
    Console(width=max(Console().width, 100)).print(table)
    unfinished = sum(one.state != "finished" for one in found)
    if len(found) > 1:
        left = f"; {_dollars(sum(priced))} dollars left where a price is known" if priced else ""
        print(f"{len(found):,} runs, {unfinished:,} not finished{left}")
    return 1 if unfinished else 0


def _dollars(amount: float | None) -> str:
    return "" if amount is None else f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.2g}"


def _cells(one: Status) -> list[str]:
    left = "?" if one.left is None else duration_text(one.left)
    trigger = "" if one.trigger is None else f"{100 * one.trigger:.1f} %"
    return [
        str(one.path),
        one.state,
        f"{one.answered:,}/{one.asked:,}" + (f", {one.errors:,} failed" if one.errors else ""),
        f"{duration_text(one.idle)} ago",
        "" if one.state == "finished" else left,
        trigger,
        *(f"{one.totals[name]:,.0f}" for name in _COSTS),
    ]


if __name__ == "__main__":
    script(main)
