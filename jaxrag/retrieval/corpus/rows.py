"""Rows on disk: TFDS data sets in ArrayRecord files, without TensorFlow.

Passages and questions, read by row number. A directory is written under another name and renamed at
the end; its manifest (row counts, file sizes, content hash) marks it as complete.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import itertools
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordReader  # pyright: ignore[reportMissingImports]
from etils import epath
from google.protobuf.message import DecodeError
from tensorflow_datasets.core.dataset_info import DatasetIdentity
from tensorflow_datasets.core.naming import ShardedFileTemplate
from tensorflow_datasets.core.splits import SplitDict, SplitInfo
from tensorflow_datasets.proto import tf_example_pb2

from jaxrag.core.checks import check_local
from jaxrag.core.durable_files import explain_limits, rename, wait_for_lock, write_text
from jaxrag.core.hashing import digest
from jaxrag.core.json_text import parse_json
from jaxrag.retrieval.corpus.shards import (
    RECORD,
    ShardFile,
    ShardWriter,
    default_workers,
    read_record,
)
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")

Row = Mapping[str, Any]
"""A field is a string or a sequence of strings."""

MANIFEST = "manifest.json"
_FORMAT = 1
_DESCRIPTION = ("dataset_info.json", "features.json")
_READING = "readahead_buffer_size:0,max_parallelism:0"  # for random access
_OPEN_FILES = 512  # of a split at once; systems often allow a process 1,024
_ROWS_PER_FILE = 1 << 16
_BYTES_PER_FILE = 1 << 26
_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False)  # lines of the content hash


class RowsManifest(NamedTuple):
    """The manifest of a complete directory."""

    kind: str
    rows: dict[str, int]
    identity: str
    files: dict[str, int]
    about: dict[str, Any]


def write_rows(
    directory: Path,
    splits: Mapping[str, Iterable[Row]],
    *,
    kind: str,
    fields: Mapping[str, type],
    about: Mapping[str, Any] | None = None,
    finish: Callable[[Path], None] | None = None,
    workers: int | None = None,
) -> RowsManifest:
    """Writes the rows of each split, in their order, to a new directory.

    The content hash covers the splits' names and rows; the files' bytes depend on the rows only.
    After an interruption the next call reads the rows again but writes only the missing files.

    Args:
      directory: made by this call; another process may complete it with the same rows meanwhile.
      splits: rows by split name; none may be empty.
      kind: of rows ("passages"), checked when they are opened.
      fields: each field's type, ``str`` or ``list`` (of strings).
      about: plain JSON for the manifest; not part of the content hash.
      finish: called with the unfinished directory after all rows are written; may add files.
      workers: processes that write; None for one a core, up to 4. Memory: about 100 MB for each.

    InputError if the directory is not empty, a split is empty, a text is not valid Unicode, the
    disk is full, or a process was killed.
    """
    directory = Path(directory).absolute()
    check_local({"the directory": directory})
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(
            f"{directory}: holds something already; open it, choose another directory, or remove it"
        )
    with explain_limits(directory), _unfinished(directory) as (partial, lock):
        workers = default_workers() if workers is None else workers
        with ShardWriter(partial, workers, lock) as writer:
            files, identity = _write_splits(writer, splits, kind=kind)
        _write_info(partial, files, kind=kind, fields=fields)
        if finish is not None:
            finish(partial)
        rows = {split: sum(file.rows for file in of_split) for split, of_split in files.items()}
        paths = sorted(path for path in partial.iterdir() if path.name != RECORD)
        sizes = {path.name: path.stat().st_size for path in paths}
        manifest = RowsManifest(kind, rows, identity, sizes, dict(about or {}))
        document = {"format": _FORMAT, **manifest._asdict(), "description": _description(partial)}
        (partial / RECORD).unlink()
        write_text(partial / MANIFEST, json.dumps(document, indent=1, ensure_ascii=False))
        if not is_complete(directory):
            rename(partial, directory)
    written = read_manifest(directory, kind=kind)
    if written.identity != identity:
        raise InputError(
            f"{directory}: another process wrote other {kind} here; use one directory each"
        )
    return written


def is_complete(directory: Path) -> bool:
    """Whether the directory has a manifest; its files may have been damaged since."""
    return (Path(directory) / MANIFEST).is_file()


def read_manifest(directory: Path, *, kind: str) -> RowsManifest:
    """The manifest of a directory, after checking the sizes of its files.

    InputError if it is missing, unfinished, of another kind or version, or lacks a part of a file.
    """
    directory = Path(directory)
    way_out = "remove the directory and build it again"
    if not is_complete(directory):
        state = "is unfinished (no manifest)" if directory.exists() else "does not exist"
        raise InputError(f"{directory}: this directory of {kind} {state}; build it first")
    try:
        document = parse_json((directory / MANIFEST).read_bytes())
        version, description = document.pop("format"), document.pop("description", None)
        manifest = RowsManifest(**document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{directory / MANIFEST}: not a manifest ({error}); {way_out}") from None
    if version != _FORMAT or manifest.kind != kind:
        raise InputError(
            f"{directory}: holds {manifest.kind} in format {version}, wanted {kind} in format"
            f" {_FORMAT}; {way_out}"
        )
    for name, size in manifest.files.items():
        path = directory / name
        if not path.is_file():
            raise InputError(f"{path}: missing; {way_out}")
        if path.stat().st_size != size:
            raise InputError(
                f"{path}: has {path.stat().st_size} bytes instead of {size}; {way_out}"
            )
    if description not in (None, _description(directory)):  # older directories have none
        raise InputError(f"{directory}: {' or '.join(_DESCRIPTION)} is damaged; {way_out}")
    return manifest


def _description(directory: Path) -> str:
    """A hash of TFDS's description of the data set."""
    return digest(*((directory / name).read_text("utf-8", "replace") for name in _DESCRIPTION))


