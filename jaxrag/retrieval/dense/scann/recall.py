"""How many leaves to search: the fewest that find enough of the true neighbours.

No questions are known when an index is built. Titles of passages stand for them: they are as short,
and their neighbours are about as far away. (With all-MiniLM-L6-v2 over 27,218 Wikipedia passages,
the leaves that find 0.95 of the 10 best of titles find 0.96 to 0.99 of those of questions of eight
data sets; the leaves of first sentences 0.91 to 0.96.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.core.durable_files import write_text
from jaxrag.core.json_text import parse_json
from jaxrag.retrieval.retriever import Retriever
from jaxrag.types import InputError

QUERIES, NEIGHBOURS = 200, 10
NAME = "recall.json"
_WORDS = 8  # of a passage without a title

Search = Callable[[Float[np.ndarray, "q d"], int], list[tuple[int, ...]]]
"""Maps queries and a number of searched leaves to the best rows of each query."""


class Recall(NamedTuple):
    """Recall@10 of an index by number of leaves searched, on titles of its passages."""

    of_leaves: Mapping[int, float]

    def leaves(self, target: float) -> int | None:
        """The fewest leaves whose measured recall reaches ``target``, or None."""
        return min((n for n, recall in self.of_leaves.items() if recall >= target), default=None)

    @classmethod
    def read(cls, folder: Path) -> Recall:
        """The recall measured for the index in a folder; empty if it was not measured."""
        path = folder / NAME
        try:
            document = parse_json(path.read_bytes())
            return cls({int(n): float(recall) for n, recall in document["recall"].items()})
        except FileNotFoundError:
            return cls({})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is damaged ({error!r}); delete it and build again") from None

    def write(self, folder: Path) -> None:
        """Keeps the recall beside the index."""
        recall = {str(n): self.of_leaves[n] for n in sorted(self.of_leaves)}
        document = {"queries": QUERIES, "neighbours": NEIGHBOURS, "recall": recall}
        write_text(folder / NAME, json.dumps(document, indent=1))


def measure(exact: Retriever, search: Search, *, leaves: int, target: float, old: Recall) -> Recall:
    """Measures recall until the fewest of the ``leaves`` that reach ``target`` are known.

    Leaves are doubled until they reach it, then halved in between. ``exact``: an exact index of the
    same passages; ``old``: earlier measurements.
    """
    passages = exact.passages
    drawn = np.random.default_rng(0).choice(len(passages), min(QUERIES, len(passages)), False)
    some = passages.get(np.sort(drawn).tolist())
    queries = exact.embed([p.title or " ".join(p.text.split()[:_WORDS]) for p in some])
    truth = [{*ranking.ids} for ranking in exact.search(queries, NEIGHBOURS)]
    recall = dict(old.of_leaves)

    def reaches(number: int) -> bool:
        ranked = search(queries, number)
        hits = [len(best & {*rows}) / len(best) for best, rows in zip(truth, ranked, strict=True)]
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
