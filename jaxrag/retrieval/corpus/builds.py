"""Building an index on disk so that it can be interrupted, resumed and repaired.

`build_shards` writes an index file by file, `build_arrays` besides chunk by chunk, and
`build_folder` writes one at once that a library saves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import io
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import numpy as np

from jaxrag.core.arrays import load_array
from jaxrag.core.background import in_background
from jaxrag.core.durable_files import (
    LOCKS,
    PART_LOCKS,
    LockedError,
    exclusive_directory,
    explain_full_disk,
    rename,
    shared_directory,
    sync,
)
from jaxrag.core.hashing import digest_bytes
from jaxrag.core.progress import progress, tell
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

Stream = Callable[[Sequence[range]], Iterator[np.ndarray]]
"""Computes the given rows, in their order, as blocks of any number of rows [n width]."""

_SECONDS = 5.0  # rows reach the disk as often, and chunks double while one takes less
_READ = 1024  # passages read at a time
_QUEUED = 2  # blocks that are computed ahead
_FIRST, _MOST = 256, 1 << 15  # rows of the first and of the largest chunk


@dataclasses.dataclass(frozen=True)
class BuildPart:
    """The part of an index's files that one of several processes builds.

    Process ``number`` of ``count`` (from 0) builds the files ``number``, ``number + count``, ...
    Each records its own in a manifest of its own; the last to finish closes the index's manifest,
    or a build of the whole does, which also builds what is missing.

    Attributes:
      number, count: of the processes; 0 and 1 build the whole.
    """

    number: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.count:
            raise InputError(
                f"part {self.number} of {self.count}: parts are numbered from 0 to their number "
                "less 1, such as 0/2 and 1/2."
            )

    @property
    def whole(self) -> bool:
        """Whether one process builds all files."""
        return self.count == 1


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
        wanted = check_rows(rows, len(self), self.directory)
        taken = np.empty((wanted.size, self.files[0].shape[1]), self.files[0].dtype)
        if len(self.files) == 1:
            return np.take(self.files[0], wanted, axis=0, out=taken, mode="clip")
        file_of, offset = np.divmod(wanted, len(self.files[0]))
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
    wanted = np.asarray(rows, np.int64)
    if wanted.size and not -none <= wanted.min() <= wanted.max() < count:
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
    make: Stream,
    *,
    kind: str,
    stem: str,
    width: int,
    dtype: str,
    chunk_rows: int | None,
    label: str,
    part: BuildPart = WHOLE,
) -> None:
    """`build_shards` of arrays [rows width] that ``make`` computes.

    Rows reach the disk every 5 seconds, or every ``chunk_rows`` rows; interrupting loses those
    since then, and those that ``make`` was computing.
    """

    def write(files: Sequence[tuple[Path, range]], advance: Advance) -> Generator[File]:
        return write_arrays(
            files, make, width=width, dtype=dtype, chunk_rows=chunk_rows, advance=advance
        )

    _check_sizes(settings, chunk_rows)
    files = _Files(directory, settings, kind, stem, label, width * np.dtype(dtype).itemsize)
    _build(files, write, part)


def build_shards(
    directory: Path,
    settings: Mapping[str, Any],
    write: Callable[[Path, range, Advance], File],
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
      write: writes the file of some rows.
      kind: of the manifest.
      stem: how the files' names begin.
      row_bytes: disk space of a row, checked beforehand.
      label: for the progress bar.
      part: of the files that this process builds.

    Raises:
      InputError: an empty corpus, sizes below 1, a directory with something else, or a full disk.
    """

    def write_all(files: Sequence[tuple[Path, range]], advance: Advance) -> Generator[File]:
        for path, rows in files:
            yield write(path, rows, advance)

    _check_sizes(settings, None)
    _build(_Files(directory, settings, kind, stem, label, row_bytes), write_all, part)


def _build(files: _Files, write: _WriteAll, part: BuildPart) -> None:
    if part.whole:
        with exclusive_directory(files.directory):
            files.begin()
            files.build(files.missing(), write)
        return
    with shared_directory(files.directory, part.number, part.count):
        own = dataclasses.replace(files, name=part_name(part.number, part.count))
        own.begin_part()
        shards = [s for s in own.missing() if s % part.count == part.number]
        own.build(shards, write)
    with contextlib.suppress(LockedError), exclusive_directory(files.directory):
        files.close()


_WriteAll = Callable[[Sequence[tuple[Path, range]], Advance], "Generator[File]"]


