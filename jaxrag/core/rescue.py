"""Recovery of the intact entries of a damaged store.

Keys are hashes, so entries are distributed evenly over the key space. A damaged file is read by
ranges of keys: a range that SQLite cannot read loses only its own entries. Every entry that is read
is verified by its checksum.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from jaxrag.core.store import DATABASE_ERRORS, Store, is_intact
from jaxrag.types import InputError

_RANGES = 1 << 12
_BATCH = 1000
_UNKNOWN = ("unknown", "{}")


def rescue(path: str | Path) -> int:
    """Replaces a damaged store by a new one with its intact entries; returns their number.

    The damaged file is kept as ``PATH.damaged``. No run may use the store meanwhile.

    Raises:
      InputError: nothing can be read, or a ``.damaged`` file of an earlier rescue exists.
    """
    path = Path(path)
    fresh, damaged = (path.with_name(path.name + end) for end in (".rescued", ".damaged"))
    if damaged.exists():
        raise InputError(f"{damaged} exists from an earlier rescue: remove it or move it away.")
    for file in _database_files(fresh):
        file.unlink(missing_ok=True)
    store, count = Store(fresh), 0
    with contextlib.closing(store):
        for (operation, identity), values in _intact_entries(path):
            store.put(operation, identity, values)
            count += len(values)
    if not count:
        fresh.unlink()
        raise InputError(
            f"Nothing can be read from {path}. The `.recover` command of the sqlite3 program may "
            "recover more; otherwise move the file away. Then run again."
        )
    for old, new in zip(_database_files(path), _database_files(damaged), strict=True):
        if old.exists():
            old.rename(new)
    fresh.rename(path)
    return count


def _database_files(path: Path) -> list[Path]:
    return [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]


def _intact_entries(path: Path) -> Iterator[tuple[tuple[str, str], dict[bytes, bytes]]]:
    """Intact entries in batches, each batch with its producer (operation, identity)."""
    try:
        connection = sqlite3.connect(path, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise InputError(f"{path} cannot be opened ({error}): check its permissions.") from error
    with contextlib.closing(connection):
        with contextlib.suppress(*DATABASE_ERRORS):  # otherwise SQLite refuses a truncated file
            connection.execute("PRAGMA writable_schema=ON")
        producers = {}
        with contextlib.suppress(*DATABASE_ERRORS):
            for number, *producer in connection.execute("SELECT * FROM producers"):
                producers[number] = tuple(map(str, producer))
        entries = itertools.chain.from_iterable(_range(connection, i) for i in range(_RANGES))
        while batch := list(itertools.islice(entries, _BATCH)):
            by_producer: dict[tuple[str, str], dict[bytes, bytes]] = {}
            for key, producer, value in batch:
                by_producer.setdefault(producers.get(producer, _UNKNOWN), {})[key] = value
            yield from by_producer.items()


def _range(connection: sqlite3.Connection, number: int) -> Iterator[tuple[bytes, object, bytes]]:
    """Key, producer and value of the intact entries in one range of keys, up to the first error."""
    low, high = ((number + i) * (65536 // _RANGES) for i in (0, 1))
    query, bounds = "SELECT * FROM entries WHERE key >= ?", [low.to_bytes(2, "big")]
    if high < 65536:
        query, bounds = f"{query} AND key < ?", [*bounds, high.to_bytes(2, "big")]
    with contextlib.suppress(*DATABASE_ERRORS):
        for key, producer, value, stored_checksum in connection.execute(query, bounds):
            if is_intact(key, value, stored_checksum):
                yield key, producer, value
