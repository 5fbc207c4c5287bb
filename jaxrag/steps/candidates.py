"""Candidates: searches for the passages that a selector chooses from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Literal, get_args

from jaxrag.core.checks import check_limits
from jaxrag.engines.scheduler import gather
from jaxrag.steps.asking import CandidatePool, Trace
from jaxrag.steps.tools import Needs, Tools
from jaxrag.types import InputError, Ranking


async def search(path: str, text: str, k: int, tools: Tools, trace: Trace) -> Ranking:
    """The ``k`` best passages for a text, recorded in ``trace["searches"]``."""
    ranking = await tools.retriever.search(text, k)
    trace.setdefault("searches", []).append(_search_record(path, text, ranking, tools))
    return ranking


def _search_record(path: str, query: str, ranking: Ranking, tools: Tools) -> Trace:
    ids = [passage.id for passage in tools.retriever.passages(ranking.ids)]
    return {"path": path, "query": query, "ids": ids, "scores": list(ranking.scores)}


async def _both(query: str, pseudo: str, k: int, tools: Tools, trace: Trace) -> list[Ranking]:
    """Searches by query and by pseudo-context concurrently."""
    found = await gather(search("q", query, k, tools, trace), search("p", pseudo, k, tools, trace))
    trace["searches"].sort(key=lambda search: search["path"], reverse=True)  # q before p, always
    return found


@dataclasses.dataclass(frozen=True)
class OnePath:
    """The ``n`` best passages of one search.

    Attributes:
      n: how many.
      by: "query"; "pseudo" (HyDE, PAIRS w/o DPR (p)); "expanded" (Q2D, CoT: ``copies`` of the
        query followed by the pseudo-context).
      copies: of the query, for "expanded" (the papers give no number; Query2doc uses 5).
    """

    needs = Needs(search=True)

    n: int = 3
    by: Literal["query", "pseudo", "expanded"] = "query"
    copies: int = 5

    def __post_init__(self) -> None:
        check_limits(**{"candidates.n": self.n, "candidates.copies": self.copies})
        if self.by not in ("query", "pseudo", "expanded"):
            raise InputError(
                f"candidates.by is {self.by!r}; allowed: 'query', 'pseudo', 'expanded'."
            )

    @property
    def uses_pseudo(self) -> bool:
        """Whether a pseudo-context must be written first."""
        return self.by != "query"

    async def __call__(self, query: str, pseudo: str, tools: Tools, trace: Trace) -> CandidatePool:
        """Searches once."""
        text = {
            "query": query,
            "pseudo": pseudo,
            "expanded": " ".join([query] * self.copies + [pseudo]),
        }[self.by]
        path = {"query": "q", "pseudo": "p", "expanded": "q+p"}[self.by]
        ranking = await search(path, text, self.n, tools, trace)
        return CandidatePool(ranking.ids, ranking.scores)


@dataclasses.dataclass(frozen=True)
class DualPath:
    """Dual-path retrieval: the union of the ``n`` best by q and by p.

    Source: docs/methods.md, "PAIRS: dual-path retrieval".

    A passage found twice counts once, so there are ``n`` to ``2n`` candidates.
    """

    needs = Needs(search=True)
    uses_pseudo = True

    n: int = 5

    def __post_init__(self) -> None:
        check_limits(**{"candidates.n": self.n})

    async def __call__(self, query: str, pseudo: str, tools: Tools, trace: Trace) -> CandidatePool:
        """Searches by both texts."""
        by_q, by_p = await _both(query, pseudo, self.n, tools, trace)
        scores = dict(zip(by_p.ids, by_p.scores, strict=True))
        scores |= dict(zip(by_q.ids, by_q.scores, strict=True))
        rows = tuple(dict.fromkeys(by_q.ids + by_p.ids))
        return CandidatePool(rows, tuple(scores[row] for row in rows))


@dataclasses.dataclass(frozen=True)
class FixedMix:
    """A fixed number from each path and no scoring (PAIRS and DTR, w/o AIS: 2q+1p, 1q+2p).

    A passage of the p path that the q path already has is replaced by p's next one; the papers do
    not specify this.
    """

    needs = Needs(search=True)
    uses_pseudo = True

    from_query: int = 2
    from_pseudo: int = 1

    def __post_init__(self) -> None:
        limits = {"from_query": self.from_query, "from_pseudo": self.from_pseudo}
        check_limits(**{f"candidates.{name}": limit for name, limit in limits.items()})

    async def __call__(self, query: str, pseudo: str, tools: Tools, trace: Trace) -> CandidatePool:
        """Searches by both texts, deep enough to replace duplicates."""
        depth = self.from_query + self.from_pseudo
        by_q, by_p = await _both(query, pseudo, depth, tools, trace)
        first = list(zip(by_q.ids, by_q.scores, strict=True))[: self.from_query]
        taken = {row for row, _ in first}
        rest = [hit for hit in zip(by_p.ids, by_p.scores, strict=True) if hit[0] not in taken]
        hits = first + rest[: self.from_pseudo]
        return CandidatePool(tuple(row for row, _ in hits), tuple(score for _, score in hits))


Merge = Literal["fusion", "round_robin", "concatenate"]

_DAMPING = 60  # Cormack et al. (2009)


def check_merge(merge: Merge) -> None:
    """InputError for an unknown policy."""
    if merge not in get_args(Merge):
        raise InputError(f"merge is {merge!r}; allowed: {', '.join(get_args(Merge))}.")


def merged(rankings: Sequence[Ranking], merge: Merge) -> CandidatePool:
    """The union of several rankings, best first, each passage once.

    Args:
      rankings: most important first.
      merge: "concatenate" takes all of the first ranking, then the new ones of the second, and so
        on; "round_robin" the first of each ranking, then the second of each; "fusion" orders by
        the sum of 1 / (60 + rank) over the rankings that contain a passage (reciprocal rank
        fusion, Cormack et al. 2009), and equal sums by "round_robin".

    Returns:
      Rows with scores: the sums of "fusion", else 1 / rank.
    """
    turns = zip_longest(*(ranking.ids for ranking in rankings))
    in_turn = tuple(dict.fromkeys(row for turn in turns for row in turn if row is not None))
    if merge == "fusion":
        sums = dict.fromkeys(in_turn, Fraction(0))  # exact: rounding would order equal sums
        for ranking in rankings:
            for place, row in enumerate(ranking.ids, start=1):
                sums[row] += Fraction(1, _DAMPING + place)
        rows = tuple(sorted(in_turn, key=lambda row: -sums[row]))
        return CandidatePool(rows, tuple(float(sums[row]) for row in rows))
    in_line = tuple(dict.fromkeys(row for ranking in rankings for row in ranking.ids))
    rows = in_line if merge == "concatenate" else in_turn
    return CandidatePool(rows, tuple(1 / place for place in range(1, len(rows) + 1)))


@dataclasses.dataclass(frozen=True)
class Search:
    """Search by several queries written for a question.

    Attributes:
      m: passages per query.
      merge: policy of `merged` (neither ARS-RAG nor ERRR specifies one).
      read: limit of passages for the reader, best first; 0 is no limit.
    """

    m: int = 5
    merge: Merge = "fusion"
    read: int = 0

    def __post_init__(self) -> None:
        check_merge(self.merge)
        if self.m < 1 or self.read < 0:
            raise InputError(
                f"search.m is {self.m} and search.read {self.read}: at least 1 and at least 0 "
                "are allowed."
            )

    async def search_one(self, text: str, tools: Tools) -> Ranking:
        """The ranking of one query."""
        return await tools.retriever.search(text, self.m)

    async def search_all(self, texts: Sequence[str], tools: Tools) -> list[Ranking]:
        """The ranking of each query."""
        return await gather(*(self.search_one(text, tools) for text in texts))

    def merged(self, rankings: Sequence[Ranking]) -> CandidatePool:
        """The passages for the reader, best first."""
        rows, scores = merged(rankings, self.merge)
        return CandidatePool(rows[: self.read or None], scores[: self.read or None])


def record_searches(
    texts: Sequence[str], rankings: Sequence[Ranking], tools: Tools, trace: Trace
) -> None:
    """Records the searches of several queries in ``trace["searches"]``."""
    pairs = enumerate(zip(texts, rankings, strict=True), start=1)
    trace["searches"] = [
        _search_record(f"r{number}", text, ranking, tools) for number, (text, ranking) in pairs
    ]
