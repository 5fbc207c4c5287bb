"""SiDR's index: every passage as the set of its tokens, searched with weights over the vocabulary.

Made without a network, at the speed of the tokenizer, and small: 21 million passages of 100 words
take 3.4 to 3.8 GB (see `jaxrag.retrieval.sidr.token_rows`; ``python -m benchmarks.bag_of_tokens``
prints it for a text at hand). On one CPU device the search reads the files where they are mapped:
there is no copy in memory. Other devices, and several, hold a copy each of their share.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from jaxrag.core.hashing import canonical
from jaxrag.retrieval.corpus.builds import build_shards, check_sizes
from jaxrag.retrieval.corpus.manifest import File, Manifest, open_manifest
from jaxrag.retrieval.sidr.bag_search import BagSearch, check_weights
from jaxrag.retrieval.sidr.bag_tokenizer import BagTokenizer
from jaxrag.retrieval.sidr.token_rows import MOST_ROWS, TokenFile, tile_size, write_tokens
from jaxrag.types import InputError, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

KIND = "bag_of_tokens"
_CHUNK = 4096  # passages tokenised at a time


@dataclasses.dataclass(frozen=True)
class BagOfTokens:
    """The token sets of a corpus; made by :meth:`open`."""

    directory: Path
    manifest: Manifest
    files: tuple[TokenFile, ...]
    vocabulary: int
    searcher: BagSearch

    @classmethod
    def open(
        cls,
        directory: str | Path,
        passages: Passages,
        tokenizer: BagTokenizer,
        *,
        devices: Sequence[Any] | None = None,
        verify: bool | None = None,
    ) -> BagOfTokens:
        """Opens what `build_bag_of_tokens` wrote.

        Args:
          directory: where it lies.
          passages: the corpus it was made from.
          tokenizer: what it was made with.
          devices: JAX devices that search, by default all of this process.
          verify: whether to read everything and compare hashes; None does so up to 1 GiB. Sizes
            are always compared.

        Raises:
          InputError: no index there, or it is incomplete, damaged, or made from something else.
        """
        directory = Path(directory).absolute()
        manifest = open_manifest(directory, KIND, _source(passages, tokenizer), verify=verify)
        files = tuple(_files(directory, manifest))
        searcher = BagSearch.of(files, devices)
        return cls(directory, manifest, files, tokenizer.vocabulary, searcher)

    def __len__(self) -> int:
        return self.manifest.settings["passages"]["count"]

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines results: tokenizer, passages, content."""
        settings = self.manifest.settings
        return canonical(
            {
                "bag_of_tokens": settings["tokenizer"],
                "passages": settings["passages"]["identity"],
                "content": self.manifest.content,
            }
        )

    @property
    def bytes(self) -> int:
        """Bytes on disk."""
        return sum(file.bytes for file in self.manifest.files)

    def tokens(self, rows: Sequence[int] | np.ndarray) -> list[np.ndarray]:
        """The ids of some rows' passages, in the given order: ascending, each once, uint16.

        Raises:
          InputError: a row that is none of the corpus.
        """
        rows = np.asarray(rows, np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise InputError(
                f"rows {rows.min()} to {rows.max()} were asked for, but {self.directory} holds "
                f"rows 0 to {len(self) - 1}"
            )
        return [
            self._tokens(*divmod(int(row), self.manifest.settings["shard_rows"])) for row in rows
        ]

    def _tokens(self, file: int, row: int) -> np.ndarray:
        (columns,) = np.nonzero(self.files[file].order == row)
        ids = self.files[file].tokens(columns)[0]
        return ids[ids < self.vocabulary]

    def search(self, queries: Float[np.ndarray, "q v"], k: int) -> list[Ranking]:
        """The ``k`` best passages of each query (all of them where ``k`` exceeds the corpus).

        A score is the sum of the query's weights of the passage's tokens: SiDR's beta search. Sums
        are in float64, in the order of token ids; passages are ordered by them, equal ones by row.
        A query's ranking depends on no other query.

        Raises:
          InputError: queries of the wrong shape, not finite or negative, or ``k`` below 1.
        """
        queries = check_weights(queries, k, self.vocabulary)
        return self.searcher.search(queries, min(k, len(self)))


def build_bag_of_tokens(
    passages: Passages,
    tokenizer: BagTokenizer,
    directory: str | Path,
    *,
    shard_rows: int = MOST_ROWS,
) -> BagOfTokens:
    """Tokenises a corpus into an index on disk, or finishes one that was interrupted.

    A file is written at once when its rows are tokenised, so that an interruption loses one file's
    work at most, 15 seconds or so. Files that are missing or damaged are made anew; the files of a
    resumed build are those of one that never stopped.

    Args:
      passages: the corpus.
      tokenizer: makes the sets.
      directory: made if need be.
      shard_rows: passages of one file, at most 65,536.

    Raises:
      InputError: an empty corpus, a directory that holds another index, or a full disk.
    """
    check_sizes(len(passages), shard_rows)
    if shard_rows > MOST_ROWS:
        raise InputError(f"shard_rows is {shard_rows:,}; a file holds at most {MOST_ROWS:,} rows")
    directory = Path(directory).absolute()
    tile = tile_size(min(shard_rows, len(passages)))
    settings = _source(passages, tokenizer) | {"shard_rows": shard_rows, "tile": tile}
    build_shards(
        directory,
        settings,
        partial(_write, passages, tokenizer, tile),
        kind=KIND,
        stem="tokens",
        row_bytes=2 * tokenizer.max_length,
        label="tokenising passages",
    )
    return BagOfTokens.open(directory, passages, tokenizer, verify=False)


def _source(passages: Passages, tokenizer: BagTokenizer) -> dict[str, Any]:
    return {
        "tokenizer": json.loads(tokenizer.identity),
        "passages": {"identity": passages.identity, "count": len(passages)},
    }


def _write(
    passages: Passages,
    tokenizer: BagTokenizer,
    tile: int,
    path: Path,
    rows: range,
    advance: Callable[[int], None],
) -> File:
    bags: list[np.ndarray] = []
    for start in range(rows.start, rows.stop, _CHUNK):
        chunk = range(start, min(start + _CHUNK, rows.stop))
        bags += tokenizer.tokens(passages.get(chunk))
        advance(len(chunk))
    return write_tokens(path, bags, tile)


def _files(directory: Path, manifest: Manifest) -> list[TokenFile]:
    count, shard_rows = manifest.settings["passages"]["count"], manifest.settings["shard_rows"]
    found = []
    for shard, file in enumerate(sorted(manifest.files)):
        array = np.load(directory / file.name, mmap_mode="r", allow_pickle=False).view(np.ndarray)
        first = shard * shard_rows
        found.append(TokenFile(array, first, min(shard_rows, count - first)))
    return found
