"""Exact search of vectors that exceed their memory budget, read from disk slab by slab.

    python -m benchmarks.exact_slabs [rows] [budget in MB]

Rows of 384 float16 numbers (2,000,000: 1.5 GB), 512 queries, k = 10. Prints the memory that the
process adds while it searches (without pages of the mapped files, which the system may drop), the
seconds of a pass, and whether the rankings are those of a search with the rows in memory.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from benchmarks.search import DIMENSION, Given, Numbered, unit
from jaxrag.retrieval.dense.exact import ExactIndex
from jaxrag.retrieval.dense.matrix import write_matrix
from jaxrag.types import Passage

QUERIES, K = 512, 10


class Drawn(Given):
    """Vectors that are drawn as they are written; a vector depends on its row only."""

    def __init__(self) -> None:
        super().__init__(np.zeros((0, DIMENSION)))

    def embed_passages(self, passages: Sequence[Passage]) -> np.ndarray:
        """Vectors of consecutive rows."""
        rng = np.random.default_rng(int(passages[0].id))
        return unit(rng.standard_normal((len(passages), DIMENSION), np.float32))


class Peak:
    """The most anonymous memory of this process while the context lasts, and before it, in MB."""

    def __enter__(self) -> Peak:
        self.before = self.most = anonymous()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            self.most = max(self.most, anonymous())

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def anonymous() -> float:
    """Anonymous resident memory of this process in MB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1e3


def main() -> None:
    rows, budget = (
        int(number) for number in (*sys.argv[1:], *(2_000_000, 400)[len(sys.argv) - 1 :])
    )
    with tempfile.TemporaryDirectory() as directory:
        corpus, encoder = Numbered(rows), Drawn()
        write_matrix(corpus, encoder, directory)  # pyright: ignore[reportArgumentType]
        queries = encoder.embed_passages(corpus.get(range(rows, rows + QUERIES)))
        found = {}
        for memory in (budget * 1_000_000, rows * DIMENSION * 2 + (1 << 20)):
            with Peak() as opening:
                exact = ExactIndex.open(
                    directory,
                    encoder,
                    corpus,  # pyright: ignore[reportArgumentType]
                    memory=memory,
                    verify=False,
                )
                exact.search(queries[:1], K)  # compiles, and computes the norms
                exact.search(queries, K)
            start = time.perf_counter()
            found[memory] = exact.search(queries, K)
            seconds = time.perf_counter() - start
            size = rows * DIMENSION * 2 / 1e6
            print(
                f"{rows:,} x {DIMENSION}, {size:,.0f} MB, budget {memory / 1e6:,.0f} MB, slabs of "
                f"{exact.rows.slab:,} rows: memory {opening.before:,.0f} MB before and "
                f"{opening.most:,.0f} MB at most; {QUERIES} queries in {seconds:.2f} s "
                f"({size / seconds / 1e3:.2f} GB/s)",
                flush=True,
            )
            del exact
            jax.clear_caches()
        streamed, held = found.values()
        print(f"rankings equal: {streamed == held}")


if __name__ == "__main__":
    main()
