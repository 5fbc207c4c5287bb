"""Maintains a store of generations, scores and searches.

    jaxrag store report ~/.cache/jaxrag/store.sqlite
    jaxrag store verify ~/.cache/jaxrag/store.sqlite --drop
    jaxrag store merge ~/.cache/jaxrag/store.sqlite OTHER

``report`` counts the entries by what made them. ``verify`` checks every entry; ``--drop`` removes
those that are damaged. ``merge`` adds the entries of other stores.

Exit code 0: done; 1: entries are damaged; 2: wrong input.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from jaxrag.core.printable import terminal_text
from jaxrag.core.store import Store
from jaxrag.experiments.configuration import parse_named, script
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Maintains the store that the arguments name."""
    action, path, sources, drop = read_command(argv)
    if action == "merge":
        return _merge(path, sources)
    if not path.is_file():
        raise InputError(f"there is no store at {path}; check the path")
    with contextlib.closing(Store(path)) as store:
        if action == "report":
            _report(store)
            return 0
        count, damaged = store.verify(drop=drop)
    print(f"{count:,} entries, {len(damaged):,} damaged" + (", dropped" if drop else ""))
    for key in damaged:
        print(key)
    return 1 if damaged and not drop else 0


def read_command(argv: Sequence[str]) -> tuple[str, Path, list[Path], bool]:
    """The action, the store, stores to add, whether to drop damaged entries; else InputError."""
    names, values = parse_named(argv, "store")
    action, paths = "".join(names[:1]), list(map(Path, names[1:]))
    actions = ("report", "verify", "merge")
    if action not in actions:
        near, *_ = difflib.get_close_matches(action[:100], actions, 1, 0)
        raise InputError(f"jaxrag store has no {action!r}: {', '.join(actions)}. Nearest: {near}.")
    if len(paths) < 1 + (action == "merge") or (len(paths) > 1 and action != "merge"):
        raise InputError(f"give jaxrag store {action} PATH{' SOURCE...' * (action == 'merge')}")
    return action, paths[0], paths[1:], values.drop


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
