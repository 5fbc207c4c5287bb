"""Rows on disk: TFDS data sets in ArrayRecord files, without TensorFlow.

Passages and questions are written here once and read by row number. A directory is written under
another name and renamed at the end; its manifest (row counts, file sizes, content hash) marks it as
complete. The files are an ordinary TFDS data set, which ``tfds.builder_from_directory`` and Grain
read too.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow_datasets as tfds
from tensorflow_datasets.core.dataset_info import DatasetIdentity

from jaxrag.core.durable_files import explain_full_disk
from jaxrag.types import InputError

Row = Mapping[str, Any]
"""A field is a string or a sequence of strings."""

MANIFEST = "manifest.json"
_FORMAT = 1
_ROWS_PER_FILE = 1 << 17
_ROWS_PER_WRITE = 4096


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
) -> RowsManifest:
    """Writes the rows of each split, in their order, to a new directory.

    The content hash covers the splits' names and rows, not the files.

    Args:
      directory: made by this call; another process may complete it with the same rows meanwhile.
      splits: rows by split name; none may be empty.
      kind: kind of rows ("passages"), checked when they are opened.
      fields: each field's type, ``str`` or ``list`` (of strings).
      about: plain JSON for the manifest; not part of the content hash.
      finish: called with the unfinished directory after all rows are written; may add files.

    Raises:
      InputError: the directory is not empty, a split is empty, a text is not valid Unicode, or the
        disk is full.
    """
    directory = Path(directory).absolute()
    refuse_occupied(directory)
    with explain_full_disk(directory), _unfinished(directory) as partial:
        rows, identity = _write_splits(partial, splits, kind=kind, fields=fields)
        if finish is not None:
            finish(partial)
        manifest = RowsManifest(kind, rows, identity, _file_sizes(partial), dict(about or {}))
        document = {"format": _FORMAT, **manifest._asdict()}
        (partial / MANIFEST).write_text(json.dumps(document, indent=1, ensure_ascii=False))
        if not is_complete(directory):
            partial.rename(directory)
    found = read_manifest(directory, kind=kind)
    if found.identity != identity:
        raise InputError(
            f"{directory}: another process wrote other {kind} here; use one directory each"
        )
    return found


def refuse_occupied(directory: Path) -> None:
    """InputError unless the directory is missing or empty."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(
            f"{directory}: holds something already; open it, choose another directory, or remove it"
        )


def is_complete(directory: Path) -> bool:
    """Whether the directory has a manifest; its files may have been damaged since."""
    return (Path(directory) / MANIFEST).is_file()


def read_manifest(directory: Path, *, kind: str) -> RowsManifest:
    """The manifest of a directory, after checking the sizes of its files.

    Raises:
      InputError: missing, unfinished, of another kind or version, or a file is missing or cut.
    """
    directory = Path(directory)
    way_out = "remove the directory and build it again"
    if not is_complete(directory):
        what = "is unfinished (no manifest)" if directory.exists() else "does not exist"
        raise InputError(f"{directory}: this directory of {kind} {what}; build it first")
    try:
        document = json.loads((directory / MANIFEST).read_text())
        version = document.pop("format")
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
    return manifest


def open_rows(directory: Path, split: str) -> Callable[[Sequence[int]], list[dict[str, Any]]]:
    """A function that reads the rows with given numbers of a split in one batch.

    It raises InputError if a file does not match its checksum.
    """
    builder: Any = tfds.builder_from_directory(str(directory))
    source = builder.as_data_source(split=split)

    def read(numbers: Sequence[int]) -> list[dict[str, Any]]:
        try:
            found = source.__getitems__([int(number) for number in numbers])
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"{directory}: cannot read rows of {split!r} ({error}); the files are damaged:"
                " remove the directory and build it again"
            ) from None
        return [{name: _decoded(value) for name, value in row.items()} for row in found]

    return read


def _decoded(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else tuple(item.decode() for item in value)


def _write_splits(
    directory: Path, splits: Mapping[str, Iterable[Row]], *, kind: str, fields: Mapping[str, type]
) -> tuple[dict[str, int], str]:
    writer = _writer(directory, kind, fields)
    writer.initialize_splits(list(splits))
    counts = dict.fromkeys(splits, 0)
    content = hashlib.sha256()
    for split, rows in splits.items():
        content.update(f"{json.dumps(split)}\n".encode())
        stream = iter(rows)
        while chunk := list(itertools.islice(stream, _ROWS_PER_WRITE)):
            for offset, row in enumerate(chunk):
                content.update(_canonical(row, counts[split] + offset, kind))
            writer.add_examples({split: chunk})
            counts[split] += len(chunk)
        if not counts[split]:
            raise InputError(f"no {kind} to write: {split!r} is empty")
    writer.close_all()
    return counts, content.hexdigest()


def _writer(directory: Path, kind: str, fields: Mapping[str, type]) -> Any:
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
    return tfds.core.SequentialWriter(
        info, max_examples_per_shard=_ROWS_PER_FILE, file_format="array_record"
    )


def _canonical(row: Row, number: int, kind: str) -> bytes:
    try:
        return f"{json.dumps(row, sort_keys=True, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError as error:
        raise InputError(f"row {number + 1} of the {kind} is not valid Unicode: {error}") from None


def _file_sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(directory.iterdir())}


@contextlib.contextmanager
def _unfinished(directory: Path) -> Iterator[Path]:
    """An empty directory beside the final one; removed afterwards unless it was renamed.

    One process at a time builds in a folder (the lock ends with its process), so an existing
    directory is left from a killed build, and is removed.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = directory.with_name(f".{directory.name}.partial")
    lock = os.open(directory.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)
