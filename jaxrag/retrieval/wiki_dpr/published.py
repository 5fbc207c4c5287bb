"""Published passage vectors as an index of ours: imported once, searched with their own encoder.

WikiDPR (Karpukhin et al. 2020): 21,015,300 passages of at most 100 words of the Wikipedia of 20
December 2018, each with a vector of 768 numbers made by DPR's passage encoder. Nothing is encoded
here but the questions.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from jaxrag.core.durable_files import exclusive_directory
from jaxrag.core.hashing import canonical
from jaxrag.core.progress import progress
from jaxrag.retrieval.corpus import manifest as manifests
from jaxrag.retrieval.corpus.builds import build_shards, check_sizes
from jaxrag.retrieval.corpus.manifest import Manifest, check_files, check_settings, read_manifest
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.retrieval.corpus.shards import write_shard
from jaxrag.retrieval.dense.matrix import KIND
from jaxrag.retrieval.retriever import Retriever, TextEncoder
from jaxrag.retrieval.wiki_dpr.sources import Published, fingerprint, open_published
from jaxrag.types import InputError, Passage, Ranking

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxrag.retrieval.corpus.manifest import File

PASSAGES, VECTORS = "passages", "vectors"
_IMPORT = "published vectors"
_CHUNK = 8192  # rows that are converted at a time, and so the most that an interruption loses


def import_published(
    source: str | Path,
    directory: str | Path,
    *,
    dimension: int,
    dtype: Literal["float16", "float32"] = "float16",
    shard_rows: int = 50_000,
    chunk_rows: int = _CHUNK,
) -> None:
    """Imports passages and vectors, or finishes an import that was interrupted.

    The passages go to ``directory/passages`` (all or nothing), then the vectors to
    ``directory/vectors``, a matrix as ``build_matrix`` writes it, shard by shard; what is there
    and sound is kept. Everything is streamed: in memory are a chunk of vectors and, while the
    passages are written, some 20 bytes for each. The sources are not needed afterwards.

    Args:
      source: folder of the published files, see `open_published`.
      directory: made if need be.
      dimension: length of the vectors of the encoder that questions will be encoded with.
      dtype: stored precision; float16 rounds by up to 2^-11 of a number's size.
      shard_rows: rows of one file.
      chunk_rows: rows converted at a time.

    Raises:
      InputError: files that are not as they must be (see `open_published`), a vector that is not
        finite or of another length, a directory with something else, or a full disk.
    """
    directory = Path(directory).expanduser().absolute()
    if dtype not in ("float16", "float32"):
        raise InputError(f"dtype must be 'float16' or 'float32', not {dtype!r}")
    published = open_published(source)
    check_sizes(published.count, shard_rows, chunk_rows)
    if published.dimension != dimension:
        raise InputError(
            f"the vectors in {source} have {published.dimension} numbers, and the encoder of "
            f"questions makes {dimension}: they are of different models"
        )
    described = {"published": fingerprint(source), "count": published.count}
    with exclusive_directory(directory):
        _begin(directory, described)
        passages = _passages(published, directory / PASSAGES)
        layout = {"dimension": dimension, "dtype": dtype, "shard_rows": shard_rows}
        corpus = {"identity": passages.identity, "count": len(passages)}
        build_shards(
            directory / VECTORS,
            {"encoder": described, "passages": corpus, **layout},
            partial(_write, published, passages, dimension, dtype, chunk_rows),
            kind=KIND,
            stem="vectors",
            row_bytes=dimension * np.dtype(dtype).itemsize,
            label="importing vectors",
        )


def trouble(directory: Path, *, verify: bool | None) -> str | None:
    """What keeps an import from being opened, or None.

    ``verify``: whether to compare hashes of all vectors; None does so up to 1 GiB.
    """
    if not is_complete(directory / PASSAGES):
        return "its passages are not there"
    try:
        check_files(directory / VECTORS, read_manifest(directory / VECTORS, KIND), verify=verify)
    except InputError as error:
        return str(error)
    return None


def _begin(directory: Path, described: dict[str, Any]) -> None:
    """Notes what is imported, or refuses to go on with something else."""
    if (directory / manifests.NAME).exists():
        check_settings(directory, read_manifest(directory, _IMPORT).settings, described)
    elif any(path.name != ".lock" for path in directory.iterdir()):
        raise InputError(f"{directory} holds something else; give a directory for the import")
    else:
        Manifest(_IMPORT, described).write(directory)


def _passages(published: Published, directory: Path) -> Passages:
    if is_complete(directory):
        return Passages.open(directory)
    with progress(published.count, "importing passages") as advance:

        def told() -> Iterator[Passage]:
            for number, passage in enumerate(published.passages(), start=1):
                yield passage
                if not number % 1000:
                    advance(1000)

        return write_passages(directory, told())


def _write(
    published: Published,
    passages: Passages,
    dimension: int,
    dtype: str,
    chunk_rows: int,
    path: Path,
    rows: range,
    advance: Callable[[int], None],
) -> File:
    def make(chunk: range) -> np.ndarray:
        with np.errstate(over="ignore"):
            stored = published.vectors(chunk).astype(dtype)
        wrong = np.flatnonzero(~np.isfinite(stored).all(axis=1))
        if wrong.size:
            row = chunk[int(wrong[0])]
            raise InputError(
                f"the vector of passage {passages[row].id!r} (row {row}) is not finite in {dtype}; "
                "get its file again, or import in float32"
            )
        return stored

    return write_shard(
        path,
        rows,
        make,
        dimension=dimension,
        dtype=dtype,
        chunk_rows=chunk_rows,
        advance=advance,
    )


@dataclasses.dataclass(frozen=True)
class PublishedVectors:
    """Stands for the encoder of imported vectors, which is not here.

    Attributes:
      identity: canonical JSON of what was imported.
      dimension: length of a vector.
      queries: the encoder of questions that belongs to it.
    """

    identity: str
    dimension: int
    queries: TextEncoder

    @classmethod
    def of(cls, directory: Path, queries: TextEncoder) -> PublishedVectors:
        """Of a finished import.

        Raises:
          InputError: there is none, or its vectors are not as long as those of ``queries``.
        """
        settings = read_manifest(directory / VECTORS, KIND).settings
        dimension = settings["dimension"]
        if dimension != queries.dimension:
            raise InputError(
                f"the vectors in {directory} have {dimension} numbers, and the encoder of "
                f"questions makes {queries.dimension}: they are of different models"
            )
        return cls(canonical(settings["encoder"]), dimension, queries)

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of questions."""
        return self.queries.embed(texts)

    def embed_passages(self, passages: Sequence[Passage]) -> Float[np.ndarray, "n d"]:
        """Refused: the vectors were made elsewhere.

        Raises:
          InputError: always.
        """
        raise InputError(
            "the passages' encoder is not here, their vectors were imported: other passages "
            "need an index with an encoder, such as Exact(dpr())"
        )


@dataclasses.dataclass(frozen=True)
class PublishedIndex:
    """A `Retriever` over imported vectors: any index of them, and the encoder of questions."""

    index: Retriever
    encoder: TextEncoder

    @property
    def identity(self) -> str:
        """Canonical JSON of the index and of the encoder of questions."""
        parts = {"index": self.index, "questions": self.encoder}
        return canonical({name: json.loads(part.identity) for name, part in parts.items()})

    @property
    def passages(self) -> Passages:
        """The imported passages."""
        return self.index.passages

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of questions, float32."""
        return self.encoder.embed(texts)

    def search(self, vectors: Float[np.ndarray, "q d"], k: int) -> list[Ranking]:
        """See `Retriever`."""
        return self.index.search(vectors, k)

    def vectors(self, rows: Sequence[int]) -> Float[np.ndarray, "n d"]:
        """Imported vectors, float32."""
        return self.index.vectors(rows)
