"""ArrayRecord files of rows, written several at once by other processes.

A row is a serialized ``tf.train.Example``. Run as a module, this file writes one ArrayRecord file
from its standard input; that process loads neither JAX nor TFDS.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

from jaxrag.core.bounded import start_module
from jaxrag.core.durable_files import open_to_append, sync
from jaxrag.core.hashing import digest_file
from jaxrag.types import InputError

RECORD = "written.jsonl"
"""Name of the list of finished files in an unfinished directory."""

_OPTIONS = "group_size:1"  # random access to single rows
_MOST_WORKERS = 4


def default_workers() -> int:
    """One writing process for each core, up to 4."""
    return min(os.cpu_count() or 1, _MOST_WORKERS)


class ShardFile(NamedTuple):
    """A finished file: bytes of the rows before packing, ``size`` and hash of the file.

    ``content`` is the SHA-256 of all rows up to its end.
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
      workers: files written at once, each held in memory; 0 writes in this process.
      lock: the handle that locks the directory, which writing processes keep open: it stays locked
        until they have ended.
    """

    def __init__(self, directory: Path, workers: int, lock: int) -> None:
        self._directory, self._workers, self._lock = directory, workers, lock
        self._earlier = {file.name: file for file in read_record(directory)}
        self._pool = concurrent.futures.ThreadPoolExecutor(max(workers, 1))
        self._pending: list[concurrent.futures.Future[ShardFile]] = []
        self._written: list[ShardFile] = []
        self._recording = threading.Lock()

    def __enter__(self) -> ShardWriter:
        path = self._directory / RECORD
        cut = path.is_file() and not path.read_bytes().endswith(b"\n")
        self._record = open_to_append(path)
        self._record.write("\n" if cut else "")
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()
        self._record.close()

    def add(self, name: str, examples: Sequence[bytes], content: str, *, small: bool) -> None:
        """Writes the next file of ``examples``; waits if ``workers`` files are being written.

        ``content``: SHA-256 of all rows up to its end; ``small``: write it in this process.
        InputError if a writing process was killed.
        """
        if small or not self._workers:
            self._written.append(self._make(name, examples, content, here=True))
            return
        self._collect(self._workers - 1)
        self._pending.append(self._pool.submit(self._make, name, examples, content, here=False))

    def finish(self) -> dict[str, ShardFile]:
        """Waits for all files, removes whatever else is in the directory; the files by name."""
        self._collect(0)
        files = {file.name: file for file in self._written}
        for path in self._directory.iterdir():
            if path.name not in files.keys() | {RECORD}:
                path.unlink()
        return files

    def _collect(self, most: int) -> None:
        """Waits until at most so many files are being written."""
        while len(self._pending) > most:
            self._written.append(self._pending.pop(0).result())

    def _make(self, name: str, examples: Sequence[bytes], content: str, *, here: bool) -> ShardFile:
        path, earlier = self._directory / name, self._earlier.get(name)
        same = earlier and (earlier.rows, earlier.content) == (len(examples), content)
        if earlier and same and path.is_file() and digest_file(path) == earlier.sha256:
            return earlier
        new = path.with_name(f"{name}.new")
        if here:
            _write(new, examples)
        else:
            _write_elsewhere(new, examples, self._lock)
        sync(new)
        new.replace(path)
        size, example_bytes = path.stat().st_size, sum(map(len, examples))
        file = ShardFile(name, len(examples), example_bytes, size, digest_file(path), content)
        with self._recording:
            print(json.dumps(file._asdict()), file=self._record, flush=True)
            os.fsync(self._record.fileno())
        return file


def read_record(directory: Path) -> list[ShardFile]:
    """The finished files of an unfinished directory; a line that was cut short is left out."""
    path, files = directory / RECORD, []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError, TypeError):
            files.append(ShardFile(**json.loads(line)))
    return files


def _write(path: Path, examples: Iterable[bytes]) -> None:
    writer = array_record_module.ArrayRecordWriter(str(path), _OPTIONS)
    for example in examples:
        writer.write(example)
    writer.close()


def _write_elsewhere(path: Path, examples: Sequence[bytes], lock: int) -> None:
    """As `_write`, in another process, which keeps ``lock`` open."""
    with tempfile.TemporaryFile() as errors:
        process = start_module(
            __name__, str(path), stdout=subprocess.DEVNULL, stderr=errors, pass_fds=(lock,)
        )
        with process, contextlib.suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.write(_number(len(examples)))
            for example in examples:
                process.stdin.write(_number(len(example)) + example)
        errors.seek(0)
        trouble = errors.read().decode(errors="replace").strip()
    if process.returncode < 0:
        raise InputError(
            f"{path}: the writing process was killed (signal {-process.returncode}), perhaps for"
            " want of memory; finished files are kept: run the same command again"
        )
    if process.returncode:
        raise RuntimeError(f"{path}: cannot be written: {trouble}")


def _number(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _read(stream: BinaryIO) -> Iterator[bytes]:
    """The rows after their number, each after its length; EOFError if the sender has died."""

    def exactly(size: int) -> bytes:
        data = stream.read(size)
        if len(data) < size:
            raise EOFError("the rows end early")
        return data

    for _ in range(int.from_bytes(exactly(8), "little")):
        yield exactly(int.from_bytes(exactly(8), "little"))


def main() -> None:
    """Writes the rows on standard input to a file; their number and lengths take 8 bytes each."""
    path = Path(sys.argv[1])
    try:
        _write(path, _read(sys.stdin.buffer))
    except Exception as error:
        path.unlink(missing_ok=True)
        sys.exit(str(error))


if __name__ == "__main__":
    main()
