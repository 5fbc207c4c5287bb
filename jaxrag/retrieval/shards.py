"""Writing a large ``.npy`` file chunk by chunk, so that interrupting loses one chunk at most."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np

from jaxrag.retrieval.manifest import File, digest_bytes, finished, move


def write_shard(
    path: Path,
    rows: range,
    make: Callable[[range], np.ndarray],
    *,
    dimension: int,
    dtype: str,
    chunk_rows: int,
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
      chunk_rows: rows of a chunk.
      advance: told of rows that are on disk.
    """
    partial, journal_path = (path.with_name(path.name + end) for end in (".partial", ".journal"))
    with partial.open("a+b") as stream, journal_path.open("a+") as journal:
        kept = _keep_sound(stream, journal, (len(rows), dimension), np.dtype(dtype))
        advance(kept)
        for start in range(rows.start + kept, rows.stop, chunk_rows):
            chunk = range(start, min(start + chunk_rows, rows.stop))
            data = make(chunk).tobytes()
            stream.write(data)
            _to_disk(stream)
            journal.write(f"{len(chunk)} {digest_bytes(data)}\n")
            _to_disk(journal)
            advance(len(chunk))
    move(partial, path)
    journal_path.unlink()
    return finished(path)


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
