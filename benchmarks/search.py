"""Search speed: exact against faiss's IndexFlatIP, ScaNN against IVF-PQ, BM25 against bm25s.

    python -m benchmarks.search [rows]

100,000 x 384 vectors, k = 10, everything on all cores, timed in turns within one process so that
a busy machine slows all of them alike. Ours is timed through ``search``, with its float64 scores
and Python rankings; faiss through its array interface.

The vectors are synthetic: Gaussian with the covariance spectrum measured on 3,000 Wikipedia
passages in all-MiniLM-L6-v2, articles of 40 passages on average (geometric; cosine 0.65 between
them), queries with a cosine of 0.75 to some passage. Recall depends on the data: read it as a
comparison.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle OpenMP threads would burn XLA's cores

import dataclasses
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import bm25
from benchmarks.machine import medians
from jaxrag.retrieval.dense.exact import ExactIndex
from jaxrag.retrieval.dense.matrix import write_matrix
from jaxrag.retrieval.dense.scann.index import ScannIndex
from jaxrag.types import Passage, Ranking

K = 10
BATCH = 512
DIMENSION = 384
# share of the variance by rank of the principal component, all-MiniLM-L6-v2
RANKS = (0, 1, 2, 4, 9, 19, 49, 99, 149, 199, 249, 299, 349, 383)
SHARES = (
    *(2.96e-2, 2.68e-2, 2.31e-2, 1.81e-2, 1.23e-2, 9.05e-3, 5.69e-3),
    *(3.25e-3, 2.01e-3, 1.21e-3, 6.01e-4, 2.22e-4, 8.80e-5, 4e-5),
)


class Numbered:
    """A corpus whose passages are row numbers."""

    identity = "synthetic"

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def get(self, rows: Sequence[int]) -> list[Passage]:
        """Passages whose ids and titles are ``rows``."""
        return [Passage(str(row), str(row), "") for row in rows]


class Given:
    """An encoder that returns given vectors."""

    identity = '{"encoder":"synthetic"}'
    dimension = DIMENSION

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def embed_passages(self, passages: Sequence[Passage]) -> np.ndarray:
        """The given vectors of the passages."""
        return self.vectors[[int(passage.id) for passage in passages]]

    def stream_passages(self, passages: Iterable[Passage]) -> Iterator[np.ndarray]:
        """The same, 10,000 at a time."""
        passages = iter(passages)
        return map(self.embed_passages, iter(lambda: [*itertools.islice(passages, 10_000)], []))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Queries with a cosine of 0.75 to the passages of the given titles."""
        rows = [int(text) for text in texts]
        noise = np.random.default_rng(rows).standard_normal((len(rows), DIMENSION), np.float32)
        return unit(0.75 * self.vectors[rows] + 0.66 * unit(noise * spectrum()))


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def spectrum() -> np.ndarray:
    """Standard deviations of the principal components."""
    return np.exp(np.interp(np.arange(DIMENSION), RANKS, np.log(SHARES)) / 2).astype(np.float32)


