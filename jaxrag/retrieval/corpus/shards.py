"""Writing a large ``.npy`` file chunk by chunk, so that interrupting loses one chunk at most."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np

from jaxrag.core.durable_files import rename
from jaxrag.core.hashing import digest_bytes
from jaxrag.retrieval.corpus.manifest import File, finished

_FIRST, _MOST = 256, 1 << 15  # rows of a chunk,
_SECONDS = 5.0  # which doubles while it takes less than this


def write_shard(
    path: Path,
    rows: range,
    make: Callable[[range], np.ndarray],
    *,
    dimension: int,
    dtype: str,
    chunk_rows: int | None,
    advance: Callable[[int], None],
) -> File:
    """Fills the file with what ``make`` gives for ``rows``; goes on where an earlier call stopped.

    The file grows under another name. Each chunk is on disk before its hash is entered in the
    journal beside it, so whatever interrupts, the journal tells how much of the file to trust.

    Args:
      path: the finished file, [rows d].
      rows: what ``make`` is asked for, ``chunk_rows`` at a time.
      make: gives the chunk's rows [c d] in ``dtype``.
      dimension: d.
      dtype: name of the stored type.
      chunk_rows: rows of a chunk; None: grows until one takes some seconds.
      advance: told of rows that are on disk.
    """
    partial = path.with_name(path.name + ".partial")
    if path.exists() and journal_of(path).exists():  # stopped before its caller took note of it
        path.rename(partial)
    with partial.open("a+b") as stream, journal_of(path).open("a+") as journal:
        kept = _keep_sound(stream, journal, (len(rows), dimension), np.dtype(dtype))
        advance(kept)
        start, size = rows.start + kept, chunk_rows or _FIRST
        while start < rows.stop:
            began = time.monotonic()
            chunk = range(start, min(start + size, rows.stop))
            data = make(chunk).tobytes()
            stream.write(data)
            _to_disk(stream)
            journal.write(f"{len(chunk)} {digest_bytes(data)}\n")
            _to_disk(journal)
            advance(len(chunk))
            start = chunk.stop
            if chunk_rows is None and time.monotonic() - began < _SECONDS:
                size = min(2 * size, _MOST)
    rename(partial, path)
    return finished(path)


def journal_of(path: Path) -> Path:
    """The journal of a file; to be removed once it is on record that the file is finished."""
    return path.with_name(path.name + ".journal")


def _keep_sound(stream: BinaryIO, journal: TextIO, shape: tuple[int, int], dtype: np.dtype) -> int:
    """Cuts an unfinished file after its last sound chunk; returns the rows that are kept."""
    header = _header(shape, dtype)
    row_bytes = shape[1] * dtype.itemsize
    stream.seek(0)
    journal.seek(0)
    kept, entries = 0, []
    if stream.read(len(header)) == header:
        for entry in journal:
            rows, _, expected = entry.strip().partition(" ")
            data = stream.read(int(rows) * row_bytes) if rows.isdigit() else b""
            if not data or digest_bytes(data) != expected:
                break
            kept += int(rows)
            entries.append(entry.strip() + "\n")
    stream.truncate(len(header) + kept * row_bytes if kept else 0)
    journal.truncate(0)
    journal.writelines(entries)
    if not kept:
        stream.write(header)
    return kept


def _header(shape: tuple[int, int], dtype: np.dtype) -> bytes:
    stream = io.BytesIO()
    description = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, description)
    return stream.getvalue()


def _to_disk(stream: BinaryIO | TextIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())
