"""Building an index file by file, so that it can be interrupted, resumed and repaired."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.durable_files import exclusive_directory, explain_full_disk
from jaxrag.core.progress import progress
from jaxrag.retrieval.corpus.manifest import File, Manifest, check_settings, damage, read_manifest
from jaxrag.retrieval.corpus.shards import journal_of
from jaxrag.types import InputError

Write = Callable[[Path, range, Callable[[int], None]], File]
"""Writes the file of some rows, telling of rows that are on disk."""


def check_sizes(count: int, shard_rows: int, chunk_rows: int | None = None) -> None:
    """InputError for an empty corpus or for sizes below 1."""
    if not count:
        raise InputError("the corpus is empty; an index needs at least one passage")
    if min(shard_rows, 1 if chunk_rows is None else chunk_rows) < 1:
        raise InputError(
            f"shard_rows and chunk_rows must be at least 1, not {shard_rows} and {chunk_rows}"
        )


def build_shards(
    directory: Path,
    settings: Mapping[str, Any],
    write: Write,
    *,
    kind: str,
    stem: str,
    row_bytes: int,
    label: str,
) -> None:
    """Writes the files ``stem-00000.npy``, ... that are missing or damaged, and the manifest.

    Args:
      directory: made if need be; other builds are kept out of it.
      settings: all that determines the files; "shard_rows" and "passages" with its "count" among
        it.
      write: makes one file.
      kind: of the manifest.
      stem: how the files' names begin.
      row_bytes: what a row takes, to see beforehand whether the disk will do.
      label: for the progress bar.

    Raises:
      InputError: the directory holds something else, or its disk is full.
    """
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


def _name(stem: str, shard: int) -> str:
    return f"{stem}-{shard:05d}.npy"


def _begin(directory: Path, kind: str, settings: Mapping[str, Any]) -> Manifest:
    """The manifest with the finished files that are sound; a new one in an empty directory."""
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
    """Enters a finished file in the manifest; its journal has done its duty."""
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
