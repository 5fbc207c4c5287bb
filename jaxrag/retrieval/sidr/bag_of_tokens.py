"""SiDR's index: every passage as the set of its tokens, searched with weights over the vocabulary.

Built without a network, at the speed of the tokenizer: 21 million passages of 100 words take 3.4 to
3.8 GB. On one CPU device the search reads the memory-mapped files without a copy; other devices,
and several, hold a copy of their shard.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from tokenizers import Tokenizer

from jaxrag.core.hashing import canonical, digest
from jaxrag.functional.bag_of_tokens import LONGEST, PAD
from jaxrag.retrieval.corpus.builds import (
    WHOLE,
    Advance,
    BuildPart,
    ShardedRows,
    build_shards,
    check_rows,
)
from jaxrag.retrieval.corpus.manifest import File, Manifest, open_manifest, source_of
from jaxrag.retrieval.sidr.token_search import TokenSearch, check_weights
from jaxrag.retrieval.sidr.token_tiles import MOST_ROWS, TokenFile, tile_size, write_tokens
from jaxrag.types import InputError, Passage, Ranking

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from jaxrag.retrieval.corpus.passages import Passages

KIND = "bag_of_tokens"
_CHUNK = 4096  # passages tokenized at a time
_AT_ONCE = 2  # chunks


@dataclasses.dataclass(frozen=True)
class BagTokenizer:
    """Turns passages into sets of token ids, T(x) of SiDR; ids are counted from ``first``.

    A passage is read as "title [SEP] text", as in SiDR's released code, or as its text if it has no
    title; tokens below ``first``, special and unused ones, are left out.

    Attributes:
      identity: canonical JSON of all that determines the sets; not the network's weights, so one
        index serves a model throughout its training.
      max_length: tokens, special ones included, that a passage is cut to.
    """

    tokenizer: PreTrainedTokenizerFast
    identity: str
    first: int
    max_length: int

    @classmethod
    def of(
        cls, tokenizer: PreTrainedTokenizerFast, *, first: int = 999, max_length: int = 128
    ) -> BagTokenizer:
        """The token sets of a loaded tokenizer; InputError for invalid sizes, or over 16 bits."""
        size = len(tokenizer)
        if not 0 <= first < size:
            raise InputError(
                f"first is {first}, but the vocabulary has {size} tokens; give the id of the "
                "first token of a word"
            )
        if size - first > PAD:
            raise InputError(
                f"the vocabulary has {size - first:,} tokens from {first} on, but ids are stored "
                f"in 16 bits, which number {PAD:,}; bags of tokens are for vocabularies such as "
                "BERT's"
            )
        if not 3 <= max_length <= LONGEST:
            raise InputError(f"max_length is {max_length}; 3 to {LONGEST} tokens are possible")
        definition: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
        del definition["truncation"], definition["padding"]  # those of the last call
        settings = {
            "tokenizer": digest(canonical(definition)),
            "separator": tokenizer.sep_token or "",
            "first": first,
            "max_length": max_length,
        }
        return cls(tokenizer, canonical({"bag": settings}), first, max_length)

    @property
    def vocabulary(self) -> int:
        """Number of tokens that count."""
        return len(self.tokenizer) - self.first

    def tokens(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        """Each passage's ids, less ``first``: ascending, each once, uint16."""
        if not passages:
            return []
        encodings = self._fast.encode_batch_fast([self._text(passage) for passage in passages])
        return self._bags([encoding.ids for encoding in encodings])

    @cached_property
    def _fast(self) -> Tokenizer:
        """The library's tokenizer, a copy of its own that threads can use at the same time."""
        fast = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        fast.enable_truncation(self.max_length, direction=self.tokenizer.truncation_side)
        fast.no_padding()
        return fast

    def _text(self, passage: Passage) -> str:
        if not passage.title:
            return passage.text
        return f"{passage.title} {self.tokenizer.sep_token or ''} {passage.text}"

    def _bags(self, ids: Sequence[Sequence[int]]) -> list[np.ndarray]:
        lengths = [len(some) for some in ids]
        flat = np.fromiter(itertools.chain.from_iterable(ids), np.int64, sum(lengths))
        row = np.repeat(np.arange(len(ids)), lengths)[flat >= self.first]
        keys = np.sort((row << 16) + flat[flat >= self.first] - self.first)  # by row, then id
        keys = keys[np.diff(keys, prepend=-1) > 0]
        cuts = np.searchsorted(keys, np.arange(1, len(ids)) << 16)
        return np.split((keys & 0xFFFF).astype(np.uint16), cuts)