def synthetic(rows: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    scale = spectrum()

    def draw(count: int) -> np.ndarray:
        return unit(rng.standard_normal((count, DIMENSION), np.float32) * scale)

    of_passage = np.repeat(np.arange(rows), rng.geometric(1 / 40, rows))[:rows]
    articles = draw(of_passage[-1] + 1)[of_passage]
    passages = unit(np.sqrt(0.65) * articles + np.sqrt(0.35) * draw(rows))
    passages = passages[rng.permutation(rows)]
    asked = passages[rng.choice(rows, queries, replace=False)]
    return passages, unit(0.75 * asked + 0.66 * draw(queries))


def processor_time(
    contestants: dict[str, Callable[[], object]], turns: int = 40
) -> dict[str, float]:
    """Least seconds of processor time that each function takes of this thread, run in turns.

    Functions that compute in one thread compare by it on a busy machine too.
    """
    seconds = {name: [] for name in contestants}
    for _ in range(turns):
        for name, run in contestants.items():
            start = time.thread_time()
            run()
            seconds[name].append(time.thread_time() - start)
    return {name: min(times) for name, times in seconds.items()}


def recall(found: Sequence[Sequence[int]], truth: Sequence[Ranking]) -> float:
    hits = [len({*map(int, ids)} & {*best.ids}) for ids, best in zip(found, truth, strict=True)]
    return sum(hits) / (K * len(hits))


def compare_exact(faiss, exact: ExactIndex, passages: np.ndarray, queries: np.ndarray) -> None:
    flat = faiss.IndexFlatIP(DIMENSION)
    flat.add(passages)
    singles = [queries[i : i + 1] for i in range(32)]
    seconds = medians(
        {
            "ours, batch": lambda: exact.search(queries, K),
            "faiss, batch": lambda: flat.search(queries, K),
            "ours, single": lambda: [exact.search(q, K) for q in singles],
            "faiss, single": lambda: [flat.search(q, K) for q in singles],
        }
    )
    for kind, count, target in (("batch", len(queries), 0.95), ("single", len(singles), 1.8)):
        ours, theirs = (seconds[f"{who}, {kind}"] / count for who in ("ours", "faiss"))
        print(
            f"exact, {kind:6}: ours {1 / ours:8,.0f} q/s ({1e3 * ours:6.2f} ms), faiss flat "
            f"{1 / theirs:8,.0f} q/s ({1e3 * theirs:6.2f} ms): {theirs / ours:.2f}x "
            f"(target {target}x)",
            flush=True,
        )


def fastest_at(faiss, index, queries: np.ndarray, truth: list[Ranking], wanted: float):
    """Sets the fewest probes that reach the recall; returns them and the recall."""
    reached = 0.0
    probes = 1
    inner = faiss.extract_index_ivf(index)
    while reached < wanted and probes < inner.nlist:
        probes = min(inner.nlist, probes + max(1, probes // 8))
        inner.nprobe = probes
        reached = recall(index.search(queries, K)[1].tolist(), truth)
    return probes, reached


def raw_scann(scann: ScannIndex, passages: np.ndarray):
    """ScaNN's own index with the same numbers of leaves and of candidates that it reorders.

    Its float32 vectors are in memory.
    """
    from scann.scann_ops.py import scann_ops_pybind

    settings = scann.settings
    leaves = settings.leaves or 1
    builder: Any = scann_ops_pybind.builder(passages, K, "dot_product")
    builder = builder.set_n_training_threads(os.cpu_count() or 1)
    builder = builder.tree(
        leaves,
        scann.leaves_to_search,
        training_sample_size=len(passages),
        min_partition_size=max(1, min(50, len(passages) // leaves // 4)),
        spherical=True,
    )
    builder = builder.score_ah(
        settings.block,
        anisotropic_quantization_threshold=settings.anisotropy,
        training_sample_size=len(passages),
    )
    return builder.reorder(settings.reorder).build()


def compare_raw(scann: ScannIndex, passages: np.ndarray, queries, truth: list[Ranking]) -> None:
    """Ours against ScaNN's own search, in batches and alone."""
    start = time.perf_counter()
    raw = raw_scann(scann, passages)
    print(f"raw ScaNN built in {time.perf_counter() - start:.1f} s", flush=True)
    singles = [queries[i : i + 1] for i in range(32)]
    seconds = medians(
        {
            "ours, batch": lambda: scann.search(queries, K),
            "raw, batch": lambda: raw.search_batched_parallel(queries, K),
            "ours, single": lambda: [scann.search(q, K) for q in singles],
            "raw, single": lambda: [raw.search(q[0], K) for q in singles],
        }
    )
    compare_processor_time(scann, raw, queries[: BATCH // 2])
    ours = recall([ranking.ids for ranking in scann.search(queries, K)], truth)
    theirs = recall(raw.search_batched_parallel(queries, K)[0].tolist(), truth)
    print(
        f"ScaNN, {scann.leaves_to_search} of {scann.settings.leaves} leaves: recall@{K} ours "
        f"{ours:.4f} (target 0.95), raw {theirs:.4f}"
    )
    batch, single = ("ours, batch", "raw, batch"), ("ours, single", "raw, single")
    ours, theirs = (seconds[name] / len(queries) for name in batch)
    print(
        f"ScaNN, batch : ours {1 / ours:8,.0f} q/s, raw {1 / theirs:8,.0f} q/s: "
        f"{ours / theirs - 1:+.0%} time (target at most +10%)"
    )
    ours, theirs = (1e3 * seconds[name] / len(singles) for name in single)
    print(
        f"ScaNN, single: ours {ours:.2f} ms, raw {theirs:.2f} ms: {ours - theirs:+.2f} ms "
        "(target at most +1)"
    )


def compare_processor_time(scann: ScannIndex, raw, block: np.ndarray) -> None:
    """Ours against ScaNN's own search of a block, by processor time.

    Few leaves suffice for the synthetic vectors. Those of texts need about a tenth of the leaves
    and more (docs/indexes.md), where ScaNN itself takes longer and ours adds as much as before.
    """
    leaves = scann.settings.leaves or 1
    for count in dict.fromkeys((scann.leaves_to_search, max(1, leaves // 10))):
        index = dataclasses.replace(scann, leaves_to_search=count)
        reorder = scann.settings.reorder
        cores = processor_time(
            {
                "ours": lambda: index.search(block, K),  # noqa: B023
                "raw": lambda: raw.searcher.search_batched(block, K, reorder, count, True, 256),  # noqa: B023
            }
        )
        ours, theirs = (1e6 * cores[who] / len(block) for who in ("ours", "raw"))
        print(
            f"ScaNN, processor time a query, blocks of {len(block)}, {count} leaves: "
            f"ours {ours:.1f} us, raw {theirs:.1f} us: {ours / theirs - 1:+.0%}",
            flush=True,
        )


def compare_scann(faiss, scann: ScannIndex, passages, queries, truth: list[Ranking]) -> None:
    leaves = scann.settings.leaves
    found = recall([ranking.ids for ranking in scann.search(queries, K)], truth)
    print(
        f"ScaNN, {scann.leaves_to_search} of {leaves} leaves: recall@{K} {found:.4f} (target 0.98)"
    )
    index = faiss.index_factory(
        DIMENSION, f"IVF{leaves},PQ{DIMENSION // 2}x4fs,RFlat", faiss.METRIC_INNER_PRODUCT
    )
    start = time.perf_counter()
    index.train(passages)
    index.add(passages)
    print(f"faiss IVF-PQ built in {time.perf_counter() - start:.1f} s", flush=True)
    index.k_factor = scann.settings.reorder / K
    probes, reached = fastest_at(faiss, index, queries, truth, found)
    single = queries[:1]
    seconds = medians(
        {
            "ours": lambda: scann.search(queries, K),
            "faiss": lambda: index.search(queries, K),
            "ours, single": lambda: [scann.search(single, K) for _ in range(100)],
            "faiss, single": lambda: [index.search(single, K) for _ in range(100)],
        }
    )
    ours, theirs = (seconds[who] / len(queries) for who in ("ours", "faiss"))
    print(
        f"ScaNN, batch : ours {1 / ours:8,.0f} q/s (target 10,000), faiss IVF-PQ {1 / theirs:8,.0f}"
        f" q/s at recall {reached:.4f} ({probes} probes): {theirs / ours:.2f}x"
    )
    ours, theirs = (seconds[f"{who}, single"] / 100 for who in ("ours", "faiss"))
    print(
        f"ScaNN, single: ours {1e3 * ours:.2f} ms, faiss {1e3 * theirs:.2f} ms: "
        f"{theirs / ours:.2f}x"
    )


def main() -> None:
    try:
        import faiss  # pyright: ignore[reportMissingImports]
    except ImportError:
        sys.exit("faiss, the peer, is missing: pip install faiss-cpu (extra 'bench')")
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    threads = os.cpu_count() or 1
    faiss.omp_set_num_threads(threads)
    print(f"{rows:,} x {DIMENSION}, k = {K}, batches of {BATCH}, {threads} cores")
    passages, queries = synthetic(rows, BATCH)
    with tempfile.TemporaryDirectory() as directory:
        corpus, encoder = Numbered(rows), Given(passages)
        write_matrix(corpus, encoder, directory)  # pyright: ignore[reportArgumentType]
        exact = ExactIndex.open(directory, encoder, corpus)  # pyright: ignore[reportArgumentType]
        stored = exact.vectors(range(rows))
        compare_exact(faiss, exact, stored, queries)
        truth = exact.search(queries, K)
        start = time.perf_counter()
        scann = ScannIndex.open(directory, encoder, corpus)  # pyright: ignore[reportArgumentType]
        print(f"ScaNN built in {time.perf_counter() - start:.1f} s", flush=True)
        compare_raw(scann, stored, queries, truth)
        compare_scann(faiss, scann, stored, queries, truth)

    bm25.run(2 * rows)


if __name__ == "__main__":
    main()
