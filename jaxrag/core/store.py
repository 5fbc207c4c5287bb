"""Content-addressed store of expensive results, such as generations and searches.

One SQLite file maps a hash of all that determines a result (operation, identity of the model or
index, exact input) to its bytes and the seconds of its computation, where they are known. Each
write is one transaction in write-ahead mode: a killed process loses at most the batch that it was
writing. Processes of one machine may share the file; on a network file system it is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sqlite3
import stat
import struct
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from jaxrag.core.checks import check_local
from jaxrag.core.hashing import digest
from jaxrag.types import InputError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS format(version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS producers(
    id INTEGER PRIMARY KEY, operation TEXT NOT NULL, identity TEXT NOT NULL,
    UNIQUE(operation, identity));
CREATE TABLE IF NOT EXISTS entries(
    key BLOB PRIMARY KEY, producer INTEGER NOT NULL REFERENCES producers(id),
    value BLOB NOT NULL, checksum BLOB NOT NULL, seconds REAL) WITHOUT ROWID;
"""
_VERSION = 2  # 1 had no seconds; such a file gets the column when it is opened
_LOCK_TIMEOUT = 120  # seconds to wait for another process that has locked the file
_NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "pvfs2",
    "orangefs", "ocfs2", "gfs2", "wekafs", "panfs", "gcsfuse", "fuse.gcsfuse", "fuse.sshfs",
    "fuse.s3fs", "fuse.rclone", "fuse.mountpoint-s3", "fuse.glusterfs", "fuse.ceph-fuse",
    "fuse.juicefs", "fuse.blobfuse2", "fuse.goofys",
)  # fmt: skip
"""Types, as in /proc/self/mountinfo, of file systems that several machines may write to."""

_FULL_BELOW = 1 << 20  # bytes of free space
_AGAIN = "run the same command again. Earlier results are kept."
_OTHER = "give the run another store, as by --config.store=FILE."
_PROBLEMS = {
    "full": ("cannot grow, since the disk is full", f"free some space and {_AGAIN}"),
    "disk I/O": ("cannot be read or written", f"check the disk, then {_AGAIN}"),
    "locked": ("has been locked by another process for over two minutes", f"stop it, or {_OTHER}"),
    "readonly": ("cannot be written", _OTHER),
    "unable to open": ("cannot be written", _OTHER),
}
"""Parts of SQLite's messages: what happened to the store, and what to do."""
_COLUMNS = "key, value, seconds, checksum"
_ROWS_PER_MERGE = 1000
_KEYS_PER_SELECT = 500  # below SQLite's limit on variables


class Producer(NamedTuple):
    """The operation and identity that computed results, and number and bytes of its entries."""

    operation: str
    identity: str
    entries: int
    bytes: int


def entry_key(operation: str, identity: str, payload: str) -> bytes:
    """Key of a result: SHA-256 of its producer (operation, identity) and its input (payload)."""
    return bytes.fromhex(digest(operation, identity, payload))


def checksum(key: bytes, value: bytes, seconds: float | None) -> bytes:
    """Checksum that is stored with an entry to detect damage."""
    timed = b"" if seconds is None else struct.pack("<d", seconds)
    return hashlib.blake2b(key + value + timed, digest_size=8).digest()


def is_intact(key: object, value: object, seconds: object, stored_checksum: object) -> bool:
    """Whether an entry has the checksum that was stored with it.

    sqlite3.DatabaseError if its key is damaged, so that the entry cannot be named.
    """
    if not isinstance(key, bytes):  # a damaged file may hold other types
        raise sqlite3.DatabaseError("an entry has lost its key")
    if not isinstance(value, bytes) or not isinstance(seconds, float | None):
        return False
    return checksum(key, value, seconds) == stored_checksum


def file_system(path: str | Path) -> str | None:
    """The type of the file system of ``path``, as Linux names it ("nfs4"); None if unknown."""
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    device = place.stat().st_dev
    return _mounted(Path("/proc/self/mountinfo")).get((os.major(device), os.minor(device)))


def _mounted(table: Path) -> dict[tuple[int, int], str]:
    """Types of the mounted file systems by their device's numbers."""
    if not table.is_file():
        return {}
    # "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": the type follows the dash
    lines = re.finditer(r"^\d+ \d+ (\d+):(\d+) .*? - (\S+) ", table.read_text("utf-8"), re.M)
    return {(int(line[1]), int(line[2])): line[3] for line in lines}


def _default_cache() -> str:
    """$JAXRAG_CACHE, an existing ``runs/cache``, or ``jaxrag`` in the user's local cache."""
    nearby = "runs/cache"
    if directory := os.environ.get("JAXRAG_CACHE"):
        return directory
    try:
        user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home directory
        return nearby
    place = next(parent for parent in (user, *user.parents) if parent.exists())
    usable = user.is_absolute() and os.access(place, os.W_OK) and file_system(user) not in _NETWORK
    return str(user / "jaxrag") if usable and not Path(nearby).is_dir() else nearby


