"""Command line ``jaxrag store report|verify|rescue|merge PATH``: maintains a store."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from jaxrag.core.rescue import rescue
from jaxrag.core.store import Store
from jaxrag.text.printable import printable, terminal_text
from jaxrag.types import InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; exit code 0 for success, 1 for damaged entries, 2 for an error."""
    parser = argparse.ArgumentParser(prog="jaxrag", description="Maintains jaxrag's files.")
    commands = parser.add_subparsers(required=True, metavar="store")
    store = commands.add_parser("store", help="the store of generations and searches")
    actions = store.add_subparsers(
        required=True, dest="action", metavar="report|verify|rescue|merge"
    )
    actions.add_parser("report", help="count entries by producer").add_argument("path")
    verify = actions.add_parser("verify", help="check every entry")
    verify.add_argument("path")
    verify.add_argument("--drop", action="store_true", help="remove damaged entries")
    rescued = actions.add_parser("rescue", help="replace a damaged store by its intact entries")
    rescued.add_argument("path")
    merged = actions.add_parser("merge", help="add the entries of other stores")
    merged.add_argument("path")
    merged.add_argument("sources", nargs="+", metavar="SOURCE")
    arguments = parser.parse_args(argv)
    try:
        return _store(arguments)
    except InputError as error:
        print(printable(f"jaxrag: {error}"), file=sys.stderr)
        return 2


def _store(arguments: argparse.Namespace) -> int:
    if arguments.action == "merge":
        return _merge(Path(arguments.path), list(map(Path, arguments.sources)))
    if not Path(arguments.path).is_file():
        raise InputError(f"there is no store at {arguments.path}; check the path")
    if arguments.action == "rescue":
        kept = rescue(arguments.path)
        print(f"{kept:,} entries kept; the damaged file is {arguments.path}.damaged")
        return 0
    store = Store(arguments.path)
    if arguments.action == "report":
        _report(store)
        return 0
    count, damaged = store.verify(drop=arguments.drop)
    print(f"{count:,} entries, {len(damaged):,} damaged" + (", dropped" if arguments.drop else ""))
    for key in damaged:
        print(key)
    return 1 if damaged and not arguments.drop else 0


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
    sys.exit(main())