@dataclasses.dataclass(frozen=True)
class BagOfTokens:
    """The token sets of a corpus; made by `open`."""

    identity: str
    directory: Path
    manifest: Manifest
    files: tuple[TokenFile, ...]
    vocabulary: int
    searcher: TokenSearch

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
        """Opens the index that `write_bag_of_tokens` wrote with the same tokenizer and corpus.

        The JAX ``devices`` search, by default all of this process. ``verify`` compares the hashes
        of all files; None does so up to 1 GiB. InputError if it is missing, incomplete, damaged, or
        made from something else.
        """
        directory = Path(directory).absolute()
        source = source_of(passages, tokenizer=tokenizer.identity)
        manifest = open_manifest(directory, KIND, source, verify=verify)
        count, shard_rows = len(passages), manifest.settings["shard_rows"]
        files = tuple(
            TokenFile(array, i * shard_rows, min(shard_rows, count - i * shard_rows))
            for i, array in enumerate(ShardedRows.open(directory, manifest).files)
        )
        searcher = TokenSearch.make(files, devices)
        identity = {
            "bag_of_tokens": source["tokenizer"],
            "passages": passages.identity,
            "content": manifest.content,
        }
        return cls(canonical(identity), directory, manifest, files, tokenizer.vocabulary, searcher)

    def __len__(self) -> int:
        return self.manifest.settings["passages"]["count"]

    def tokens(self, rows: Sequence[int] | np.ndarray) -> list[np.ndarray]:
        """Token ids of the given rows' passages, in the given order: ascending, uint16."""
        shard_rows = self.manifest.settings["shard_rows"]
        numbers = check_rows(rows, len(self), self.directory).tolist()
        return [self._tokens(*divmod(row, shard_rows)) for row in numbers]

    def _tokens(self, file: int, row: int) -> np.ndarray:
        (columns,) = np.nonzero(self.files[file].order == row)
        ids = self.files[file].tokens(columns)[:, 0]
        return ids[ids < self.vocabulary]

    def search(self, queries: Float[np.ndarray, "q v"], k: int) -> list[Ranking]:
        """The ``k`` best passages of each query (all of them where ``k`` exceeds the corpus).

        A score is the sum of the query's weights of the passage's tokens: SiDR's beta search. Sums
        are in float64, in the order of token ids; passages are ordered by them, equal ones by row.
        InputError for queries of the wrong shape, not finite or negative, or ``k`` below 1.
        """
        queries = check_weights(queries, k, self.vocabulary)
        return self.searcher.search(queries, min(k, len(self)))


def write_bag_of_tokens(
    passages: Passages,
    tokenizer: BagTokenizer,
    directory: str | Path,
    *,
    shard_rows: int = MOST_ROWS,
    part: BuildPart = WHOLE,
) -> None:
    """Tokenizes a corpus into an index on disk, or finishes an interrupted build.

    An interruption loses the work of one file at most, about 15 seconds. InputError for an empty
    corpus, more than 65,536 passages a file (``shard_rows``), a directory that holds another index,
    or a full disk.
    """
    if shard_rows > MOST_ROWS:
        raise InputError(f"shard_rows is {shard_rows:,}; a file holds at most {MOST_ROWS:,} rows")
    tile = tile_size(min(shard_rows, len(passages)))

    def write(files: Sequence[tuple[Path, range]], advance: Advance) -> Generator[File]:
        # The tokenizer uses all cores; while one chunk is turned into arrays, it has another.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for path, rows in files:
                bags: list[np.ndarray] = []
                chunks = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
                for some in pool.map(lambda chunk: tokenizer.tokens(passages.get(chunk)), chunks):
                    bags += some
                    advance(len(some))
                yield write_tokens(path, bags, tile)

    source = source_of(passages, tokenizer=tokenizer.identity)
    build_shards(
        Path(directory).absolute(),
        source | {"shard_rows": shard_rows, "tile": tile},
        write,
        kind=KIND,
        stem="tokens",
        row_bytes=2 * tokenizer.max_length,
        label="tokenizing passages",
        part=part,
    )
