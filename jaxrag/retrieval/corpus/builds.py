"""Building an index on disk so that it can be interrupted, resumed and repaired."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import functools
import io
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrag.core.arrays import load_array
from jaxrag.core.background import in_background
from jaxrag.core.checks import check_limits
from jaxrag.core.durable_files import (
    LOCKS,
    PART_LOCKS,
    LockedError,
    exclusive_directory,
    explain_limits,
    open_own,
    open_to_append,
    rename,
    shared_directory,
    sync,
)
from jaxrag.core.hashing import digest_bytes
from jaxrag.core.progress import progress
from jaxrag.retrieval.corpus.manifest import (
    NAME,
    File,
    Manifest,
    check_settings,
    damage,
    finished,
    part_manifests,
    part_name,
    read_manifest,
    state_of,
)
from jaxrag.types import InputError, Passage

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

Advance = Callable[[int], None]
"""Called with the number of rows that have reached the disk."""

Stream = Callable[[Sequence[range]], Generator[np.ndarray]]
"""Computes the given rows, in their order, as blocks of any number of rows [n width]."""

WriteFiles = Callable[[Sequence[tuple[Path, range]], Advance], Generator[File]]
"""Writes files, given their paths and rows, one after the other."""

_READ = 1024  # passages read at a time
_QUEUED = 2  # blocks that are computed ahead
_CHUNK = 8192  # rows computed at a time
_NEW = [".json", ".new"]  # of a manifest that is just being written


@dataclasses.dataclass(frozen=True)
class BuildPart:
    """The part of an index's files that one of several processes builds.

    Process ``number`` of ``count`` (from 0) builds the files ``number``, ``number + count``, ...
    and records them in a manifest of its own. The last to finish closes the index's manifest, or a
    build of the whole does (0 of 1), which also builds what is missing.
    """

    number: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.count:
            raise InputError(
                f"part {self.number} of {self.count}: parts are numbered from 0 to their number "
                "less 1, such as 0/2 and 1/2."
            )


WHOLE = BuildPart()


@dataclasses.dataclass(frozen=True)
class ShardedRows:
    """Rows of an index, memory-mapped; all files but the last have the same number of rows."""

    directory: Path
    files: tuple[np.ndarray, ...]

    @classmethod
    def open(cls, directory: Path, manifest: Manifest) -> ShardedRows:
        """Maps the files that a manifest lists."""
        paths = [directory / file.name for file in sorted(manifest.files)]
        try:
            maps = [load_array(path, mapped=True) for path in paths]
        except ValueError as error:
            raise InputError(
                f"{directory} has a file that is damaged ({error}); delete it and build again"
            ) from error
        return cls(directory, tuple(array.view(np.ndarray) for array in maps))

    def __len__(self) -> int:
        return sum(map(len, self.files))

    def take(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The given rows [n width], in the given order; InputError if one is out of range."""
        checked = check_rows(rows, len(self), self.directory)
        taken = np.empty((checked.size, self.files[0].shape[1]), self.files[0].dtype)
        if len(self.files) == 1:
            return np.take(self.files[0], checked, axis=0, out=taken, mode="clip")
        file_of, offset = np.divmod(checked, len(self.files[0]))
        order = np.argsort(file_of, kind="stable")
        numbers, starts = np.unique(file_of[order], return_index=True)
        for number, where in zip(numbers, np.split(order, starts)[1:], strict=True):
            taken[where] = self.files[number].take(offset[where], axis=0, mode="clip")
        return taken

    def span(self, start: int, stop: int) -> np.ndarray:
        """A copy of the rows [n width] from ``start`` to before ``stop``."""
        size = len(self.files[0])
        numbers = range(start // size, -(-stop // size))
        parts = [self.files[n][max(start - n * size, 0) : stop - n * size] for n in numbers]
        return np.concatenate([self.files[0][:0], *parts])


def check_rows(
    rows: Sequence[int] | np.ndarray, count: int, directory: Path, *, none: bool = False
) -> np.ndarray:
    """The rows as int64; InputError if one is out of range. ``none`` allows -1."""
    checked = np.asarray(rows, np.int64)
    if checked.size and not -none <= checked.min() <= checked.max() < count:
        raise InputError(
            f"rows {checked.min()} to {checked.max()} were requested, but {directory} holds rows 0 "
            f"to {count - 1}"
        )
    return checked


def build_folder(
    folder: Path, kind: str, settings: Mapping[str, Any], save: Callable[[Path], None]
) -> None:
    """Writes an index that ``save`` puts into a new folder, unless an undamaged one is there.

    The folder appears, in place of a damaged one, once it is complete. InputError for a full disk.
    """
    with exclusive_directory(folder.parent):
        if state_of(folder, kind) == "built":
            return
        unfinished = folder.with_name(folder.name + ".new")
        for old in (folder, unfinished):
            shutil.rmtree(old, ignore_errors=True)
        with explain_limits(folder.parent):
            save(unfinished)
            paths = sorted(unfinished.iterdir())
            for path in paths:
                sync(path)
            Manifest(kind, settings, tuple(map(finished, paths)), complete=True).write(unfinished)
            rename(unfinished, folder)


def build_arrays(
    directory: Path,
    settings: Mapping[str, Any],
    make: Stream,
    *,
    width: int,
    dtype: str,
    **files: Any,
) -> None:
    """`build_shards` of arrays [rows width] that ``make`` computes, written block by block."""
    write = functools.partial(write_arrays, make=make, width=width, dtype=dtype)
    row_bytes = width * np.dtype(dtype).itemsize
    build_shards(directory, settings, write, row_bytes=row_bytes, **files)


def build_shards(
    directory: Path,
    settings: Mapping[str, Any],
    write: WriteFiles,
    *,
    kind: str,
    stem: str,
    row_bytes: int,
    label: str,
    part: BuildPart = WHOLE,
) -> None:
    """Writes the files ``stem-00000.npy``, ... that are missing or damaged, and the manifest.

    Args:
      directory: made if need be; locked against other builds.
      settings: all that determines the files, among it "shard_rows" and "passages" with "count".
      kind: of the manifest.
      row_bytes: disk space of a row, checked beforehand.
      label: for the progress bar.
      part: of the files that this process builds.

    InputError for an empty corpus, files of less than one row, a directory with something else, or
    a full disk.
    """
    if not settings["passages"]["count"]:
        raise InputError("the corpus is empty; an index needs at least one passage")
    check_limits(shard_rows=settings["shard_rows"])
    files = _Files(directory, settings, kind, stem, label, row_bytes)
    if part.count == 1:
        with exclusive_directory(directory):
            files.begin()
            files.build(files.missing(), write)
        return
    with shared_directory(directory, part.number, part.count):
        own = dataclasses.replace(files, name=part_name(part.number, part.count))
        own.begin_part()
        own.build([s for s in own.missing() if s % part.count == part.number], write)
    with contextlib.suppress(LockedError), exclusive_directory(directory):
        files.close()


@dataclasses.dataclass
class _Files:
    """The files of an index that is being built; ``others`` have been built by other processes."""

    directory: Path
    settings: Mapping[str, Any]
    kind: str
    stem: str
    label: str
    row_bytes: int
    name: str = NAME
    manifest: Manifest = dataclasses.field(init=False)
    others: tuple[File, ...] = ()

    def __post_init__(self) -> None:
        self.manifest = Manifest(self.kind, self.settings)

    @property
    def count(self) -> int:
        """Number of files of the index."""
        return -(-self.settings["passages"]["count"] // self.settings["shard_rows"])

    def missing(self) -> list[int]:
        """Numbers of the files that are yet to be built."""
        names = {file.name for file in (*self.manifest.files, *self.others)}
        return [s for s in range(self.count) if self._name_of(s) not in names]

    def _name_of(self, shard: int) -> str:
        return f"{self.stem}-{shard:05d}.npy"

    def rows(self, shard: int) -> range:
        """Rows of a file."""
        size = self.settings["shard_rows"]
        return range(shard * size, min((shard + 1) * size, self.settings["passages"]["count"]))

    def begin(self) -> None:
        """Takes over the undamaged files of this directory's manifests."""
        before = self._manifests()
        sound = self._sound(before.values(), hashes=True)
        for file in sound:
            if (journal := journal_of(self.directory / file.name)).exists():
                journal.unlink()
        if [*before] == [NAME] and sound == before[NAME].files:
            self.manifest = before[NAME]
        else:
            self._write(sound)
        self._remove_parts()

    def begin_part(self) -> None:
        """Takes over this part's own undamaged files, and leaves out what others have built."""
        before = self._manifests()
        own = [before.pop(self.name)] if self.name in before else []
        self.others = self._sound(before.values(), hashes=False)
        self._write(self._sound(own, hashes=True))

    def close(self) -> None:
        """Writes the index's manifest if all parts are there; their sizes are compared."""
        files = self._sound(self._manifests().values(), hashes=False)
        if len(files) == self.count:
            self._write(files)
            self._remove_parts()

    def build(self, shards: Sequence[int], write: WriteFiles) -> None:
        """Builds some files and records each when it is finished."""
        if not shards:
            return
        files = [(self.directory / self._name_of(s), self.rows(s)) for s in shards]
        missing = sum(len(rows) for _, rows in files)
        names = {file.name for file in self.manifest.files}
        done = sum(len(self.rows(s)) for s in range(self.count) if self._name_of(s) in names)
        check_space(self.directory, missing * self.row_bytes)
        with (
            explain_limits(self.directory),
            progress(done + missing, self.label, done=done) as advance,
            contextlib.closing(write(files, advance)) as written,
        ):
            for file in written:
                self._write((*self.manifest.files, file))
                journal_of(self.directory / file.name).unlink(missing_ok=True)

    def _manifests(self) -> dict[str, Manifest]:
        """The manifests in the directory, by name; InputError for another directory's contents."""
        manifests = part_manifests(self.directory, self.kind)
        names = [path.name for path in self.directory.glob("*") if path.suffixes[-2:] != _NEW]
        others = [name for name in names if not fnmatch.fnmatch(name, LOCKS)]
        if (self.directory / NAME).exists() or (others and not manifests):
            manifests[NAME] = read_manifest(self.directory, self.kind)
        for manifest in manifests.values():
            check_settings(self.directory, manifest.settings, self.settings)
        return manifests

    def _sound(self, manifests: Iterable[Manifest], *, hashes: bool) -> tuple[File, ...]:
        """The files that are listed and undamaged."""
        files = sorted({file for manifest in manifests for file in manifest.files})
        hashes |= len({file.name for file in files}) < len(files)  # two hashes for one file
        sound = {f.name: f for f in files if not damage(self.directory, f, hashes=hashes)}
        return tuple(sound.values())

    def _write(self, files: Sequence[File]) -> None:
        complete = self.name == NAME and len(files) == self.count
        self.manifest = Manifest(self.kind, self.settings, tuple(sorted(files)), complete)
        self.manifest.write(self.directory, self.name)

    def _remove_parts(self) -> None:
        for name in part_manifests(self.directory, self.kind):
            (self.directory / name).unlink()
        for lock in self.directory.glob(PART_LOCKS):  # nobody holds one beside the whole's
            lock.unlink()


def check_space(directory: Path, needed: int) -> None:
    """InputError if the disk of a directory has less than ``needed`` bytes for what is missing."""
    free = shutil.disk_usage(directory).free
    partial = sum(path.stat().st_size for path in directory.glob("*.partial"))
    if free + partial < needed:
        raise InputError(
            f"{directory} needs {needed / 1e9:,.2f} GB more, its disk has {free / 1e9:,.2f} GB "
            "left; free some space or give another directory"
        )


def write_arrays(
    files: Sequence[tuple[Path, range]], advance: Advance, *, make: Stream, width: int, dtype: str
) -> Generator[File]:
    """Writes arrays [rows width] of some paths and rows; goes on where an earlier call stopped.

    ``advance`` gets the number of rows that have reached the disk, first of those there before.
    """
    starts = [_resume(path, (len(rows), width), dtype) for path, rows in files]
    if sum(starts):
        advance(sum(starts))
    missing = [rows[k:] for (_, rows), k in zip(files, starts, strict=True) if k < len(rows)]
    with contextlib.closing(make(missing)) as blocks:
        rest = np.empty((0, width), dtype)
        for (path, rows), start in zip(files, starts, strict=True):
            while start < len(rows):
                block = rest if len(rest) else next(blocks)
                block, rest = np.split(block, [len(rows) - start])
                _append(path, block, array_header((len(rows), width), dtype))
                start += len(block)
                advance(len(block))
            rename(_partial(path), path)
            yield finished(path)


def _append(path: Path, rows: np.ndarray, header: bytes) -> None:
    """Appends rows [n width] to an unfinished file, which has another name while it grows.

    They are on disk before their hash is entered in the journal beside the file.
    """
    data = rows.tobytes()
    with os.fdopen(open_own(_partial(path), os.O_WRONLY | os.O_APPEND), "ab") as stream:
        stream.write(data if stream.tell() else header + data)
        stream.flush()
        os.fsync(stream.fileno())
    with open_to_append(journal_of(path)) as journal:
        journal.write(f"{len(rows)} {digest_bytes(data)}\n")
        journal.flush()
        os.fsync(journal.fileno())


def by_chunks(make: Callable[[range], np.ndarray]) -> Stream:
    """A `Stream` that computes 8,192 rows at a time."""

    def stream(ranges: Sequence[range]) -> Generator[np.ndarray]:
        for rows in ranges:
            for start in range(0, len(rows), _CHUNK):
                yield make(rows[start : start + _CHUNK])

    return stream


def encoded_rows(
    passages: Passages,
    encode: Callable[[Iterable[Passage]], Iterator[Any]],
    finish: Callable[[Any, np.ndarray], np.ndarray],
) -> Stream:
    """A `Stream` of passages, which ``encode`` turns into blocks in another thread.

    A block is an array or a tuple of them; ``finish`` makes its rows, given their numbers [n], too.
    """

    def stream(ranges: Sequence[range]) -> Generator[np.ndarray]:
        numbers = chain.from_iterable(ranges)
        source = chain.from_iterable(
            passages.get(rows[start : start + _READ])
            for rows in ranges
            for start in range(0, len(rows), _READ)
        )
        with contextlib.closing(in_background(encode(source), ahead=_QUEUED)) as blocks:
            for block in blocks:
                count = len(block[0]) if isinstance(block, tuple) else len(block)
                yield finish(block, np.fromiter(islice(numbers, count), np.int64))

    return stream


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def journal_of(path: Path) -> Path:
    """The journal of a file; removed once the manifest lists the file."""
    return path.with_name(path.name + ".journal")


def _resume(path: Path, shape: tuple[int, int], dtype: str) -> int:
    """Cuts an unfinished file after its last undamaged piece; returns the number of its rows."""
    unfinished, journal = _partial(path), journal_of(path)
    if path.exists() and journal.exists():  # stopped before the manifest was written
        path.rename(unfinished)
    if not unfinished.exists():
        if journal.exists():  # of a file that is gone
            journal.unlink()
        return 0
    header, row_bytes = array_header(shape, dtype), shape[1] * np.dtype(dtype).itemsize
    sound_rows, entries = 0, []
    with unfinished.open("r+b") as stream, journal.open("a+") as lines:
        lines.seek(0)
        if stream.read(len(header)) == header:
            for entry in lines:
                rows, _, expected = entry.strip().partition(" ")
                data = stream.read(int(rows) * row_bytes) if rows.isdigit() else b""
                if not data or digest_bytes(data) != expected:
                    break
                sound_rows += int(rows)
                entries.append(entry.strip() + "\n")
        stream.truncate(len(header) + sound_rows * row_bytes if sound_rows else 0)
        lines.truncate(0)
        lines.writelines(entries)
    return sound_rows


def array_header(shape: tuple[int, ...], dtype: str) -> bytes:
    """The beginning of an .npy file, before its numbers."""
    stream = io.BytesIO()
    description = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, description)
    return stream.getvalue()
