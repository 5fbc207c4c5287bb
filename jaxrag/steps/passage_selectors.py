"""Passage selectors: choose the candidates for the reader, best first."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxrag.core.checks import check_choices, check_limits
from jaxrag.engines.scheduler import gather
from jaxrag.functional import ais
from jaxrag.functional.on_host import on_host
from jaxrag.steps.episode import Episode, Pool, Scored
from jaxrag.steps.tools import Needs

_PAD = 16  # candidate pools are padded to a multiple of this, so that one program serves them

_select_passages = on_host(ais.select_passages, static=("k", "score"))


@dataclasses.dataclass(frozen=True)
class Top:
    """The first ``k`` of the pool, in its own order."""

    needs = Needs()
    uses_pseudo = False

    k: int = 3

    def __post_init__(self) -> None:
        check_limits(**{"select.k": self.k})

    async def __call__(self, episode: Episode, pool: Pool, query: str, pseudo: str) -> Scored:
        """Takes the first candidates."""
        return Scored({"score": pool.scores}, range(min(self.k, len(pool))))


@dataclasses.dataclass(frozen=True)
class AIS:
    """AIS: score by query and pseudo-context (docs/methods, "PAIRS: selection (equations 1 to 4)").

    Attributes:
      k: how many passages are kept.
      score: "angle_sum", cos(theta1 + theta2), PAIRS eq 4 and DTR eq 7; "cosine_sum", PAIRS eq 1
        and what the released code has in force; "dynamic", PAIRS eq 5.
      alpha0, alpha1: alpha = alpha1 * theta0 + alpha0 (PAIRS eq 8), for "dynamic".
    """

    needs = Needs(search=True, vectors=True)
    uses_pseudo = True

    k: int = 3
    score: ais.Score = "angle_sum"
    alpha0: float = ais.ALPHA0_PAPER
    alpha1: float = ais.ALPHA1_PAPER

    def __post_init__(self) -> None:
        check_limits(**{"select.k": self.k})
        check_choices(self, score=ais.Score)

    async def __call__(self, episode: Episode, pool: Pool, query: str, pseudo: str) -> Scored:
        """Scores the stored vector of every candidate."""
        q, p = await gather(episode.embed(query), episode.embed(pseudo))
        width = -(-len(pool) // _PAD) * _PAD
        where = np.arange(width) < len(pool)
        rows = np.pad(np.asarray(pool.rows, np.int32), (0, width - len(pool)))
        selection = _select_passages(
            q,
            p,
            episode.vectors(rows.tolist()),
            rows,
            k=self.k,
            where=where,
            score=self.score,
            alpha0=self.alpha0,
            alpha1=self.alpha1,
        )
        columns = {"s1": selection.s1, "s2": selection.s2, "score": selection.scores}
        positions = selection.selection.positions
        return Scored(
            {name: values[: len(pool)].tolist() for name, values in columns.items()},
            positions[positions >= 0].tolist(),
        )


@dataclasses.dataclass(frozen=True)
class Rerank:
    """The ``k`` best by a reranker: K(d, q), or K(d, q) + K(d, p) (PAIRS eq 7)."""

    needs = Needs(reranker=True)

    k: int = 3
    with_pseudo: bool = False

    def __post_init__(self) -> None:
        check_limits(**{"select.k": self.k})

    @property
    def uses_pseudo(self) -> bool:
        """Whether the pseudo-context enters the score."""
        return self.with_pseudo

    async def __call__(self, episode: Episode, pool: Pool, query: str, pseudo: str) -> Scored:
        """Scores every candidate; ties keep the pool's order."""
        passages = episode.passages(pool)
        texts = (query, pseudo) if self.with_pseudo else (query,)
        scores = await gather(*(episode.rerank(text, passages) for text in texts))
        columns: dict[str, list[float]] = dict(zip(("s1", "s2"), scores, strict=False))
        columns["score"] = [float(sum(pair)) for pair in zip(*scores, strict=True)]
        order = sorted(range(len(pool)), key=lambda i: -columns["score"][i])
        return Scored(columns, order[: self.k])