def open_rows(directory: Path, split: str) -> Callable[[Sequence[int]], list[dict[str, Any]]]:
    """A function that reads the rows with given numbers of a split in one batch; thread-safe.

    It raises InputError if a row does not match its checksum.
    """
    try:
        with explain_limits(directory):
            builder: Any = tfds.builder_from_directory(str(directory))
            features, info = builder.info.features, builder.info.splits[split]
    except InputError:
        raise
    except Exception as error:  # TFDS raises what its parts happen to raise
        raise InputError(
            f"{directory}: {' or '.join(_DESCRIPTION)} is damaged ({error}); remove the directory "
            "and build it again"
        ) from error
    single = {name: isinstance(features[name], tfds.features.Text) for name in features}
    paths = [Path(directory) / Path(path).name for path in info.filepaths]
    ends = list(itertools.accumulate(info.shard_lengths))
    readers: dict[int, Any] = {}
    lock = threading.Lock()

    def example(number: int) -> bytes:
        file = bisect.bisect_right(ends, number)
        if file not in readers:
            if len(readers) >= _OPEN_FILES:
                readers.pop(next(iter(readers))).close()
            readers[file] = ArrayRecordReader(str(paths[file]), _READING)
        # for single rows twenty times as fast as a reader's read([row]), which starts threads
        readers[file].seek(number - ends[file] + info.shard_lengths[file])
        return readers[file].read()

    def read(numbers: Sequence[int]) -> list[dict[str, Any]]:
        try:
            with lock, explain_limits(directory):
                examples = [example(int(number)) for number in numbers]
            return [_parsed(line, single) for line in examples]
        except (RuntimeError, ValueError, IndexError, OSError, DecodeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{directory}: cannot read rows of {split!r} ({error}); the files are damaged:"
                " remove the directory and build it again"
            ) from None

    return read


def _parsed(example: bytes, single: Mapping[str, bool]) -> dict[str, Any]:
    """The fields of a ``tf.train.Example``: texts, or tuples of texts."""
    features = tf_example_pb2.Example.FromString(example).features.feature  # pyright: ignore
    row: dict[str, Any] = {}
    for name, is_single in single.items():
        values = [value.decode() for value in features[name].bytes_list.value]
        row[name] = values[0] if is_single else tuple(values)
    return row


