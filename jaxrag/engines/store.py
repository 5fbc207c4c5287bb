"""The content-addressed store: nothing expensive is computed twice or lost.

One SQLite file maps the hash of *all that determines a result* (operation, identity of the model
or index with its settings, exact input) to the result's bytes. It only ever grows. Each write is
one transaction in write-ahead mode, so a killed process loses at most the batch in flight and
several processes may share the file.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
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


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(key + value, digest_size=8).digest()


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
                ":memory:" if path is None else str(path), timeout=120, isolation_level=None
            )
            self._open()
        except sqlite3.DatabaseError as error:
            raise self._trouble(error) from error
        self._producers: dict[tuple[str, str], int] = {}

    def _open(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA journal_mode=WAL")
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
                for key, value, checksum in rows:
                    if checksum != _checksum(key, value):
                        raise InputError(
                            f"{self.path}: entry {key.hex()[:16]} is damaged. "
                            f"`jaxrag store verify {self.path}` lists all such entries, "
                            "`--drop` removes them so that they are computed again."
                        )
                    found[key] = value
        except sqlite3.DatabaseError as error:
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
                    [
                        (key, producer, value, _checksum(key, value))
                        for key, value in values.items()
                    ],
                )
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.DatabaseError as error:
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
        (producer,) = execute(
            "SELECT id FROM producers WHERE operation = ? AND identity = ?", (operation, identity)
        ).fetchone()
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
            for key, value, checksum in self._connection.execute(
                "SELECT key, value, checksum FROM entries"
            ):
                count += 1
                if checksum != _checksum(key, value):
                    damaged.append(key)
            if drop:
                self._connection.executemany(
                    "DELETE FROM entries WHERE key = ?", [(key,) for key in damaged]
                )
        except sqlite3.DatabaseError as error:
            raise self._trouble(error) from error
        return count, [key.hex() for key in damaged]

    def close(self) -> None:
        """Closes the file; the store cannot be used afterwards."""
        self._connection.close()

    def _trouble(self, error: sqlite3.DatabaseError) -> InputError:
        text = str(error)
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
            f"{self.path} is no usable store ({text}). Move it away and run again, or recover "
            "what SQLite can read with its `.recover` command."
        )