CACHE = _default_cache()
"""Directory of data sets, indexes and the store where settings name none."""


def _close(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.ProgrammingError):  # collected in another thread
        connection.close()


class Store:
    """Key-value store of results in one SQLite file.

    Args:
      path: the file, created if missing; None for a store in memory. One that this process may
        not write, such as in a read-only cache, gives its results and takes none.

    InputError if the file is not a store, is damaged, or is on a network file system.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = "memory" if path is None else str(path)
        needed = () if path is None else (path, Path(path).parent)
        exists = path is not None and Path(path).is_file()
        self._read_only = exists and not all(os.access(place, os.W_OK) for place in needed)
        self._columns = _COLUMNS
        ends = () if path is None else ("", "-wal", "-shm", "-journal")
        for beside in (Path(f"{self.path}{end}") for end in ends):
            with contextlib.suppress(OSError):  # another process removes its journal at any time
                if stat.S_IFMT(beside.stat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                    raise InputError(f"{beside} is a pipe or a device, no file: remove it.")
        if path is not None and not self._read_only:
            check_local({"the store": path})
            if (kind := file_system(path)) in _NETWORK:
                raise InputError(
                    f"the store {path} is on a network file system ({kind}). SQLite's write-ahead "
                    "log needs memory that all its processes share, so machines would damage the "
                    "file: give it a path on a disk of this machine (--config.store=FILE, or "
                    "--config.cache=DIRECTORY), and put the stores of several machines together "
                    "with `jaxrag store merge`."
                )
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        # without a log beside it nobody writes; then SQLite need not make one to read the file
        mode = "mode=ro" if Path(f"{self.path}-wal").exists() else "immutable=1"
        uri = f"{Path(self.path).absolute().as_uri()}?{mode}" if self._read_only else ""
        with self._errors_explained(), contextlib.ExitStack() as undo:
            self._connection = sqlite3.connect(
                uri or (":memory:" if path is None else str(path)),
                timeout=_LOCK_TIMEOUT,
                isolation_level=None,
                uri=self._read_only,
            )
            undo.callback(self._connection.close)
            self._open()
            undo.pop_all()
        self._producer_ids: dict[tuple[str, str], int] = {}
        self._finalizer = weakref.finalize(self, _close, self._connection)

    def _open(self) -> None:
        execute = self._connection.execute
        if not self._read_only:
            self._enable_write_ahead()
            execute("PRAGMA synchronous=NORMAL")
        execute("BEGIN" if self._read_only else "BEGIN IMMEDIATE")
        tables = {name for (name,) in execute("SELECT name FROM sqlite_master WHERE type='table'")}
        if "entries" not in tables and (tables or self._read_only):
            execute("ROLLBACK")
            raise InputError(
                f"{self.path} is an SQLite file but not a jaxrag store: choose another path."
            )
        if not self._read_only:
            for statement in _SCHEMA.split(";"):
                execute(statement)
            if execute("SELECT version FROM format").fetchone() is None:
                execute("INSERT INTO format VALUES (?)", (_VERSION,))
        (version,) = execute("SELECT version FROM format").fetchone()
        if version == 1 and self._read_only:
            self._columns = _COLUMNS.replace("seconds", "NULL")
        elif version == 1:
            execute("ALTER TABLE entries ADD COLUMN seconds REAL")
            execute("UPDATE format SET version = ?", (_VERSION,))
        execute("COMMIT")
        if version not in (1, _VERSION):
            raise InputError(
                f"{self.path} has store format {version}; this jaxrag reads {_VERSION}: "
                "choose a new path, or use the version of jaxrag that wrote it."
            )

    def _enable_write_ahead(self) -> None:
        """Switches to write-ahead mode; waits, as SQLite does not, for a process doing the same."""
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of the ``keys`` that are present; InputError for a damaged entry."""
        return {key: value for key, (value, _) in self.get_timed(keys).items()}

    def get_timed(self, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, float | None]]:
        """As `get`, with the seconds of each computation; None where they are not known."""
        values: dict[bytes, tuple[bytes, float | None]] = {}
        with self._errors_explained():
            for start in range(0, len(keys), _KEYS_PER_SELECT):
                part = keys[start : start + _KEYS_PER_SELECT]
                marks = ",".join("?" * len(part))
                rows = self._connection.execute(
                    f"SELECT {self._columns} FROM entries WHERE key IN ({marks})", part
                )
                for key, value, seconds, stored_checksum in rows:
                    if not is_intact(key, value, seconds, stored_checksum):
                        raise self._damaged(key)
                    values[key] = value, seconds
        return values

    def put(
        self,
        operation: str,
        identity: str,
        values: Mapping[bytes, bytes],
        *,
        seconds: Mapping[bytes, float | None] = MappingProxyType({}),
    ) -> None:
        """Adds results, with ``seconds`` where known, in one transaction; present keys stay."""
        with self._errors_explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                producer = self._producer_id(operation, identity)
                timed = [(key, value, seconds.get(key)) for key, value in values.items()]
                self._connection.executemany(
                    "INSERT OR IGNORE INTO entries(key, producer, value, seconds, checksum) "
                    "VALUES (?, ?, ?, ?, ?)",
                    [(key, producer, value, s, checksum(key, value, s)) for key, value, s in timed],
                )
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _producer_id(self, operation: str, identity: str) -> int:
        producer = operation, identity
        if producer not in self._producer_ids:
            execute = self._connection.execute
            execute("INSERT OR IGNORE INTO producers(operation, identity) VALUES (?, ?)", producer)
            query = "SELECT id FROM producers WHERE operation = ? AND identity = ?"
            if (row := execute(query, producer).fetchone()) is None:
                raise sqlite3.DatabaseError("a row just inserted cannot be found")
            (self._producer_ids[producer],) = row
        return self._producer_ids[producer]

    def producers(self) -> list[Producer]:
        """All producers, sorted by operation and identity; InputError for a damaged file."""
        with self._errors_explained():
            rows = self._connection.execute(
                "SELECT operation, identity, COUNT(key), COALESCE(SUM(LENGTH(value)), 0) "
                "FROM producers LEFT JOIN entries ON producers.id = entries.producer "
                "GROUP BY producers.id ORDER BY operation, identity"
            )
            return [Producer(*row) for row in rows]

    def verify(self, *, drop: bool = False) -> tuple[int, list[str]]:
        """The number of entries, and the keys (hex) of damaged ones, which ``drop`` removes."""
        with self._errors_explained():
            (verdict,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            count, damaged = 0, []
            for key, *entry in self._connection.execute(f"SELECT {self._columns} FROM entries"):
                count += 1
                if not is_intact(key, *entry):
                    damaged.append(key)
            if drop:
                self._connection.executemany(
                    "DELETE FROM entries WHERE key = ?", [(key,) for key in damaged]
                )
        return count, [key.hex() for key in damaged]

    def merge(self, source: Store) -> int:
        """Adds the entries of another store; returns the number of new ones.

        Entries that are here keep their value. InputError if an entry of the other store is
        damaged; those before it have been added.
        """
        before = self._count()
        with source._errors_explained():
            for operation, identity, *_ in source.producers():
                cursor = source._connection.execute(
                    f"SELECT {source._columns} FROM entries WHERE producer = "
                    "(SELECT id FROM producers WHERE operation = ? AND identity = ?)",
                    (operation, identity),
                )
                while rows := cursor.fetchmany(_ROWS_PER_MERGE):
                    for key, *entry in rows:
                        if not is_intact(key, *entry):
                            raise source._damaged(key)
                    seconds = {key: spent for key, _, spent, _ in rows}
                    values = {key: value for key, value, *_ in rows}
                    self.put(operation, identity, values, seconds=seconds)
        return self._count() - before

    def _count(self) -> int:
        with self._errors_explained():
            (count,) = self._connection.execute("SELECT COUNT(*) FROM entries").fetchone()
            return count

    def _damaged(self, key: bytes) -> InputError:
        return InputError(
            f"{self.path}: entry {key.hex()[:16]} is damaged. "
            f"`jaxrag store verify {self.path}` lists all such entries, "
            "`--drop` removes them so that they are computed again."
        )

    def close(self) -> None:
        """Closes the file; a store that is no longer used closes it itself."""
        self._finalizer()

    @contextlib.contextmanager
    def _errors_explained(self) -> Iterator[None]:
        try:
            yield
        # sqlite3 raises UnicodeDecodeError where its error message would quote damaged bytes
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> InputError:
        """The error to raise instead of SQLite's: what happened and what to do."""
        text = str(error)
        if "disk I/O" in text and shutil.disk_usage(Path(self.path).parent).free < _FULL_BELOW:
            text += ": disk full"  # an I/O error where SQLite writes to a memory map
        for sign, (happened, way_out) in _PROBLEMS.items():
            if sign in text:
                return InputError(f"{self.path} {happened} ({text}): {way_out}")
        return InputError(
            f"{self.path} is not a usable store ({text}). If it was one, SQLite's own program "
            f"may recover it (`sqlite3 {self.path} .recover | sqlite3 NEW.sqlite`); otherwise move "
            "it away. Then run again."
        )


def store_path(store: str, cache: str) -> Path | None:
    """The file of a store, of the settings of a run or job; None keeps it in memory."""
    if store == "memory":
        return None
    return Path(store) if store else Path(cache) / "store.sqlite"