def _write_splits(
    writer: ShardWriter, splits: Mapping[str, Iterable[Row]], *, kind: str
) -> tuple[dict[str, list[ShardFile]], str]:
    """Writes the files of all splits; returns them by split, and the content hash."""
    content, names = hashlib.sha256(), {}
    for split, rows in splits.items():
        content.update(f"{json.dumps(split)}\n".encode())
        names[split] = []
        for examples, full in _file_rows(rows, kind, content):
            names[split].append(f"{kind}-{split}.array_record-{len(names[split]):05}")
            writer.add(names[split][-1], examples, content.copy().hexdigest(), small=not full)
        if not names[split]:
            raise InputError(f"no {kind} to write: {split!r} is empty")
    written = writer.finish()
    return {
        split: [written[name] for name in names[split]] for split in splits
    }, content.hexdigest()


def _file_rows(rows: Iterable[Row], kind: str, content: Any) -> Iterator[tuple[list[bytes], bool]]:
    """The rows of each file as ``tf.train.Example``, and whether the file is full.

    Where files end depends on the rows only. ``content``: a hash, which gets the rows' lines.
    """
    examples, size = [], 0
    for number, row in enumerate(rows, 1):
        try:
            line = f"{_CANONICAL.encode(row)}\n".encode()
        except UnicodeEncodeError as error:
            problem = f"row {number} of the {kind} is not valid Unicode: {error}"
            raise InputError(problem) from None
        content.update(line)
        examples.append(serialize(row))
        size += len(line)
        if _fills_a_file(len(examples), size):
            yield examples, True
            examples, size = [], 0
    if examples:
        yield examples, False


def _fills_a_file(rows: int, size: int) -> bool:
    return rows >= _ROWS_PER_FILE or size >= _BYTES_PER_FILE


def serialize(row: Row) -> bytes:
    """A row as the bytes of a ``tf.train.Example``, fields sorted by name."""
    example = tf_example_pb2.Example()  # pyright: ignore
    for name, value in row.items():
        texts = [value] if isinstance(value, str) else value
        example.features.feature[name].bytes_list.value.extend([text.encode() for text in texts])
    return example.SerializeToString(deterministic=True)


def _write_info(
    directory: Path,
    files: Mapping[str, Sequence[ShardFile]],
    *,
    kind: str,
    fields: Mapping[str, type],
) -> None:
    """Writes TFDS's description of the data set."""
    text = tfds.features.Text
    features = {
        name: text() if of is str else tfds.features.Sequence(text()) for name, of in fields.items()
    }
    identity = DatasetIdentity(
        name=kind,
        version=tfds.core.Version("1.0.0"),
        data_dir=str(directory),
        module_name="jaxrag",
    )
    info = tfds.core.DatasetInfo(
        builder=identity,
        description=f"jaxrag {kind}",
        features=tfds.features.FeaturesDict(features),
        disable_shuffling=True,
    )
    info.set_file_format("array_record")
    splits = []
    for split, of_split in files.items():
        template = ShardedFileTemplate(
            dataset_name=kind,
            data_dir=epath.Path(directory),
            split=split,
            filetype_suffix="array_record",
            template="{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_INDEX}",
        )
        splits.append(
            SplitInfo(
                name=split,
                shard_lengths=[file.rows for file in of_split],
                num_bytes=sum(file.example_bytes for file in of_split),
                filename_template=template,
            )
        )
    info.set_splits(SplitDict(splits))
    info.write_to_directory(str(directory))


@contextlib.contextmanager
def _unfinished(directory: Path) -> Iterator[tuple[Path, int]]:
    """The directory beside the final one, and a handle that locks it.

    It is removed afterwards unless it was renamed or has a full file.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = directory.with_name(f".{directory.name}.partial")
    lock = _lock(partial)
    try:
        yield partial, lock
    finally:
        if partial.exists() and os.path.samestat(partial.stat(), os.fstat(lock)):
            files = read_record(partial)
            rows, size = sum(f.rows for f in files), sum(f.example_bytes for f in files)
            if is_complete(directory) or not _fills_a_file(rows, size):
                shutil.rmtree(partial, ignore_errors=True)
            else:
                _log.warning("finished files are kept in %s for the next build", partial)
        os.close(lock)


def _lock(partial: Path) -> int:
    """A handle of the directory, made if need be, that no other process holds; waits for it."""
    while True:
        partial.mkdir(exist_ok=True)
        handle = os.open(partial, os.O_RDONLY)
        wait_for_lock(handle, partial, "another process is writing the same rows")
        # the other process has renamed or removed it
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(partial.stat(), os.fstat(handle)):
                return handle
        os.close(handle)
