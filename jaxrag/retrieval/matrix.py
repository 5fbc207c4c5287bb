"""The matrix of passage vectors on disk: float16 shards, resumable, guarded by a manifest."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from jaxrag.engines.progress import progress
from jaxrag.retrieval.manifest import (
    Manifest,
    building,
    check_files,
    check_settings,
    damage,
    enough_space,
    read_manifest,
)
from jaxrag.retrieval.retriever import TextEncoder
from jaxrag.retrieval.shards import journal_of, write_shard
from jaxrag.types import InputError

if TYPE_CHECKING:
    from jaxrag.retrieval.passages import Passages

KIND = "matrix"


@dataclasses.dataclass(frozen=True)
class Matrix:
    """The vectors of a corpus, row by row, as memory maps of its shards."""

    directory: Path
    manifest: Manifest
    shards: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return self.manifest.settings["passages"]["count"]

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.manifest.settings["dimension"]

    @property
    def identity(self) -> dict[str, Any]:
        """All that determines the vectors, plain JSON: encoder, passages and content hash."""
        settings = self.manifest.settings
        return {
            "encoder": settings["encoder"],
            "passages": settings["passages"]["identity"],
            "dtype": settings["dtype"],
            "content": self.manifest.content,
        }

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimension."""
        return len(self), self.dimension

    def __getitem__(self, rows: slice) -> np.ndarray:
        """A run of rows in the stored precision."""
        return self.stored(range(*rows.indices(len(self))))

    def stored(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Vectors of the given rows [n d] in the stored precision, in the given order."""
        rows = np.asarray(rows, np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise InputError(
                f"rows {rows.min()} to {rows.max()} were asked for, but {self.directory} holds "
                f"rows 0 to {len(self) - 1}"
            )
        found = np.empty((rows.size, self.dimension), self.shards[0].dtype)
        shard_of, offset = np.divmod(rows, self.manifest.settings["shard_rows"])
        for shard in np.unique(shard_of):
            here = shard_of == shard
            found[here] = self.shards[shard][offset[here]]
        return found


def open_matrix(
    directory: str | Path,
    passages: Passages,
    encoder: TextEncoder,
    *,
    verify: bool | None = None,
) -> Matrix:
    """Opens a finished matrix.

    Args:
      directory: where ``build_matrix`` wrote it.
      passages: the corpus it was made from.
      encoder: the encoder it was made with.
      verify: whether to read everything and compare hashes; None does so up to 1 GiB. Sizes are
        always compared.

    Raises:
      InputError: no matrix there, or it is incomplete, damaged, or made from something else.
    """
    directory = Path(directory).absolute()
    manifest = read_manifest(directory, KIND)
    wanted = _source(passages, encoder)
    check_settings(directory, {key: manifest.settings.get(key) for key in wanted}, wanted)
    check_files(directory, manifest, verify=verify)
    shards = tuple(
        np.load(directory / file.name, mmap_mode="r", allow_pickle=False).view(np.ndarray)
        for file in sorted(manifest.files)
    )
    return Matrix(directory, manifest, shards)


def build_matrix(
    passages: Passages,
    encoder: TextEncoder,
    directory: str | Path,
    *,
    shard_rows: int = 50_000,
    chunk_rows: int | None = None,
    dtype: Literal["float16", "float32"] = "float16",
) -> Matrix:
    """Encodes a corpus into a matrix on disk, or finishes one that was interrupted.

    Rows already encoded are kept, down to the last chunk that reached the disk; shards that are
    missing or damaged are encoded anew. The files of a resumed build are those of one that never
    stopped.

    Args:
      passages: the corpus; row i of the matrix belongs to passage i.
      encoder: its ``embed_passages`` makes the vectors.
      directory: made if need be.
      shard_rows: rows of one file.
      chunk_rows: rows encoded at a time, and so the most that an interruption loses; None: what
        takes 5 to 10 seconds.
      dtype: stored precision.

    Raises:
      InputError: an empty corpus, a vector that is not finite or of the wrong length, a directory
        that holds another index, or a full disk.
    """
    if not len(passages):
        raise InputError("the corpus is empty; an index needs at least one passage")
    if min(shard_rows, 1 if chunk_rows is None else chunk_rows) < 1:
        raise InputError(
            f"shard_rows and chunk_rows must be at least 1, not {shard_rows} and {chunk_rows}"
        )
    if dtype not in ("float16", "float32"):
        raise InputError(f"dtype must be 'float16' or 'float32', not {dtype!r}")
    directory = Path(directory).absolute()
    layout = {"dimension": encoder.dimension, "dtype": dtype, "shard_rows": shard_rows}
    settings = _source(passages, encoder) | layout
    with building(directory):
        manifest = _begin(directory, settings)
        shards = range(-(-len(passages) // shard_rows))
        missing = [shard for shard in shards if _name(shard) not in _names(manifest)]
        if missing:
            _encode_shards(passages, encoder, directory, manifest, missing, chunk_rows)
    return open_matrix(directory, passages, encoder, verify=False)


def _source(passages: Passages, encoder: TextEncoder) -> dict[str, Any]:
    return {
        "encoder": json.loads(encoder.identity),
        "passages": {"identity": passages.identity, "count": len(passages)},
    }


def _name(shard: int) -> str:
    return f"vectors-{shard:05d}.npy"


def _names(manifest: Manifest) -> set[str]:
    return {file.name for file in manifest.files}


def _begin(directory: Path, settings: Mapping[str, Any]) -> Manifest:
    """The manifest with the finished shards that are sound; a new one in an empty directory."""
    if any(path.name != ".lock" for path in directory.iterdir()):
        manifest = read_manifest(directory, KIND)
        check_settings(directory, manifest.settings, settings)
        sound = [file for file in manifest.files if not damage(directory, file, hashes=True)]
        for file in sound:
            journal_of(directory / file.name).unlink(missing_ok=True)
        if len(sound) == len(manifest.files):
            return manifest
        manifest = Manifest(KIND, settings, tuple(sound))
    else:
        manifest = Manifest(KIND, settings)
    manifest.write(directory)
    return manifest


def _encode_shards(
    passages: Passages,
    encoder: TextEncoder,
    directory: Path,
    manifest: Manifest,
    missing: Sequence[int],
    chunk_rows: int | None,
) -> None:
    settings = manifest.settings
    count, shard_rows = settings["passages"]["count"], settings["shard_rows"]
    ranges = [range(s * shard_rows, min((s + 1) * shard_rows, count)) for s in missing]
    _check_space(directory, sum(map(len, ranges)), settings)
    done = count - sum(map(len, ranges))
    with (
        enough_space(directory),
        progress(count, "encoding passages", done=done) as advance,
    ):
        for shard, rows in zip(missing, ranges, strict=True):
            file = write_shard(
                directory / _name(shard),
                rows,
                partial(_encode, passages, encoder, settings),
                dimension=settings["dimension"],
                dtype=settings["dtype"],
                chunk_rows=chunk_rows,
                advance=advance,
            )
            manifest = dataclasses.replace(manifest, files=tuple(sorted((*manifest.files, file))))
            complete = len(manifest.files) == -(-count // shard_rows)
            manifest = dataclasses.replace(manifest, complete=complete)
            manifest.write(directory)
            journal_of(directory / file.name).unlink()


def _check_space(directory: Path, rows: int, settings: Mapping[str, Any]) -> None:
    needed = rows * settings["dimension"] * np.dtype(settings["dtype"]).itemsize
    free = shutil.disk_usage(directory).free
    held = sum(path.stat().st_size for path in directory.glob("*.partial"))
    if free + held < needed:
        raise InputError(
            f"{directory} needs {needed / 1e9:,.2f} GB more, its disk has {free / 1e9:,.2f} GB "
            "left; make room or give another directory"
        )


def _encode(
    passages: Passages, encoder: TextEncoder, settings: Mapping[str, Any], rows: range
) -> Float[np.ndarray, "n d"]:
    vectors = np.asarray(encoder.embed_passages(passages.get(rows)))
    shape = (len(rows), settings["dimension"])
    if vectors.shape != shape:
        raise InputError(f"the encoder gave an array of shape {vectors.shape} instead of {shape}")
    with np.errstate(over="ignore"):
        stored = vectors.astype(settings["dtype"])
    wrong = np.flatnonzero(~np.isfinite(stored).all(axis=1))
    if wrong.size:
        row = rows[int(wrong[0])]
        raise InputError(
            f"the vector of passage {passages[row].id!r} (row {row}) is not finite in "
            f"{settings['dtype']}; check the encoder's weights and dtype, or that passage's text"
        )
    return stored
