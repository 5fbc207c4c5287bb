"""Maintains a store of generations, scores and searches.

    jaxrag store report runs/cache/store.sqlite
    jaxrag store verify runs/cache/store.sqlite --drop
    jaxrag store merge runs/cache/store.sqlite OTHER

``report`` counts the entries by what made them. ``verify`` checks every entry; ``--drop`` removes
those that are damaged. ``merge`` adds the entries of other stores. ``python -m experiments.store``
is the same command.

Exit code 0: done; 1: entries are damaged; 2: wrong input.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.configuration import script
from jaxrag.core.printable import terminal_text
from jaxrag.core.store import Store
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Maintains the store that the arguments name."""
    arguments = parser().parse_args(argv[1:])
    if arguments.action == "merge":
        return _merge(Path(arguments.path), list(map(Path, arguments.sources)))
    if not Path(arguments.path).is_file():
        raise InputError(f"there is no store at {arguments.path}; check the path")
    with contextlib.closing(Store(arguments.path)) as store:
        if arguments.action == "report":
            _report(store)
            return 0
        count, damaged = store.verify(drop=arguments.drop)
    print(f"{count:,} entries, {len(damaged):,} damaged" + (", dropped" if arguments.drop else ""))
    for key in damaged:
        print(key)
    return 1 if damaged and not arguments.drop else 0


def parser() -> argparse.ArgumentParser:
    """The parser of the arguments."""
    found = argparse.ArgumentParser(prog="jaxrag store")
    actions = found.add_subparsers(required=True, dest="action")
    for name in ("report", "verify", "merge"):
        actions.add_parser(name).add_argument("path")
    actions.choices["verify"].add_argument("--drop", action="store_true")
    actions.choices["merge"].add_argument("sources", nargs="+", metavar="SOURCE")
    return found


def _merge(path: Path, sources: Sequence[Path]) -> int:
    for source in sources:
        if not source.is_file():
            raise InputError(f"there is no store at {source}; check the path")
        if path.exists() and source.samefile(path):
            raise InputError(f"{source} is the store that others are merged into")
    with contextlib.closing(Store(path)) as target:
        for source in sources:
            with contextlib.closing(Store(source)) as other:
                print(f"{target.merge(other):,} new entries from {source}")
    return 0


def _report(store: Store) -> None:
    table = Table("operation", "entries", "kB", "identity")
    for producer in store.producers():
        size = f"{producer.bytes / 1000:,.0f}"
        cells = (producer.operation, f"{producer.entries:,}", size, producer.identity)
        table.add_row(*map(terminal_text, cells))
    Console(soft_wrap=not sys.stdout.isatty()).print(table)


if __name__ == "__main__":
    script(main)
