"""Several searches for one question: their passages as one list, and their record."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Literal, get_args

from jaxrag.engines.scheduler import gather
from jaxrag.steps.asking import Pool, Trace
from jaxrag.steps.tools import Tools
from jaxrag.types import InputError, Ranking

Merge = Literal["fusion", "round_robin", "concatenate"]

_DAMPING = 60  # Cormack et al. (2009)


def check_merge(merge: Merge) -> None:
    """Refuses an unknown policy."""
    if merge not in get_args(Merge):
        raise InputError(f"merge is {merge!r}; allowed: {', '.join(get_args(Merge))}.")


def merged(rankings: Sequence[Ranking], merge: Merge) -> Pool:
    """The union of several rankings, best first, each passage once.

    Args:
      rankings: of the searches, the most important one first.
      merge: "concatenate" takes all of the first search, then what the second adds, and so on;
        "round_robin" the first of each search, then the second of each; "fusion" orders by the
        sum of 1 / (60 + rank) over the searches that found a passage (reciprocal rank fusion,
        Cormack et al. 2009), equal sums as "round_robin" does.

    Returns:
      Rows with the scores of that order: the sums, or else 1 / place.
    """
    turns = zip_longest(*(ranking.ids for ranking in rankings))
    in_turn = tuple(dict.fromkeys(row for turn in turns for row in turn if row is not None))
    if merge == "fusion":
        sums = dict.fromkeys(in_turn, Fraction(0))  # exact: rounding would order equal sums
        for ranking in rankings:
            for place, row in enumerate(ranking.ids, start=1):
                sums[row] += Fraction(1, _DAMPING + place)
        rows = tuple(sorted(in_turn, key=lambda row: -sums[row]))
        return Pool(rows, tuple(float(sums[row]) for row in rows))
    in_line = tuple(dict.fromkeys(row for ranking in rankings for row in ranking.ids))
    rows = in_line if merge == "concatenate" else in_turn
    return Pool(rows, tuple(1 / place for place in range(1, len(rows) + 1)))


@dataclasses.dataclass(frozen=True)
class Search:
    """How the queries written for a question are searched for, and which passages are read.

    Attributes:
      m: passages of each query.
      merge: how the results of several queries become one list (neither ARS-RAG nor ERRR says).
      read: most passages that the reader gets, best first; 0 is all of them.
    """

    m: int = 5
    merge: Merge = "fusion"
    read: int = 0

    def __post_init__(self) -> None:
        check_merge(self.merge)
        if self.m < 1 or self.read < 0:
            raise InputError(
                f"search.m is {self.m} and read {self.read}: at least 1 passage of a query, and "
                "0 (all) or more that are read."
            )

    async def of(self, text: str, tools: Tools) -> Ranking:
        """The passages of one query."""
        return await tools.retriever.search(text, self.m)

    async def of_all(self, texts: Sequence[str], tools: Tools) -> list[Ranking]:
        """The passages of each of several queries, searched for side by side."""
        return await gather(*(self.of(text, tools) for text in texts))

    def merged(self, rankings: Sequence[Ranking]) -> Pool:
        """The passages that are read, best first, from the searches of several queries."""
        rows, scores = merged(rankings, self.merge)
        return Pool(rows[: self.read or None], scores[: self.read or None])


def record_searches(
    texts: Sequence[str], rankings: Sequence[Ranking], tools: Tools, trace: Trace
) -> None:
    """Writes searches into the trace, as the candidates of other methods do."""
    trace["searches"] = [
        {
            "path": f"r{number}",
            "query": text,
            "ids": [passage.id for passage in tools.retriever.passages(ranking.ids)],
            "scores": list(ranking.scores),
        }
        for number, (text, ranking) in enumerate(zip(texts, rankings, strict=True), start=1)
    ]
