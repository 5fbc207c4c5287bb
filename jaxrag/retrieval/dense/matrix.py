"""The matrix of passage vectors on disk: float16 shards, resumable, guarded by a manifest."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from jaxrag.retrieval.corpus.builds import build_shards, check_sizes
from jaxrag.retrieval.corpus.manifest import File, Manifest, open_manifest
from jaxrag.retrieval.corpus.shards import write_shard
from jaxrag.retrieval.retriever import TextEncoder
from jaxrag.types import InputError

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

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
    manifest = open_manifest(directory, KIND, _source(passages, encoder), verify=verify)
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
    check_sizes(len(passages), shard_rows, chunk_rows)
    if dtype not in ("float16", "float32"):
        raise InputError(f"dtype must be 'float16' or 'float32', not {dtype!r}")
    directory = Path(directory).absolute()
    layout = {"dimension": encoder.dimension, "dtype": dtype, "shard_rows": shard_rows}
    settings = _source(passages, encoder) | layout
    write = partial(_write, passages, encoder, settings, chunk_rows)
    build_shards(
        directory,
        settings,
        write,
        kind=KIND,
        stem="vectors",
        row_bytes=encoder.dimension * np.dtype(dtype).itemsize,
        label="encoding passages",
    )
    return open_matrix(directory, passages, encoder, verify=False)


def _source(passages: Passages, encoder: TextEncoder) -> dict[str, Any]:
    return {
        "encoder": json.loads(encoder.identity),
        "passages": {"identity": passages.identity, "count": len(passages)},
    }


def _write(
    passages: Passages,
    encoder: TextEncoder,
    settings: Mapping[str, Any],
    chunk_rows: int | None,
    path: Path,
    rows: range,
    advance: Callable[[int], None],
) -> File:
    return write_shard(
        path,
        rows,
        partial(_encode, passages, encoder, settings),
        dimension=settings["dimension"],
        dtype=settings["dtype"],
        chunk_rows=chunk_rows,
        advance=advance,
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