@dataclasses.dataclass
class _Files:
    """The files of an index that is being built, and the manifest that this process writes.

    Attributes:
      directory, settings, kind, stem, label, row_bytes: see `build_shards`.
      name: of the manifest.
      manifest: the files that it lists.
      others: files that other processes have built.
    """

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
        return [s for s in range(self.count) if _name(self.stem, s) not in names]

    def rows(self, shard: int) -> range:
        """Rows of a file."""
        size = self.settings["shard_rows"]
        return range(shard * size, min((shard + 1) * size, self.settings["passages"]["count"]))

    def begin(self) -> None:
        """Takes over the undamaged files of this directory's manifests."""
        before = self._manifests(self.directory)
        kept = self._sound(self.directory, before.values(), hashes=True)
        for file in kept:
            journal_of(self.directory / file.name).unlink(missing_ok=True)
        if [*before] == [NAME] and kept == before[NAME].files:
            self.manifest = before[NAME]
        else:
            self._write(kept)
        self._remove_parts()

    def begin_part(self) -> None:
        """Takes over this part's own undamaged files, and leaves out what others have built."""
        before = self._manifests(self.directory)
        own = [before.pop(self.name)] if self.name in before else []
        self.others = self._sound(self.directory, before.values(), hashes=False)
        self._write(self._sound(self.directory, own, hashes=True))

    def close(self) -> None:
        """Writes the index's manifest if all parts are there; their sizes are compared."""
        kept = self._sound(self.directory, self._manifests(self.directory).values(), hashes=False)
        if len(kept) == self.count:
            self.name = NAME
            self._write(kept)
            self._remove_parts()

    def build(self, shards: Sequence[int], write: _WriteAll) -> None:
        """Builds some files and records each when it is finished."""
        if not shards:
            return
        files = [(self.directory / _name(self.stem, s), self.rows(s)) for s in shards]
        missing = sum(len(rows) for _, rows in files)
        done = sum(len(self.rows(_number(file.name))) for file in self.manifest.files)
        _check_space(self.directory, missing * self.row_bytes)
        if known := len(self.manifest.files) + len(self.others):
            listed = self._listed(shards)
            tell(f"{self.directory}: {known} of {self.count} files are there; building {listed}")
        with (
            explain_full_disk(self.directory),
            progress(done + missing, self.label, done=done) as advance,
            contextlib.closing(write(files, advance)) as written,
        ):
            for file in written:
                self.record(file)

    def _listed(self, shards: Sequence[int]) -> str:
        names = ", ".join(_name(self.stem, shard) for shard in shards[:8])
        return f"{names}, ... ({len(shards)})" if len(shards) > 8 else names

    def record(self, file: File) -> None:
        """Records a finished file in the manifest, after which its journal is not needed."""
        self._write((*self.manifest.files, file))
        journal_of(self.directory / file.name).unlink(missing_ok=True)

    def _manifests(self, directory: Path) -> dict[str, Manifest]:
        """The manifests in a directory, by name.

        Raises:
          InputError: the directory has files and no manifest, or a manifest of something else.
        """
        found = part_manifests(directory, self.kind)
        names = (path.name for path in directory.glob("*"))
        if (directory / NAME).exists() or (not found and not all(map(_is_aside, names))):
            found[NAME] = read_manifest(directory, self.kind)
        for manifest in found.values():
            check_settings(directory, manifest.settings, self.settings)
        return found

    def _sound(
        self, directory: Path, manifests: Iterable[Manifest], *, hashes: bool
    ) -> tuple[File, ...]:
        files = sorted({file for manifest in manifests for file in manifest.files})
        hashes |= len({file.name for file in files}) < len(files)  # two hashes for one file
        sound = {f.name: f for f in files if not damage(directory, f, hashes=hashes)}
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


def _is_aside(name: str) -> bool:
    """Whether a file is a lock, or a manifest that is just being written."""
    return fnmatch.fnmatch(name, LOCKS) or name.endswith(".json.new")


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


def _number(name: str) -> int:
    return int(name.rpartition("-")[2].removesuffix(".npy"))


