"""The content-addressed store: nothing expensive is computed twice or lost.

One SQLite file maps the hash of *all that determines a result* (operation, identity of the model
or index with its settings, exact input) to the result's bytes. It only ever grows. Each write is
one transaction in write-ahead mode, so a killed process loses at most the batch in flight and
several processes may share the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.types import InputError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS format(version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS producers(
    id INTEGER PRIMARY KEY, operation TEXT NOT NULL, identity TEXT NOT NULL,
    UNIQUE(operation, identity));
CREATE TABLE IF NOT EXISTS entries(
    key BLOB PRIMARY KEY, producer INTEGER NOT NULL REFERENCES producers(id),
    value BLOB NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID;
"""
_VERSION = 1
BROKEN = (sqlite3.DatabaseError, UnicodeDecodeError)  # the latter where it quotes what it read
_PATIENCE = 120  # seconds that another process may hold the file
_ROOM = 1 << 20  # bytes; with less the disk counts as full
_LOOKUP = 500  # keys in one SELECT; SQLite's limit on variables is higher


class Holding(NamedTuple):
    """What the store holds from one producer."""

    operation: str
    identity: str
    entries: int
    bytes: int


def canonical(value: Any) -> str:
    """The one JSON text of ``value``: sorted keys, no spaces, NaN and infinity refused."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )


def digest(*parts: str) -> str:
    """SHA-256 (hex) of the parts, each set apart by its length."""
    return _digest(parts).hex()


def _digest(parts: Iterable[str]) -> bytes:
    state = hashlib.sha256()
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.digest()


def entry_key(operation: str, identity: str, payload: str) -> bytes:
    """Key of a result: who computed it (operation, identity) from what (payload)."""
    return _digest((operation, identity, payload))


def checksum(key: bytes, value: bytes) -> bytes:
    """What is stored beside an entry, to tell damage by."""
    return hashlib.blake2b(key + value, digest_size=8).digest()


def is_sound(key: object, value: object, found: object) -> bool:
    """Whether an entry is as it was written.

    Raises:
      sqlite3.DatabaseError: its key is none any more, so it cannot even be named.
    """
    if not isinstance(key, bytes):  # a damaged file may hold other types
        raise sqlite3.DatabaseError("an entry has lost its key")
    return isinstance(value, bytes) and checksum(key, value) == found


class Store:
    """A key-value file of results; see the module's text.

    Args:
      path: the SQLite file, made where missing; None keeps everything in memory.

    Raises:
      InputError: the file is no store, or is damaged.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = "memory" if path is None else str(path)
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = sqlite3.connect(
                ":memory:" if path is None else str(path), timeout=_PATIENCE, isolation_level=None
            )
            with contextlib.ExitStack() as undo:
                undo.callback(self._connection.close)
                self._open()
                undo.pop_all()
        except BROKEN as error:
            raise self._trouble(error) from error
        self._producers: dict[tuple[str, str], int] = {}

    def _open(self) -> None:
        execute = self._connection.execute
        self._write_ahead()
        execute("PRAGMA synchronous=NORMAL")
        execute("BEGIN IMMEDIATE")
        tables = {name for (name,) in execute("SELECT name FROM sqlite_master WHERE type='table'")}
        if tables and "entries" not in tables:
            execute("ROLLBACK")
            raise InputError(f"{self.path} is an SQLite file but not a jaxrag store: name another.")
        for statement in _SCHEMA.split(";"):
            execute(statement)
        if execute("SELECT version FROM format").fetchone() is None:
            execute("INSERT INTO format VALUES (?)", (_VERSION,))
        (version,) = execute("SELECT version FROM format").fetchone()
        execute("COMMIT")
        if version != _VERSION:
            raise InputError(
                f"{self.path} has store format {version}; this jaxrag reads {_VERSION}: "
                "name a new file, or use the jaxrag that wrote it."
            )

    def _write_ahead(self) -> None:
        """Goes to write-ahead mode; here SQLite itself does not wait for one that does the same."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Values of those ``keys`` that are present.

        Raises:
          InputError: an entry's bytes differ from what was written.
        """
        found: dict[bytes, bytes] = {}
        try:
            for start in range(0, len(keys), _LOOKUP):
                part = keys[start : start + _LOOKUP]
                marks = ",".join("?" * len(part))
                rows = self._connection.execute(
                    f"SELECT key, value, checksum FROM entries WHERE key IN ({marks})", part
                )
                for key, value, found_sum in rows:
                    if not is_sound(key, value, found_sum):
                        raise InputError(
                            f"{self.path}: entry {key.hex()[:16]} is damaged. "
                            f"`jaxrag store verify {self.path}` lists all such entries, "
                            "`--drop` removes them so that they are computed again."
                        )
                    found[key] = value
        except BROKEN as error:
            raise self._trouble(error) from error
        return found

    def put(self, operation: str, identity: str, values: Mapping[bytes, bytes]) -> None:
        """Adds results in one transaction; a key that is present keeps its first value."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                producer = self._producer(operation, identity)
                self._connection.executemany(
                    "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?)",
                    [(key, producer, value, checksum(key, value)) for key, value in values.items()],
                )
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except BROKEN as error:
            raise self._trouble(error) from error

    def _producer(self, operation: str, identity: str) -> int:
        known = self._producers.get((operation, identity))
        if known is not None:
            return known
        execute = self._connection.execute
        execute(
            "INSERT OR IGNORE INTO producers(operation, identity) VALUES (?, ?)",
            (operation, identity),
        )
        found = execute(
            "SELECT id FROM producers WHERE operation = ? AND identity = ?", (operation, identity)
        ).fetchone()
        if found is None:
            raise sqlite3.DatabaseError("a row just inserted cannot be found")
        (producer,) = found
        self._producers[operation, identity] = producer
        return producer

    def holdings(self) -> list[Holding]:
        """What is held, by producer."""
        rows = self._connection.execute(
            "SELECT operation, identity, COUNT(key), COALESCE(SUM(LENGTH(value)), 0) "
            "FROM producers LEFT JOIN entries ON producers.id = entries.producer "
            "GROUP BY producers.id ORDER BY operation, identity"
        )
        return [Holding(*row) for row in rows]

    def verify(self, *, drop: bool = False) -> tuple[int, list[str]]:
        """Reads every entry; returns how many there are and the keys (hex) of damaged ones.

        With ``drop`` the damaged entries are removed. SQLite's own check runs first.
        """
        try:
            (verdict,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            count, damaged = 0, []
            for key, value, found_sum in self._connection.execute(
                "SELECT key, value, checksum FROM entries"
            ):
                count += 1
                if not is_sound(key, value, found_sum):
                    damaged.append(key)
            if drop:
                self._connection.executemany(
                    "DELETE FROM entries WHERE key = ?", [(key,) for key in damaged]
                )
        except BROKEN as error:
            raise self._trouble(error) from error
        return count, [key.hex() for key in damaged]

    def close(self) -> None:
        """Closes the file; the store cannot be used afterwards."""
        self._connection.close()

    def _trouble(self, error: Exception) -> InputError:
        text = str(error)
        failed = "disk I/O" in text
        if failed and shutil.disk_usage(Path(self.path).parent).free < _ROOM:
            text, failed = f"{text}: disk full", False  # what SQLite maps says it in this way
        if failed:
            return InputError(
                f"{self.path} cannot be read or written ({text}): see to its disk, then run the "
                "same command again. What was stored before is kept."
            )
        if "full" in text:
            return InputError(
                f"The disk is full: {self.path} took no more results ({text}). What was stored "
                "before is safe; free space and run the same command again."
            )
        if "locked" in text:
            return InputError(
                f"{self.path} is held by another process for over two minutes ({text}): "
                "stop that one, or give this run a store of its own."
            )
        if "readonly" in text or "unable to open" in text:
            return InputError(f"{self.path} cannot be opened for writing ({text}).")
        return InputError(
            f"{self.path} is no usable store ({text}). If it was one, `jaxrag store rescue "
            f"{self.path}` keeps what is whole of it; or move it away. Then run again."
        )
