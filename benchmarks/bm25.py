"""BM25 against bm25s with numba: milliseconds a query, and memory while the index is built.

    python -m benchmarks.bm25 [passages]

Passages of 60 words, frequencies by Zipf's law (exponent 1.07, 400,000 words); queries of 6 words
whose ranks are drawn log-uniformly from 50 to 50,000. Both search the same index files, 64 queries
at once on all cores and one at a time, and their 10 best scores are compared.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.machine import medians
from jaxrag.retrieval.bm25.index import Bm25, Bm25Index
from jaxrag.types import Passage

K = 10
QUERIES = 64
WORDS = 400_000
FULL = 21_015_324


class Drawn:
    """Passages of 60 words by Zipf's law; a passage depends on its row only."""

    identity = "zipf"

    def __init__(self, count: int) -> None:
        self.count = count
        shares = np.arange(1, WORDS + 1) ** -1.07
        self.ends = np.cumsum(shares / shares.sum())

    def __len__(self) -> int:
        return self.count

    def get(self, rows: Sequence[int]) -> list[Passage]:
        """The passages of consecutive rows."""
        draws = np.random.default_rng(rows[0]).random((len(rows), 60))
        words = np.searchsorted(self.ends, draws).tolist()
        texts = (" ".join(f"w{word}" for word in line) for line in words)
        return [Passage(str(row), "", text) for row, text in zip(rows, texts, strict=True)]


def queries() -> list[str]:
    ranks = np.exp(np.random.default_rng(0).uniform(np.log(50), np.log(50_000), (QUERIES, 6)))
    return [" ".join(f"w{int(rank)}" for rank in line) for line in ranks]


def peak() -> float:
    """Peak resident memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def compare(index: Bm25Index, directory: Path) -> None:
    """Prints milliseconds a query of ours and of bm25s with numba, and the ratios."""
    import bm25s

    numba = bm25s.BM25.load(directory / "bm25", mmap=True, show_progress=False)
    numba.backend = "numba"
    texts = queries()
    cores = os.cpu_count() or 1

    def theirs(texts: list[str], threads: int) -> np.ndarray:
        words = bm25s.tokenize(texts, stopwords=[], return_ids=False, show_progress=False)
        found = numba.retrieve(
            words, k=K, n_threads=threads, backend_selection="numba", show_progress=False
        )
        return found[1]

    ours = index.search_texts(texts, K)
    np.testing.assert_allclose([ranking.scores for ranking in ours], theirs(texts, 1), rtol=1e-5)
    seconds = medians(
        {
            "ours, batch": lambda: index.search_texts(texts, K),
            "bm25s, batch": lambda: theirs(texts, cores),
            "ours, single": lambda: [index.search_texts([text], K) for text in texts[:16]],
            "bm25s, single": lambda: [theirs([text], 1) for text in texts[:16]],
        }
    )
    for kind, count in (("batch", QUERIES), ("single", 16)):
        mine, other = (1e3 * seconds[f"{who}, {kind}"] / count for who in ("ours", "bm25s"))
        print(
            f"BM25, {kind:6}: ours {mine:6.2f} ms/query, bm25s with numba {other:6.2f} ms/query: "
            f"{other / mine:.2f}x (target 0.95x); at {FULL:,} passages by proportion "
            f"{mine * FULL / len(index.passages):,.0f} ms",
            flush=True,
        )


def run(count: int) -> None:
    """Builds the index of ``count`` passages and compares searches."""
    passages = Drawn(count)
    before, start = peak(), time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        settings = Bm25(stopwords="none", stemmer="none")
        index = Bm25Index.open(directory, passages, settings=settings)  # pyright: ignore[reportArgumentType]
        print(
            f"BM25 of {count:,} passages: built in {time.perf_counter() - start:.0f} s, memory "
            f"{before:.2f} GB before and {peak():.2f} GB at most, {postings(index):,} postings, "
            f"{len(index.searcher.vocab_dict):,} words",
            flush=True,
        )
        compare(index, Path(directory))


def postings(index: Bm25Index) -> int:
    return int(index.searcher.scores["indptr"][-1])


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
