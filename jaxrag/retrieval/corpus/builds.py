"""Building an index on disk so that it can be interrupted, resumed and repaired.

`build_shards` writes an index file by file, `build_arrays` besides chunk by chunk, and
`build_folder` writes one at once that a library saves.
"""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from jaxrag.core.durable_files import exclusive_directory, explain_full_disk, rename, sync
from jaxrag.core.hashing import digest_bytes
from jaxrag.core.progress import progress
from jaxrag.retrieval.corpus.manifest import (
    File,
    Manifest,
    check_settings,
    damage,
    finished,
    read_manifest,
    state_of,
)
from jaxrag.types import InputError

Advance = Callable[[int], None]
"""Called with the number of rows that have reached the disk."""

_FIRST, _MOST = 256, 1 << 15  # rows of the first and of the largest chunk;
_SECONDS = 5.0  # chunks double while one takes less than this


@dataclasses.dataclass(frozen=True)
class ShardedRows:
    """Rows of an index, memory-mapped; all files but the last have the same number of rows."""

    directory: Path
    files: tuple[np.ndarray, ...]

    @classmethod
    def open(cls, directory: Path, manifest: Manifest) -> ShardedRows:
        """Maps the files that a manifest lists."""
        paths = [directory / file.name for file in sorted(manifest.files)]
        maps = (np.load(path, mmap_mode="r", allow_pickle=False) for path in paths)
        return cls(directory, tuple(array.view(np.ndarray) for array in maps))

    def __len__(self) -> int:
        return sum(map(len, self.files))

    def take(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The given rows [n width], in the given order; InputError if one is out of range."""
        wanted = check_rows(rows, len(self), self.directory)
        found = np.empty((wanted.size, self.files[0].shape[1]), self.files[0].dtype)
        file_of, offset = np.divmod(wanted, len(self.files[0]))
        for number in np.unique(file_of):
            where = file_of == number
            found[where] = self.files[number][offset[where]]
        return found


def check_rows(rows: Sequence[int] | np.ndarray, count: int, directory: Path) -> np.ndarray:
    """The rows as int64; InputError if one is out of range."""
    wanted = np.asarray(rows, np.int64)
    if wanted.size and not 0 <= wanted.min() <= wanted.max() < count:
        raise InputError(
            f"rows {wanted.min()} to {wanted.max()} were requested, but {directory} holds rows 0 "
            f"to {count - 1}"
        )
    return wanted


def build_folder(
    folder: Path, kind: str, settings: Mapping[str, Any], save: Callable[[Path], None]
) -> None:
    """Writes an index that ``save`` puts into a new folder, unless an undamaged one is there.

    The folder appears, in place of a damaged one, once it is complete.

    Raises:
      InputError: from ``save``, or a full disk.
    """
    with exclusive_directory(folder.parent):
        if state_of(folder, kind) == "built":
            return
        unfinished = folder.with_name(folder.name + ".new")
        for old in (folder, unfinished):
            shutil.rmtree(old, ignore_errors=True)
        with explain_full_disk(folder.parent):
            save(unfinished)
            paths = sorted(unfinished.iterdir())
            for path in paths:
                sync(path)
            Manifest(kind, settings, tuple(map(finished, paths)), complete=True).write(unfinished)
            rename(unfinished, folder)


def build_arrays(
    directory: Path,
    settings: Mapping[str, Any],
    make: Callable[[range], np.ndarray],
    *,
    kind: str,
    stem: str,
    width: int,
    dtype: str,
    chunk_rows: int | None,
    label: str,
) -> None:
    """`build_shards` of arrays [rows width] that ``make`` computes ``chunk_rows`` rows at a time.

    Interrupting loses one chunk at most; ``chunk_rows`` None grows chunks until one takes 5 to 10
    seconds.
    """

    def write(path: Path, rows: range, advance: Advance) -> File:
        return write_shard(
            path, rows, make, width=width, dtype=dtype, chunk_rows=chunk_rows, advance=advance
        )

    _check_sizes(settings, chunk_rows)
    row_bytes = width * np.dtype(dtype).itemsize
    build_shards(directory, settings, write, kind=kind, stem=stem, row_bytes=row_bytes, label=label)


def build_shards(
    directory: Path,
    settings: Mapping[str, Any],
    write: Callable[[Path, range, Advance], File],
    *,
    kind: str,
    stem: str,
    row_bytes: int,
    label: str,
) -> None:
    """Writes the files ``stem-00000.npy``, ... that are missing or damaged, and the manifest.

    Args:
      directory: made if need be; locked against other builds.
      settings: all that determines the files, among it "shard_rows" and "passages" with "count".
      write: writes the file of some rows.
      kind: of the manifest.
      stem: how the files' names begin.
      row_bytes: disk space of a row, checked beforehand.
      label: for the progress bar.

    Raises:
      InputError: an empty corpus, sizes below 1, a directory with something else, or a full disk.
    """
    _check_sizes(settings, None)
    count, shard_rows = settings["passages"]["count"], settings["shard_rows"]
    with exclusive_directory(directory):
        manifest = _begin(directory, kind, settings)
        names = {file.name for file in manifest.files}
        shards = [s for s in range(-(-count // shard_rows)) if _name(stem, s) not in names]
        ranges = [range(s * shard_rows, min((s + 1) * shard_rows, count)) for s in shards]
        if shards:
            missing = sum(map(len, ranges))
            _check_space(directory, missing * row_bytes)
            with (
                explain_full_disk(directory),
                progress(count, label, done=count - missing) as advance,
            ):
                for shard, rows in zip(shards, ranges, strict=True):
                    file = write(directory / _name(stem, shard), rows, advance)
                    manifest = _record(directory, manifest, file)


def _check_sizes(settings: Mapping[str, Any], chunk_rows: int | None) -> None:
    if not settings["passages"]["count"]:
        raise InputError("the corpus is empty; an index needs at least one passage")
    if min(settings["shard_rows"], 1 if chunk_rows is None else chunk_rows) < 1:
        raise InputError(
            "shard_rows and chunk_rows must be at least 1, not "
            f"{settings['shard_rows']} and {chunk_rows}"
        )


def _name(stem: str, shard: int) -> str:
    return f"{stem}-{shard:05d}.npy"


def _begin(directory: Path, kind: str, settings: Mapping[str, Any]) -> Manifest:
    """The manifest with the undamaged finished files; a new one in an empty directory."""
    if any(path.name != ".lock" for path in directory.iterdir()):
        manifest = read_manifest(directory, kind)
        check_settings(directory, manifest.settings, settings)
        sound = [file for file in manifest.files if not damage(directory, file, hashes=True)]
        for file in sound:
            journal_of(directory / file.name).unlink(missing_ok=True)
        if len(sound) == len(manifest.files):
            return manifest
        manifest = Manifest(kind, settings, tuple(sound))
    else:
        manifest = Manifest(kind, settings)
    manifest.write(directory)
    return manifest


def _record(directory: Path, manifest: Manifest, file: File) -> Manifest:
    """Records a finished file in the manifest, after which its journal is not needed."""
    settings = manifest.settings
    files: Sequence[File] = sorted((*manifest.files, file))
    complete = len(files) == -(-settings["passages"]["count"] // settings["shard_rows"])
    manifest = dataclasses.replace(manifest, files=tuple(files), complete=complete)
    manifest.write(directory)
    journal_of(directory / file.name).unlink(missing_ok=True)
    return manifest


def _check_space(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    held = sum(path.stat().st_size for path in directory.glob("*.partial"))
    if free + held < needed:
        raise InputError(
            f"{directory} needs {needed / 1e9:,.2f} GB more, its disk has {free / 1e9:,.2f} GB "
            "left; free some space or give another directory"
        )


def write_shard(
    path: Path,
    rows: range,
    make: Callable[[range], np.ndarray],
    *,
    width: int,
    dtype: str,
    chunk_rows: int | None,
    advance: Advance,
) -> File:
    """Writes the array [rows width] chunk by chunk; resumes where an earlier call stopped.

    The file grows under another name. Each chunk is on disk before its hash is entered in the
    journal beside it, so that after an interruption the journal tells which rows to trust.
    """
    partial = path.with_name(path.name + ".partial")
    if path.exists() and journal_of(path).exists():  # stopped before the manifest was written
        path.rename(partial)
    with partial.open("a+b") as stream, journal_of(path).open("a+") as journal:
        kept = _keep_sound(stream, journal, (len(rows), width), np.dtype(dtype))
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
    """The journal of a file; removed once the manifest lists the file."""
    return path.with_name(path.name + ".journal")


def _keep_sound(stream: BinaryIO, journal: TextIO, shape: tuple[int, int], dtype: np.dtype) -> int:
    """Truncates an unfinished file after its last undamaged chunk; returns the rows kept."""
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
