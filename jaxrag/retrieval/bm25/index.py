"""BM25: passages ranked by the words that they share with the query.

Robertson and Zaragoza (2009), in Lucene's variant. The library bm25s (Lù 2024) computes every
word's score in every passage beforehand, so that a search sums a few columns of a sparse matrix.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.core.checks import check_limits
from jaxrag.core.hashing import canonical
from jaxrag.retrieval.bm25.building import write_index
from jaxrag.retrieval.bm25.words import RULES, Bm25Settings, bm25s, split_words, version
from jaxrag.retrieval.corpus.builds import BuildPart, build_folder
from jaxrag.retrieval.corpus.manifest import Manifest, open_manifest, state_of
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.settings import Footprint, IndexStatus, index_directory, refuse_parts
from jaxrag.types import Ranking

KIND = "bm25"
_FOLDER = "bm25"
_BLOCK = 128  # rows of a block whose largest score stands for them
_BUFFERS = 1 << 28  # scores of all threads: 1 GiB
_FIXED = {"variant": "lucene", "title": True}  # settings of earlier versions, whose indexes stay
_SAMPLE = 1000  # passages by which the size is estimated
_POSTING = 8  # bytes of a posting: a passage and its score


@dataclasses.dataclass(frozen=True)
class Bm25(Bm25Settings):
    """BM25 as the index of a run, see `Bm25Settings`."""

    name = "BM25"
    gives_vectors = False
    checkpoints = ()

    def require(self) -> None:
        """Raises InputError if the library bm25s is not installed."""
        bm25s()

    def open(self, passages: Passages, cache: Path) -> Bm25Index:
        """Opens the index, building it on first use."""
        return Bm25Index.open(self._directory(passages, cache), passages, settings=self)

    def build(self, passages: Passages, cache: Path, part: BuildPart) -> None:
        """Builds the index; not in parts."""
        refuse_parts(self.name, part)
        self.open(passages, cache)

    def footprint(self, passages: Passages) -> Footprint:
        """8 bytes for each different word of each passage; a search reads those of its words.

        The memory is that of the scores of the threads that search a batch.
        """
        every = -(-len(passages) // _SAMPLE) or 1
        sample = passages.get(range(0, len(passages), every))
        words = split_words([f"{passage.title} {passage.text}" for passage in sample], self)
        postings = sum(len({*some}) for some in words) * len(passages) / max(len(sample), 1)
        memory = 4 * len(passages) * _threads(len(passages))
        note = f"by the words of {len(sample):,} passages; the vocabulary comes on top"
        return Footprint(round(_POSTING * postings), memory, note)

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the index is built."""
        directory = self._directory(passages, cache)
        return IndexStatus(directory, state_of(directory / _FOLDER, KIND))

    def _directory(self, passages: Passages, cache: Path) -> Path:
        return index_directory(cache, KIND, canonical(_source(passages, self)))


_DEFAULTS = Bm25()


@dataclasses.dataclass(frozen=True)
class Bm25Index:
    """An index of a corpus's words; its arrays are memory maps."""

    identity: str
    passages: Passages
    settings: Bm25
    manifest: Manifest
    searcher: Any

    @classmethod
    def open(
        cls, directory: str | Path, passages: Passages, *, settings: Bm25 = _DEFAULTS
    ) -> Bm25Index:
        """Opens the index of a corpus, after building it unless an undamaged one is there.

        The same corpus gives the same files, those that bm25s makes. For memory see `write_index`;
        the disk holds 4 bytes more for each word while it builds. Hashes of all files are compared
        up to 1 GiB. InputError for no words to index, an invalid setting, an index of something
        else in the directory, bm25s or PyStemmer not installed, or a full disk.
        """
        folder, source = Path(directory).absolute() / _FOLDER, _source(passages, settings)
        build_folder(folder, KIND, source, functools.partial(write_index, passages, settings))
        manifest = open_manifest(folder, KIND, source, verify=False)
        searcher = bm25s().BM25.load(folder, mmap=True, show_progress=False)
        for name in ("data", "indices", "indptr"):
            searcher.scores[name] = searcher.scores[name].view(np.ndarray)
        identity = canonical({"bm25": manifest.settings, "content": manifest.content})
        return cls(identity, passages, settings, manifest, searcher)

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        """The ``k`` best passages of each query, of those that share a word with it; maybe none.

        A word counts as often as the query has it. InputError if ``k`` is below 1.
        """
        check_limits(k=k)
        vocabulary = self.searcher.vocab_dict
        queries = [
            [vocabulary[word] for word in words if word in vocabulary]
            for words in split_words(texts, self.settings)
        ]
        threads = max(1, min(_threads(len(self.passages)), len(queries)))
        if threads == 1:
            return self._search(queries, k)
        parts = [queries[i::threads] for i in range(threads)]
        with ThreadPoolExecutor(threads, "bm25") as pool:
            rankings = list(pool.map(self._search, parts, [k] * threads))
        return [rankings[i % threads][i // threads] for i in range(len(queries))]

    def _search(self, queries: Sequence[Sequence[int]], k: int) -> list[Ranking]:
        """The best passages of queries given by the numbers of their words."""
        parts = self.searcher.scores
        starts, scores = parts["indptr"], np.zeros(len(self.passages), np.float32)
        rankings = []
        for words in queries:
            scores.fill(0)
            for word in words:
                postings = slice(starts[word], starts[word + 1])
                np.add.at(scores, parts["indices"][postings], parts["data"][postings])
            rankings.append(_best(scores, k))
        return rankings


def _threads(passages: int) -> int:
    """Threads that search a batch, each with a score for every passage."""
    return max(1, min(os.cpu_count() or 1, _BUFFERS // max(passages, 1)))


def _best(scores: Float[np.ndarray, " n"], k: int) -> Ranking:
    """The ``k`` largest scores above 0; equal scores in the order of rows.

    Of the blocks of every m-th row, only those with one of the k largest maxima are compared.
    """
    k = min(k, len(scores))
    m = len(scores) // _BLOCK
    maxima = np.concatenate([scores[: m * _BLOCK].reshape(_BLOCK, m).max(axis=0),
                             scores[m * _BLOCK :]])  # fmt: skip
    least = np.partition(maxima, -k)[-k] if k <= len(maxima) else 0.0
    blocks = np.flatnonzero(maxima >= least) if least > 0 else np.flatnonzero(maxima)
    rows = blocks[blocks < m] + m * np.arange(_BLOCK)[:, None]
    rows = np.sort(np.append(rows, blocks[blocks >= m] - m + m * _BLOCK))
    rows = rows[scores[rows] >= least] if least > 0 else rows[scores[rows] > 0]
    rows = rows[np.argsort(-scores[rows], kind="stable")][:k]
    return Ranking(tuple(rows.tolist()), tuple(scores[rows].tolist()))


def _source(passages: Passages, settings: Bm25) -> dict[str, Any]:
    """Sources of an index: corpus, settings, versions of the libraries."""
    packages = ("bm25s", "PyStemmer") if settings.stemmer != "none" else ("bm25s",)
    return {
        "settings": {**dataclasses.asdict(settings), **_FIXED, "rules": RULES},
        "passages": {"identity": passages.identity, "count": len(passages)},
        "libraries": {name: version(name) for name in packages},
    }
