"""What is whole of a damaged store, kept.

Keys are hashes, so entries lie evenly over all keys, and every entry has a checksum of its own. So
a damaged file is read range by range: a range that SQLite cannot read loses its entries and no
others, and what is read is what was once written.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from jaxrag.engines.store import BROKEN, Store, is_sound
from jaxrag.types import InputError

_RANGES = 1 << 12
_BATCH = 1000
_UNKNOWN = ("unknown", "{}")


def rescue(path: str | Path) -> int:
    """Puts a new store with all sound entries in the place of a damaged one; returns how many.

    The damaged file is kept beside it under a name that ends in ".damaged". No run may be using it.

    Raises:
      InputError: there is nothing to read, or a rescue has been done before.
    """
    path = Path(path)
    fresh, kept = (path.with_name(path.name + end) for end in (".rescued", ".damaged"))
    if kept.exists():
        raise InputError(f"{kept} is there from an earlier rescue: remove it, or move it away.")
    for file in _files(fresh):
        file.unlink(missing_ok=True)
    store, count = Store(fresh), 0
    with contextlib.closing(store):
        for (operation, identity), values in _sound(path):
            store.put(operation, identity, values)
            count += len(values)
    if not count:
        fresh.unlink()
        raise InputError(
            f"Nothing can be read of {path} in this way. `.recover` of SQLite's own command may "
            "find more; or move it away. Then run again."
        )
    for old, new in zip(_files(path), _files(kept), strict=True):
        if old.exists():
            old.rename(new)
    fresh.rename(path)
    return count


def _files(path: Path) -> list[Path]:
    return [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]


def _sound(path: Path) -> Iterator[tuple[tuple[str, str], dict[bytes, bytes]]]:
    """Batches of sound entries with the producer of each."""
    connection = sqlite3.connect(path, isolation_level=None)
    with contextlib.closing(connection):
        with contextlib.suppress(*BROKEN):  # without it a file cut short is refused as a whole
            connection.execute("PRAGMA writable_schema=ON")
        producers = {}
        with contextlib.suppress(*BROKEN):
            for number, *producer in connection.execute("SELECT * FROM producers"):
                producers[number] = tuple(map(str, producer))
        entries = itertools.chain.from_iterable(_range(connection, i) for i in range(_RANGES))
        while batch := list(itertools.islice(entries, _BATCH)):
            by_producer: dict[tuple[str, str], dict[bytes, bytes]] = {}
            for key, producer, value in batch:
                by_producer.setdefault(producers.get(producer, _UNKNOWN), {})[key] = value
            yield from by_producer.items()


def _range(connection: sqlite3.Connection, number: int) -> Iterator[tuple[bytes, object, bytes]]:
    """Key, producer and value of the sound entries in one of the ranges that can be read."""
    low, high = ((number + i) * (65536 // _RANGES) for i in (0, 1))
    query, bounds = "SELECT * FROM entries WHERE key >= ?", [low.to_bytes(2, "big")]
    if high < 65536:
        query, bounds = f"{query} AND key < ?", [*bounds, high.to_bytes(2, "big")]
    with contextlib.suppress(*BROKEN):
        for key, producer, value, found in connection.execute(query, bounds):
            if is_sound(key, value, found):
                yield key, producer, value
