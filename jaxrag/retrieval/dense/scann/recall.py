"""How many leaves to search: the fewest that find enough of the true neighbours.

No questions are known when an index is built. Titles of passages stand for them: they are as short,
and their neighbours are about as far away. Whole passages and their first sentences are too easy:
with all-MiniLM-L6-v2 over 27,218 Wikipedia passages, the leaves that find 0.95 of the 10 best of
first sentences find 0.91 to 0.96 of those of questions of eight data sets; the leaves of titles
find 0.96 to 0.99.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxrag.core.durable_files import write_text
from jaxrag.core.progress import progress
from jaxrag.functional import topk
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.matrix import Matrix, Metric
from jaxrag.retrieval.retriever import TextEncoder
from jaxrag.types import InputError, Passage

QUERIES, NEIGHBOURS = 200, 10
NAME = "recall.json"
_WORDS = 8  # of a passage without a title
_CHUNK = 1 << 24  # numbers of the matrix in float32 at once: 64 MiB

Search = Callable[[Float[np.ndarray, "q d"], int], list[tuple[int, ...]]]
"""The best rows of each query with so many leaves searched."""


class Recall(NamedTuple):
    """Recall@10 of an index by number of leaves searched, on titles of its passages."""

    of_leaves: Mapping[int, float]

    def leaves(self, target: float) -> int | None:
        """The fewest leaves that were measured to reach a recall; None if none was."""
        return min((n for n, recall in self.of_leaves.items() if recall >= target), default=None)

    @classmethod
    def read(cls, folder: Path) -> Recall:
        """The recall that was measured of the index in a folder; empty if none was."""
        path = folder / NAME
        try:
            document = json.loads(path.read_bytes())
            return cls({int(n): float(recall) for n, recall in document["recall"].items()})
        except FileNotFoundError:
            return cls({})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is damaged ({error!r}); delete it and build again") from None

    def write(self, folder: Path) -> None:
        """Keeps the recall beside the index."""
        recall = {str(n): self.of_leaves[n] for n in sorted(self.of_leaves)}
        document = {"queries": QUERIES, "neighbours": NEIGHBOURS, "recall": recall}
        write_text(folder / NAME, json.dumps(document, indent=1))


def measure(
    matrix: Matrix,
    encoder: TextEncoder,
    passages: Passages,
    search: Search,
    *,
    metric: Metric,
    leaves: int,
    target: float,
    known: Recall,
) -> Recall:
    """Measures recall until the fewest leaves that reach ``target`` are known.

    The number of leaves is doubled until it reaches the target, then halved in between.
    """
    drawn = np.random.default_rng(0).choice(len(passages), min(QUERIES, len(passages)), False)
    queries = encoder.embed([_query(passage) for passage in passages.get(np.sort(drawn).tolist())])
    truth = [{*rows} for rows in exact(matrix, queries, NEIGHBOURS, metric=metric).tolist()]
    recall = dict(known.of_leaves)

    def reaches(number: int) -> bool:
        found = search(queries, number)
        hits = [len(best & {*rows}) / len(best) for best, rows in zip(truth, found, strict=True)]
        recall[number] = float(np.mean(hits))
        return recall[number] >= target

    high = 1
    while not reaches(high) and high < leaves:
        high = min(2 * high, leaves)
    low = high // 2
    while high - low > max(1, high // 16):
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return Recall(recall)


def _query(passage: Passage) -> str:
    return passage.title or " ".join(passage.text.split()[:_WORDS])


def exact(
    matrix: Matrix, queries: Float[np.ndarray, "q d"], k: int, *, metric: Metric
) -> Int[np.ndarray, "q k"]:
    """The ``k`` best rows of each query in float32, chunk by chunk of the rows."""
    k, step = min(k, len(matrix)), max(1, _CHUNK // matrix.dimension)
    best = None
    with progress(len(matrix), "exact search, to measure recall") as advance:
        for start in range(0, len(matrix), step):
            rows = matrix[start : start + step]
            padded = np.pad(rows, ((0, step - len(rows)), (0, 0)))
            found = _chunk(padded, queries, len(rows), k=min(k, step), l2=metric == "l2")
            scores, where = np.asarray(found.scores), np.asarray(found.rows) + start
            if best is not None:
                scores, where = (
                    np.hstack(pair) for pair in zip(best, (scores, where), strict=True)
                )
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            best = [np.take_along_axis(a, order, axis=1) for a in (scores, where)]
            advance(len(rows))
    assert best is not None
    return best[1]


@jax.jit(static_argnames=("k", "l2"))
def _chunk(
    rows: Float[Array, "n d"], queries: Float[Array, "q d"], count: int, *, k: int, l2: bool
) -> topk.TopK:
    """The best of the first ``count`` rows."""
    rows = rows.astype(jnp.float32)
    scores = queries @ rows.T - (0.5 * jnp.sum(rows**2, axis=1) if l2 else 0.0)
    scores = jnp.where(jnp.arange(len(rows)) < count, scores, -jnp.inf)
    return jax.lax.map(lambda row: topk.topk(row, k), scores)