def _check_space(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    held = sum(path.stat().st_size for path in directory.glob("*.partial"))
    if free + held < needed:
        raise InputError(
            f"{directory} needs {needed / 1e9:,.2f} GB more, its disk has {free / 1e9:,.2f} GB "
            "left; free some space or give another directory"
        )


def write_arrays(
    files: Sequence[tuple[Path, range]],
    make: Stream,
    *,
    width: int,
    dtype: str,
    chunk_rows: int | None,
    advance: Advance,
) -> Generator[File]:
    """Writes arrays [rows width] piece by piece; resumes where an earlier call stopped.

    A file grows under another name. Each piece is on disk before its hash is entered in the journal
    beside it, so that after an interruption the journal tells which rows to trust.

    Args:
      files: path and rows of each array.
      make: computes the rows that are missing.
      width, dtype: of the arrays.
      chunk_rows: rows of a piece; None: as many as are there after 5 seconds.
      advance: called with the number of rows that have reached the disk, first with those that were
        there before.
    """
    resumed_rows = [0] * len(files)
    for place, (path, rows) in enumerate(files):
        if path.exists() and journal_of(path).exists():  # stopped before the manifest was written
            path.rename(_partial(path))
        if _partial(path).exists():
            resumed_rows[place] = _resume(path, (len(rows), width), dtype)
    if sum(resumed_rows):
        advance(sum(resumed_rows))
    missing = [rows[k:] for (_, rows), k in zip(files, resumed_rows, strict=True) if k < len(rows)]
    with contextlib.closing(_Pieces(make(missing), chunk_rows)) as pieces:
        for (path, rows), start in zip(files, resumed_rows, strict=True):
            unfinished = _partial(path)
            if not unfinished.exists():
                _resume(path, (len(rows), width), dtype)
            with unfinished.open("ab") as stream, journal_of(path).open("a") as journal:
                while start < len(rows):
                    piece = pieces.take(len(rows) - start)
                    data = piece.tobytes()
                    stream.write(data)
                    _to_disk(stream)
                    journal.write(f"{len(piece)} {digest_bytes(data)}\n")
                    _to_disk(journal)
                    advance(len(piece))
                    start += len(piece)
            rename(unfinished, path)
            yield finished(path)


class _Pieces:
    """Cuts a stream of blocks into pieces of some rows, or of some seconds."""

    def __init__(self, blocks: Iterator[np.ndarray], rows: int | None) -> None:
        self._blocks, self._rows = blocks, rows
        self._rest: np.ndarray | None = None
        self._error: BaseException | None = None

    def take(self, most: int) -> np.ndarray:
        """The next rows, at most ``most`` and a piece; an error comes after the rows before it."""
        if self._error is not None:
            raise self._error
        most, parts, held = min(most, self._rows or most), [], 0
        until = time.monotonic() + _SECONDS
        while held < most and (not held or self._rows or time.monotonic() < until):
            try:
                block = next(self._blocks) if self._rest is None else self._rest
            except BaseException as error:
                if not parts:
                    raise
                self._error = error
                break
            part, rest = block[: most - held], block[most - held :]
            self._rest = rest if len(rest) else None
            parts.append(part)
            held += len(part)
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def close(self) -> None:
        """Stops the computation."""
        if close := getattr(self._blocks, "close", None):
            close()


def by_chunks(make: Callable[[range], np.ndarray], chunk_rows: int | None) -> Stream:
    """A `Stream` that computes ``chunk_rows`` rows at a time; None: as many as take 5 seconds."""

    def stream(ranges: Sequence[range]) -> Iterator[np.ndarray]:
        size = chunk_rows or _FIRST
        for rows in ranges:
            start = rows.start
            while start < rows.stop:
                began = time.monotonic()
                chunk = range(start, min(start + size, rows.stop))
                yield make(chunk)
                start = chunk.stop
                if chunk_rows is None and time.monotonic() - began < _SECONDS:
                    size = min(2 * size, _MOST)

    return stream


def encoded_rows(
    passages: Passages,
    encode: Callable[[Iterable[Passage]], Iterator[Any]],
    finish: Callable[[Any, np.ndarray], np.ndarray],
    ranges: Sequence[range],
) -> Generator[np.ndarray]:
    """Blocks of a `Stream` over encoded passages, which are computed in another thread.

    Args:
      passages: the corpus.
      encode: passages to blocks of what is computed of them, an array or a tuple of arrays.
      finish: makes the rows of a block; it gets their numbers [n], too.
      ranges: the rows.
    """

    def read() -> Iterator[Passage]:
        for rows in ranges:
            for start in range(rows.start, rows.stop, _READ):
                yield from passages.get(range(start, min(start + _READ, rows.stop)))

    numbers = chain.from_iterable(ranges)
    with contextlib.closing(in_background(encode(read()), ahead=_QUEUED)) as blocks:
        for block in blocks:
            count = len(block[0]) if isinstance(block, tuple) else len(block)
            yield finish(block, np.fromiter(islice(numbers, count), np.int64))


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def journal_of(path: Path) -> Path:
    """The journal of a file; removed once the manifest lists the file."""
    return path.with_name(path.name + ".journal")


def _resume(path: Path, shape: tuple[int, int], dtype: str) -> int:
    """Begins an unfinished file, or cuts it after its last undamaged piece; the rows kept."""
    with _partial(path).open("a+b") as stream, journal_of(path).open("a+") as journal:
        return _keep_sound(stream, journal, shape, np.dtype(dtype))


def _keep_sound(stream: BinaryIO, journal: TextIO, shape: tuple[int, int], dtype: np.dtype) -> int:
    """Truncates an unfinished file after its last undamaged piece; returns the rows kept."""
    header = _header(shape, dtype)
    row_bytes = shape[1] * dtype.itemsize
    stream.seek(0)
    journal.seek(0)
    sound_rows, entries = 0, []
    if stream.read(len(header)) == header:
        for entry in journal:
            rows, _, expected = entry.strip().partition(" ")
            data = stream.read(int(rows) * row_bytes) if rows.isdigit() else b""
            if not data or digest_bytes(data) != expected:
                break
            sound_rows += int(rows)
            entries.append(entry.strip() + "\n")
    stream.truncate(len(header) + sound_rows * row_bytes if sound_rows else 0)
    journal.truncate(0)
    journal.writelines(entries)
    if not sound_rows:
        stream.write(header)
    return sound_rows


def _header(shape: tuple[int, int], dtype: np.dtype) -> bytes:
    stream = io.BytesIO()
    description = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, description)
    return stream.getvalue()


def _to_disk(stream: BinaryIO | TextIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())
