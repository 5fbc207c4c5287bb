"""Candidates: which passages come into question, by which searches."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxrag.engines.scheduler import gather
from jaxrag.steps.asking import Pool, Trace
from jaxrag.steps.needs import Needs
from jaxrag.steps.tools import Tools
from jaxrag.types import InputError, Ranking


async def search(path: str, text: str, k: int, tools: Tools, trace: Trace) -> Ranking:
    """The ``k`` best passages for a text; ``trace["searches"]`` gets one entry more."""
    ranking = await tools.retriever.search(text, k)
    ids = [passage.id for passage in tools.retriever.passages(ranking.ids)]
    trace.setdefault("searches", []).append(
        {"path": path, "query": text, "ids": ids, "scores": list(ranking.scores)}
    )
    return ranking


async def _both(query: str, pseudo: str, k: int, tools: Tools, trace: Trace) -> list[Ranking]:
    """Searches by query and by pseudo-context side by side."""
    found = await gather(search("q", query, k, tools, trace), search("p", pseudo, k, tools, trace))
    trace["searches"].sort(key=lambda search: search["path"], reverse=True)  # q before p, always
    return found


def _check(name: str, value: int) -> None:
    if value < 1:
        raise InputError(f"{name} is {value}; it must be at least 1.")


@dataclasses.dataclass(frozen=True)
class OnePath:
    """The ``n`` best passages of one search.

    Attributes:
      n: how many.
      by: "query"; "pseudo" (HyDE, PAIRS w/o DPR (p)); "expanded" (Q2D, CoT: ``copies`` of the
        query, then the text that the model wrote).
      copies: of the query, for "expanded" (the papers give no number; Query2doc uses 5).
    """

    needs = Needs(search=True)

    n: int = 3
    by: Literal["query", "pseudo", "expanded"] = "query"
    copies: int = 5

    def __post_init__(self) -> None:
        _check("candidates.n", self.n)
        _check("candidates.copies", self.copies)
        if self.by not in ("query", "pseudo", "expanded"):
            raise InputError(
                f"candidates.by is {self.by!r}; allowed: 'query', 'pseudo', 'expanded'."
            )

    @property
    def uses_pseudo(self) -> bool:
        """Whether the model must write a text first."""
        return self.by != "query"

    async def __call__(self, query: str, pseudo: str, tools: Tools, trace: Trace) -> Pool:
        """Searches once."""
        text = {
            "query": query,
            "pseudo": pseudo,
            "expanded": " ".join([query] * self.copies + [pseudo]),
        }[self.by]
        path = {"query": "q", "pseudo": "p", "expanded": "q+p"}[self.by]
        ranking = await search(path, text, self.n, tools, trace)
        return Pool(ranking.ids, ranking.scores)


@dataclasses.dataclass(frozen=True)
class DualPath:
    """Dual-path retrieval: the union of the ``n`` best by q and by p.

    Source: docs/methods.md, "PAIRS: dual-path retrieval".

    A passage found twice counts once, so the pool holds ``n`` to ``2n``.
    """

    needs = Needs(search=True)

    n: int = 5

    def __post_init__(self) -> None:
        _check("candidates.n", self.n)

    @property
    def uses_pseudo(self) -> bool:
        """It searches or scores by the pseudo-context."""
        return True

    async def __call__(self, query: str, pseudo: str, tools: Tools, trace: Trace) -> Pool:
        """Searches twice and joins."""
        by_q, by_p = await _both(query, pseudo, self.n, tools, trace)
        scores = dict(zip(by_p.ids, by_p.scores, strict=True))
        scores |= dict(zip(by_q.ids, by_q.scores, strict=True))
        rows = tuple(dict.fromkeys(by_q.ids + by_p.ids))
        return Pool(rows, tuple(scores[row] for row in rows))


@dataclasses.dataclass(frozen=True)
class FixedMix:
    """A fixed number from each path and no scoring (PAIRS and DTR, w/o AIS: 2q+1p, 1q+2p).

    A passage of the p path that the q path already gave is replaced by p's next one; the papers
    do not say.
    """

    needs = Needs(search=True)

    from_query: int = 2
    from_pseudo: int = 1

    def __post_init__(self) -> None:
        _check("candidates.from_query", self.from_query)
        _check("candidates.from_pseudo", self.from_pseudo)

    @property
    def uses_pseudo(self) -> bool:
        """It searches or scores by the pseudo-context."""
        return True

    async def __call__(self, query: str, pseudo: str, tools: Tools, trace: Trace) -> Pool:
        """Searches twice, deep enough to replace duplicates."""
        depth = self.from_query + self.from_pseudo
        by_q, by_p = await _both(query, pseudo, depth, tools, trace)
        first = list(zip(by_q.ids, by_q.scores, strict=True))[: self.from_query]
        taken = {row for row, _ in first}
        rest = [hit for hit in zip(by_p.ids, by_p.scores, strict=True) if hit[0] not in taken]
        hits = first + rest[: self.from_pseudo]
        return Pool(tuple(row for row, _ in hits), tuple(score for _, score in hits))
