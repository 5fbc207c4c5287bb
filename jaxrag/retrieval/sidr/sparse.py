"""The index E(D) of SiDR: every passage as its few hundred largest weights over the vocabulary.

Rows of token ids (uint16) and values (float16), 4 bytes an entry: 3 KB a passage with SiDR's 768,
so 64 GB for 21 million; the index of token sets (`jaxrag.retrieval.sidr.bag_of_tokens`) takes a
twentieth and no network. Asked with E(q) it is SiDR's parametric search, with T(q) its alpha.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt16

from jaxrag.core.hashing import canonical
from jaxrag.retrieval.corpus.builds import build_shards, check_sizes
from jaxrag.retrieval.corpus.manifest import File, Manifest, open_manifest
from jaxrag.retrieval.corpus.shards import write_shard
from jaxrag.retrieval.sidr.bag_search import check_weights
from jaxrag.retrieval.sidr.sparse_search import SparseSearch
from jaxrag.types import InputError, Passage, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

KIND = "sparse"
Encode = Callable[[Sequence[Passage]], tuple[UInt16[np.ndarray, "n l"], Float[np.ndarray, "n l"]]]
"""Token ids and weights of passages, in any order; entries with weight 0 are none."""


@dataclasses.dataclass(frozen=True)
class SparseIndex:
    """The sparse vectors of a corpus; made by :meth:`open`."""

    directory: Path
    manifest: Manifest
    searcher: SparseSearch

    @classmethod
    def open(
        cls,
        directory: str | Path,
        passages: Passages,
        identity: str,
        *,
        devices: Sequence[Any] | None = None,
        verify: bool | None = None,
    ) -> SparseIndex:
        """Opens what `build_sparse` wrote.

        Args:
          directory: where it lies.
          passages: the corpus it was made from.
          identity: of the encoder it was made with.
          devices: JAX devices that search, by default all of this process.
          verify: whether to read everything and compare hashes; None does so up to 1 GiB.

        Raises:
          InputError: no index there, or it is incomplete, damaged, or made from something else.
        """
        directory = Path(directory).absolute()
        manifest = open_manifest(directory, KIND, _source(passages, identity), verify=verify)
        files = tuple(
            np.load(directory / file.name, mmap_mode="r", allow_pickle=False).view(np.ndarray)
            for file in sorted(manifest.files)
        )
        searcher = SparseSearch.of(files, manifest.settings["length"], devices)
        return cls(directory, manifest, searcher)

    def __len__(self) -> int:
        return self.manifest.settings["passages"]["count"]

    @property
    def vocabulary(self) -> int:
        """Length of a query's vector."""
        return self.manifest.settings["vocabulary"]

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines results: encoder, passages, content."""
        settings = self.manifest.settings
        return canonical(
            {
                "sparse": settings["encoder"],
                "passages": settings["passages"]["identity"],
                "content": self.manifest.content,
            }
        )

    def vectors(self, rows: Sequence[int]) -> tuple[UInt16[np.ndarray, "n l"], Any]:
        """Ids and values (float16 [n l]) of some rows; entries with value 0 are none.

        Raises:
          InputError: a row that is none of the corpus.
        """
        wanted = np.asarray(rows, np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise InputError(
                f"rows {wanted.min()} to {wanted.max()} were asked for, but {self.directory} holds "
                f"rows 0 to {len(self) - 1}"
            )
        ids, bits = np.split(self.searcher.entries(wanted), 2, axis=1)
        return ids, np.ascontiguousarray(bits).view(np.float16)

    def search(self, queries: Float[np.ndarray, "q v"], k: int) -> list[Ranking]:
        """The ``k`` best passages of each query (all of them where ``k`` exceeds the corpus).

        A score is the inner product with the stored values, summed in float64 in the order of a
        passage's entries; passages are ordered by it, equal ones by row. A query's ranking depends
        on no other query.

        Raises:
          InputError: queries of the wrong shape, not finite or negative, or ``k`` below 1.
        """
        queries = check_weights(queries, k, self.vocabulary)
        return self.searcher.search(queries, min(k, len(self)))


def build_sparse(
    passages: Passages,
    encode: Encode,
    identity: str,
    directory: str | Path,
    *,
    vocabulary: int,
    length: int = 768,
    shard_rows: int = 1 << 16,
    chunk_rows: int | None = None,
) -> SparseIndex:
    """Encodes a corpus into a sparse index on disk, or finishes one that was interrupted.

    Rows already encoded are kept, down to the last chunk that reached the disk.

    Args:
      passages: the corpus.
      encode: makes ids and weights [n length].
      identity: canonical JSON of all that determines what ``encode`` gives.
      directory: made if need be.
      vocabulary: ids are below it; at most 65,535.
      length: entries of a passage.
      shard_rows: rows of one file.
      chunk_rows: rows encoded at a time; None: what takes 5 to 10 seconds.

    Raises:
      InputError: an empty corpus, entries that will not do, a directory that holds another index,
        or a full disk.
    """
    check_sizes(len(passages), shard_rows, chunk_rows)
    if not 1 <= vocabulary < 1 << 16:
        raise InputError(f"vocabulary is {vocabulary:,}; ids of 16 bits allow 1 to 65,535")
    directory = Path(directory).absolute()
    layout = {"vocabulary": vocabulary, "length": length, "shard_rows": shard_rows}
    settings = _source(passages, identity) | layout

    def write(path: Path, rows: range, advance: Callable[[int], None]) -> File:
        return write_shard(
            path,
            rows,
            partial(_encode, passages, encode, settings),
            dimension=2 * length,
            dtype="uint16",
            chunk_rows=chunk_rows,
            advance=advance,
        )

    build_shards(
        directory,
        settings,
        write,
        kind=KIND,
        stem="entries",
        row_bytes=4 * length,
        label="encoding passages",
    )
    return SparseIndex.open(directory, passages, identity, verify=False)


def _source(passages: Passages, identity: str) -> dict[str, Any]:
    return {
        "encoder": json.loads(identity),
        "passages": {"identity": passages.identity, "count": len(passages)},
    }


def _encode(
    passages: Passages, encode: Encode, settings: Mapping[str, Any], rows: range
) -> UInt16[np.ndarray, "n 2*l"]:
    ids, weights = (np.asarray(x) for x in encode(passages.get(rows)))
    shape = (len(rows), settings["length"])
    if ids.shape != shape or weights.shape != shape:
        raise InputError(
            f"the encoder gave ids of shape {ids.shape} and weights of shape {weights.shape} "
            f"instead of {shape}"
        )
    with np.errstate(over="ignore"):
        stored = weights.astype(np.float16)
    good = np.isfinite(stored) & (stored >= 0) & ((stored == 0) | (ids < settings["vocabulary"]))
    good &= (ids >= 0) & (ids < 1 << 16)
    if not good.all():
        row = rows[int(np.flatnonzero(~good.all(axis=1))[0])]
        raise InputError(
            f"passage {passages[row].id!r} (row {row}) has a weight that is negative or not finite "
            f"in float16, or a token id beyond the vocabulary of {settings['vocabulary']:,}; check "
            "the encoder"
        )
    return np.concatenate([ids.astype(np.uint16), stored.view(np.uint16)], axis=1)
