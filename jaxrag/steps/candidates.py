"""Candidates: searches for the passages that a selector chooses from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Literal

from jaxrag.core.checks import check_choices, check_limits, check_range
from jaxrag.engines.scheduler import gather
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.tools import Needs


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
        check_choices(self, by=Literal["query", "pseudo", "expanded"])

    @property
    def uses_pseudo(self) -> bool:
        """Whether a pseudo-context must be written first."""
        return self.by != "query"

    async def __call__(self, episode: Episode, query: str, pseudo: str) -> Pool:
        """Searches once."""
        path, text = {
            "query": ("q", query),
            "pseudo": ("p", pseudo),
            "expanded": ("q+p", " ".join([query] * self.copies + [pseudo])),
        }[self.by]
        return await episode.search(text, self.n, path=path)


@dataclasses.dataclass(frozen=True)
class DualPath:
    """Dual-path retrieval (PAIRS): the union of the ``n`` best by q and by p, ``n`` to ``2n``."""

    needs = Needs(search=True)
    uses_pseudo = True

    n: int = 5

    def __post_init__(self) -> None:
        check_limits(**{"candidates.n": self.n})

    async def __call__(self, episode: Episode, query: str, pseudo: str) -> Pool:
        """Searches by both texts."""
        by_q, by_p = await _both(episode, query, pseudo, self.n)
        return by_q.union(by_p)


@dataclasses.dataclass(frozen=True)
class FixedMix:
    """A fixed number from each path and no scoring (PAIRS and DTR, w/o AIS: 2q+1p, 1q+2p).

    Attributes:
      from_query, from_pseudo: numbers of passages of the two paths.
      duplicates: of passages of the p path that the q path has, too: "replace" takes p's next ones
        in their place, "keep" has them twice. The papers do not say.
    """

    needs = Needs(search=True)
    uses_pseudo = True

    from_query: int = 2
    from_pseudo: int = 1
    duplicates: Literal["replace", "keep"] = "replace"

    def __post_init__(self) -> None:
        check_choices(self, duplicates=Literal["replace", "keep"])
        limits = {"from_query": self.from_query, "from_pseudo": self.from_pseudo}
        check_limits(**{f"candidates.{name}": limit for name, limit in limits.items()})

    async def __call__(self, episode: Episode, query: str, pseudo: str) -> Pool:
        """Searches by both texts, deep enough to replace duplicates."""
        by_q, by_p = await _both(episode, query, pseudo, self.from_query + self.from_pseudo)
        first, second = by_q.first(self.from_query), by_p.first(self.from_pseudo)
        if self.duplicates == "keep":
            return Pool(first.rows + second.rows, first.scores + second.scores)
        return first.union(by_p).first(len(first) + self.from_pseudo)


async def _both(episode: Episode, query: str, pseudo: str, k: int) -> list[Pool]:
    """The passages by query and by pseudo-context, searched concurrently."""
    return await gather(episode.search(query, k, path="q"), episode.search(pseudo, k, path="p"))


Merge = Literal["fusion", "round_robin", "concatenate"]

_DAMPING = 60  # Cormack et al. (2009)


def merged(rankings: Sequence[Pool], merge: Merge) -> Pool:
    """The union of several rankings, best first, each passage once; scores are 1 / rank.

    Args:
      rankings: most important first.
      merge: "concatenate" takes all of the first ranking, then the new ones of the second, and so
        on; "round_robin" the first of each ranking, then the second of each; "fusion" orders by
        its scores, the sums of 1 / (60 + rank) over the rankings that contain a passage
        (reciprocal rank fusion, Cormack et al. 2009), and equal sums by "round_robin".
    """
    turns = zip_longest(*(ranking.rows for ranking in rankings))
    in_turn = tuple(dict.fromkeys(row for turn in turns for row in turn if row is not None))
    if merge == "fusion":
        sums = dict.fromkeys(in_turn, Fraction(0))  # exact: rounding would order equal sums
        for ranking in rankings:
            for place, row in enumerate(ranking.rows, start=1):
                sums[row] += Fraction(1, _DAMPING + place)
        rows = tuple(sorted(in_turn, key=lambda row: -sums[row]))
        return Pool(rows, tuple(float(sums[row]) for row in rows))
    in_line = tuple(dict.fromkeys(row for ranking in rankings for row in ranking.rows))
    rows = in_line if merge == "concatenate" else in_turn
    return Pool(rows, tuple(1 / place for place in range(1, len(rows) + 1)))


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
        check_choices(self, merge=Merge)
        check_limits(**{"search.m": self.m})
        check_range(**{"search.read": self.read})

    async def __call__(self, episode: Episode, texts: Sequence[str]) -> Pool:
        """Searches for each text; the passages for the reader, best first."""
        return self.merged(await self.each(episode, texts))

    async def each(
        self, episode: Episode, texts: Sequence[str], *, path: str = "r{number}"
    ) -> list[Pool]:
        """The passages of each text; ``path`` names its search by its number, from 1."""
        numbered = enumerate(texts, start=1)
        searches = (episode.search(t, self.m, path=path.format(number=n)) for n, t in numbered)
        return await gather(*searches)

    def merged(self, rankings: Sequence[Pool]) -> Pool:
        """The passages for the reader, best first."""
        pool = merged(rankings, self.merge)
        return pool.first(self.read or len(pool))
