"""ArrayRecord files of rows, written several at once by other processes.

Rows come as lines of JSON, their canonical form, and are stored as ``tf.train.Example`` as TFDS
does. Run as a module, this file writes one file from its standard input; that process loads neither
JAX nor TFDS.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

from jaxrag.core.durable_files import sync
from jaxrag.core.hashing import digest_file
from jaxrag.types import InputError

RECORD = "written.jsonl"
"""Name of the list of finished files in an unfinished directory."""

_OPTIONS = "group_size:1"  # random access to single rows
_NEW = ".new"
_MOST_WORKERS = 4
_PACKAGES = Path(__file__).parents[3]


def default_workers() -> int:
    """One writing process for each core, up to 4: then reading is what takes the time."""
    return min(os.cpu_count() or 1, _MOST_WORKERS)


class ShardFile(NamedTuple):
    """A finished file.

    Attributes:
      name: of the file.
      rows: number of rows.
      example_bytes: bytes of the rows before packing.
      size: bytes of the file.
      sha256: of the file.
      content: SHA-256 of all rows up to its end.
    """

    name: str
    rows: int
    example_bytes: int
    size: int
    sha256: str
    content: str


class ShardWriter:
    """Writes files of a directory, each in a process of its own; a context manager.

    Finished files are listed in ``RECORD``. Those that an interrupted build left are kept if they
    are undamaged and hold the same rows.

    Args:
      directory: where to write.
      workers: files written at once, each held in memory until it is written; 0 writes in this
        process. A build of a single file also stays in this process.
      lock: the handle that locks the directory. Writing processes keep it open: should this process
        be killed, the directory stays locked until they have ended, too.
    """

    def __init__(self, directory: Path, workers: int, lock: int) -> None:
        self._directory, self._workers, self._lock = directory, workers, lock
        self._earlier = {file.name: file for file in read_record(directory)}
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._pending: list[concurrent.futures.Future[ShardFile]] = []
        self._written: list[ShardFile] = []
        self._record: Any = None  # the open list of finished files

    def __enter__(self) -> ShardWriter:
        path = self._directory / RECORD
        cut = path.is_file() and not path.read_bytes().endswith(b"\n")
        self._record = path.open("a")
        self._record.write("\n" if cut else "")
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            # after an error, files that are being written are finished: the next build keeps them
            while self._pending:
                with contextlib.suppress(Exception):
                    self._collect(len(self._pending) - 1)
            self._pool.shutdown()
        self._record.close()

    def add(
        self, name: str, rows: int, lines: Sequence[bytes], content: str, *, small: bool
    ) -> None:
        """Writes the next file; waits if as many as ``workers`` are being written.

        Args:
          name: of the file.
          rows: number of rows.
          lines: the rows, as lines of canonical JSON; each item holds whole lines.
          content: SHA-256 of all rows up to the end of this file.
          small: write it in this process, unless others are at work already.

        Raises:
          OSError, RuntimeError: a file cannot be written.
          InputError: a writing process was killed.
        """
        if self._pool is None and (small or not self._workers):
            self._finish(self._make(name, rows, lines, content, here=True))
            return
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(self._workers)
        self._collect(self._workers - 1)
        self._pending.append(self._pool.submit(self._make, name, rows, lines, content, here=False))

    def finish(self) -> list[ShardFile]:
        """Waits for all files, removes whatever else is in the directory; the files in order."""
        self._collect(0)
        keep = {file.name for file in self._written} | {RECORD}
        for path in self._directory.iterdir():
            if path.name not in keep:
                path.unlink()
        return self._written

    def _collect(self, most: int) -> None:
        """Waits until at most so many files are being written."""
        while len(self._pending) > most:
            self._finish(self._pending.pop(0).result())

    def _finish(self, file: ShardFile) -> None:
        self._written.append(file)
        if self._earlier.get(file.name) != file:
            print(json.dumps(file._asdict()), file=self._record, flush=True)
            os.fsync(self._record.fileno())

    def _make(
        self, name: str, rows: int, lines: Sequence[bytes], content: str, *, here: bool
    ) -> ShardFile:
        path, earlier = self._directory / name, self._earlier.get(name)
        if (
            earlier
            and (earlier.rows, earlier.content) == (rows, content)
            and _intact(path, earlier)
        ):
            return earlier
        new = path.with_name(f"{name}{_NEW}")
        if here:
            size = _write(new, (line for chunk in lines for line in chunk.splitlines()), rows)
        else:
            size = _write_elsewhere(new, lines, rows, self._lock)
        sync(new)
        new.replace(path)
        return ShardFile(name, rows, size, path.stat().st_size, digest_file(path), content)


def read_record(directory: Path) -> list[ShardFile]:
    """The finished files of an unfinished directory; a line that was cut short is left out."""
    path, files = directory / RECORD, []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError, TypeError):
            files.append(ShardFile(**json.loads(line)))
    return files


def _intact(path: Path, file: ShardFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size and digest_file(path) == file.sha256


def _write(path: Path, lines: Iterable[bytes], rows: int) -> int:
    """Writes rows, and returns their bytes before packing; ValueError if lines are missing."""
    writer = array_record_module.ArrayRecordWriter(str(path), _OPTIONS)
    size = count = 0
    for count, line in enumerate(lines, 1):  # noqa: B007
        example = serialize(json.loads(line))
        writer.write(example)
        size += len(example)
    writer.close()
    if count != rows:
        raise ValueError(f"{count} rows of {rows}")
    return size


def _write_elsewhere(path: Path, lines: Sequence[bytes], rows: int, lock: int) -> int:
    """As `_write`, in another process, which keeps ``lock`` open."""
    paths = [str(_PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(path), str(rows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=(lock,),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        with process:
            with contextlib.suppress(BrokenPipeError), cast("BinaryIO", process.stdin) as stream:
                for chunk in lines:
                    stream.write(chunk)
            said = cast("BinaryIO", process.stdout).read()
        errors.seek(0)
        trouble = errors.read().decode(errors="replace").strip()
    if process.returncode < 0:
        raise InputError(
            f"{path}: the writing process was killed (signal {-process.returncode}), perhaps for"
            " want of memory; finished files are kept: run the same command again"
        )
    if process.returncode:
        raise RuntimeError(f"{path}: cannot be written: {trouble}")
    return int(said)


def serialize(row: Mapping[str, str | Sequence[str]]) -> bytes:
    """A row as the bytes of a ``tf.train.Example`` of byte strings; fields keep their order."""
    features = b"".join(
        [
            _field(
                _name(name)
                + _field(
                    _field(
                        _field(value.encode())
                        if isinstance(value, str)
                        else b"".join([_field(item.encode()) for item in value])
                    ),
                    b"\x12",
                )
            )
            for name, value in row.items()
        ]
    )
    return _field(features)


def _field(content: bytes, tag: bytes = b"\n") -> bytes:
    """A field of a protocol buffer with the given tag; the default is number 1, bytes."""
    return tag + _varint(len(content)) + content


def _name(name: str) -> bytes:
    return _field(name.encode())


def _varint(number: int) -> bytes:
    if number < len(_VARINTS):
        return _VARINTS[number]
    return bytes([number & 127 | 128]) + _varint(number >> 7)


_VARINTS = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(1 << 14)]


def main() -> None:
    """Writes the rows on standard input to a file; prints their bytes before packing."""
    path, rows = Path(sys.argv[1]), int(sys.argv[2])
    try:
        print(_write(path, sys.stdin.buffer, rows))
    except Exception as error:
        path.unlink(missing_ok=True)
        sys.exit(str(error))


if __name__ == "__main__":
    main()
