"""ScaNN in shards over synthetic vectors: memory and time to build and to search, and recall.

    python -m benchmarks.scann_shards [rows] [shard_rows] [directory]

4,000,000 x 384 vectors in four shards, k = 10, distributed as in `benchmarks.search`. Building and
searching run in processes of their own, whose memory is measured apart: "own" is memory that the
process has allocated, without the pages of the memory-mapped matrix, which the system may drop. The
last lines scale the numbers to 21,015,324 x 768 in proportion to rows x dimensions, and the
assignment to leaves to rows x leaves x dimensions.

The vectors (``2 x 384`` bytes a row) are written to ``directory``, which is kept if it is given.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle OpenMP threads would burn XLA's cores

import itertools
import json
import logging
import multiprocessing
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.search import DIMENSION, Numbered, recall, spectrum, unit
from jaxrag.retrieval.dense.exact import ExactIndex
from jaxrag.retrieval.dense.matrix import write_matrix
from jaxrag.retrieval.dense.scann.index import ScannIndex
from jaxrag.retrieval.dense.scann.tree import ScannSettings
from jaxrag.types import Passage, Ranking

K, BATCH, ROUNDS, BLOCK = 10, 512, 5, 4096
TARGET_ROWS, TARGET_DIMENSION = 21_015_324, 768


class Synthetic:
    """An encoder of row numbers; vectors are drawn block by block from seeds."""

    dimension = DIMENSION

    def __init__(self, rows: int) -> None:
        self.identity = self.identity_of(rows)
        rng = np.random.default_rng(0)
        article = np.repeat(np.arange(rows, dtype=np.int32), rng.geometric(1 / 40, rows))[:rows]
        self.articles = self._draw(rng, int(article[-1]) + 1)
        self.article_of = article[rng.permutation(rows)]

    @staticmethod
    def identity_of(rows: int) -> str:
        """Canonical JSON of what determines the vectors."""
        return json.dumps({"encoder": f"synthetic {rows}"})

    def stream_passages(self, passages: Iterable[Passage]) -> Iterator[np.ndarray]:
        """Vectors of consecutive rows, some at a time."""
        passages = iter(passages)
        while some := [*itertools.islice(passages, 4 * BLOCK)]:
            yield self._rows(some)

    def _rows(self, passages: Sequence[Passage]) -> np.ndarray:
        rows = range(int(passages[0].id), int(passages[-1].id) + 1)
        blocks = range(rows.start // BLOCK, -(-rows.stop // BLOCK))
        drawn = np.concatenate([self._block(block) for block in blocks])
        return drawn[rows.start - blocks.start * BLOCK :][: len(rows)]

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Queries with a cosine of 0.75 to the passages of the given rows."""
        rows = [int(text) for text in texts]
        passages = np.stack([self._block(row // BLOCK)[row % BLOCK] for row in rows])
        return unit(0.75 * passages + 0.66 * self._draw(np.random.default_rng(rows), len(rows)))

    def _block(self, block: int) -> np.ndarray:
        article = self.articles[self.article_of[block * BLOCK : (block + 1) * BLOCK]]
        noise = self._draw(np.random.default_rng([1, block]), len(article))
        return unit(np.sqrt(0.65) * article + np.sqrt(0.35) * noise)

    @staticmethod
    def _draw(rng: np.random.Generator, count: int) -> np.ndarray:
        return unit(rng.standard_normal((count, DIMENSION), np.float32) * spectrum())


class Peak:
    """Largest memory of the process while the block runs, sampled; GB."""

    def __enter__(self) -> Peak:
        self.own = self.resident = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            status = Path("/proc/self/status").read_text()
            sizes = {
                name: int(kb) * 1024e-9 for name, kb in re.findall(r"(Rss\w+):\s+(\d+)", status)
            }
            self.own = max(self.own, sizes["RssAnon"])
            self.resident = max(self.resident, sum(sizes.values()))
            if self._stop.wait(0.02):
                return


class Nameless:
    """Stands for the encoder of the vectors on disk."""

    dimension = DIMENSION

    def __init__(self, rows: int) -> None:
        self.identity = Synthetic.identity_of(rows)


def generate(rows: int, directory: str) -> None:
    """Writes the matrix, and queries with their true neighbours."""
    encoder, corpus = Synthetic(rows), Numbered(rows)
    write_matrix(
        corpus,  # pyright: ignore[reportArgumentType]
        encoder,
        directory,
        shard_rows=32 * BLOCK,
    )
    drawn = np.random.default_rng(7).choice(rows, BATCH, replace=False)
    queries = encoder.embed([str(row) for row in drawn])
    exact = ExactIndex.open(directory, encoder, corpus, memory=1 << 30)  # pyright: ignore[reportArgumentType]
    truth = [ranking.ids for ranking in exact.search(queries, K)]
    np.savez(f"{directory}.queries.npz", queries=queries, truth=truth)


def build(rows: int, directory: str, *, settings: ScannSettings) -> None:
    """Trains and codes."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    encoder, corpus = Synthetic(rows), Numbered(rows)
    with Peak() as peak:
        start = time.perf_counter()
        index = ScannIndex.open(directory, encoder, corpus, settings=settings)  # pyright: ignore[reportArgumentType]
        seconds = time.perf_counter() - start
    print(f"built in {seconds:,.0f} s, {index.leaves_to_search} leaves searched")
    print(f"memory of the build: own {peak.own:.2f} GB, with mapped files {peak.resident:.2f} GB")


def search(rows: int, directory: str, *, settings: ScannSettings) -> None:
    """Opens the index, measures recall on other queries, and times it."""
    encoder, corpus = Nameless(rows), Numbered(rows)
    saved = np.load(f"{directory}.queries.npz")
    queries, truth = saved["queries"], saved["truth"]
    best = [Ranking(tuple(row), (0.0,) * K) for row in truth.tolist()]
    with Peak() as before:
        pass
    with Peak() as peak:
        start = time.perf_counter()
        index = ScannIndex.open(directory, encoder, corpus, settings=settings, verify=False)  # pyright: ignore[reportArgumentType]
        print(f"opened in {time.perf_counter() - start:.1f} s")
        found = recall([ranking.ids for ranking in index.search(queries, K)], best)
        batch = median(lambda: index.search(queries, K)) / BATCH
        singles = [queries[i : i + 1] for i in range(64)]
        single = median(lambda: [index.search(query, K) for query in singles]) / len(singles)
    with Peak() as after:
        pass
    print(
        f"{len(index.searchers.shards)} shards, {index.leaves_to_search} of "
        f"{index.settings.leaves} leaves: recall@{K} {found:.4f} on {BATCH} other queries (target "
        f"0.95)\nbatches of {BATCH}: {1 / batch:,.0f} q/s; single: {1e3 * single:.2f} ms\n"
        f"memory of the searcher: {after.own - before.own:.2f} GB, at most "
        f"{peak.own - before.own:.2f} GB while it is opened; with mapped files {peak.resident:.2f}"
    )
    scale = TARGET_ROWS * TARGET_DIMENSION / (rows * DIMENSION)
    print(
        f"{TARGET_ROWS:,} x {TARGET_DIMENSION} at the same share of leaves: searcher "
        f"{(after.own - before.own) * scale:.1f} GB, {1 / batch / scale:,.0f} q/s, single "
        f"{1e3 * single * scale:.0f} ms"
    )


def median(run: Callable[[], object]) -> float:
    """Median seconds of a function; the first turn warms up."""
    seconds = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[1:]))


def run(step: Callable[..., None], *arguments: object, **options: object) -> None:
    """Runs a step in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(
        target=step, args=arguments, kwargs=options
    )
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{step.__name__} failed")


def main() -> None:
    given = dict(enumerate(sys.argv[1:]))
    rows, shard_rows = int(given.get(0, 4_000_000)), int(given.get(1, 1_000_000))
    settings = ScannSettings(shard_rows=shard_rows)
    print(f"{rows:,} x {DIMENSION}, shards of {shard_rows:,}, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.get(2, f"{temporary}/index")
        for step in (generate, build, search):
            options = {} if step is generate else {"settings": settings}
            run(step, rows, directory, **options)


if __name__ == "__main__":
    main()
