"""Passage selectors: choose the candidates for the reader, best first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np

from jaxrag.core.checks import check_limits
from jaxrag.engines.scheduler import gather
from jaxrag.functional import ais
from jaxrag.steps.asking import CandidatePool, Trace
from jaxrag.steps.tools import Needs, Tools
from jaxrag.types import InputError

_PAD = 16  # candidate pools are padded to a multiple of this, so that one program serves them


def record_choice(
    trace: Trace,
    tools: Tools,
    pool: CandidatePool,
    columns: Mapping[str, Sequence[float]],
    kept: Sequence[int],
) -> None:
    """Records a selection in ``trace["selected"]``.

    Args:
      trace: gets all candidates with their columns, and ids and scores of the selected ones.
      tools: the index.
      pool: the candidates.
      columns: values of each candidate; the order is by "score".
      kept: rows of the selected ones, best first.
    """
    ids = [passage.id for passage in tools.retriever.passages(pool.rows)]
    table = zip(ids, *columns.values(), strict=True)
    candidates = [dict(zip(("id", *columns), line, strict=True)) for line in table]
    score = dict(zip(pool.rows, columns["score"], strict=True))
    name = dict(zip(pool.rows, ids, strict=True))
    trace["selected"] = {
        "candidates": candidates,
        "ids": [name[row] for row in kept],
        "scores": [score[row] for row in kept],
    }


@dataclasses.dataclass(frozen=True)
class Top:
    """The first ``k`` of the pool, in its own order."""

    needs = Needs()
    uses_pseudo = False

    k: int = 3

    def __post_init__(self) -> None:
        check_limits(**{"select.k": self.k})

    async def __call__(
        self, query: str, pseudo: str, pool: CandidatePool, tools: Tools, trace: Trace
    ) -> tuple[int, ...]:
        """Takes the first candidates."""
        kept = pool.rows[: self.k]
        record_choice(trace, tools, pool, {"score": list(pool.scores)}, kept)
        return kept


@dataclasses.dataclass(frozen=True)
class AIS:
    """Adaptive information selection: score by query and pseudo-context.

    Source: docs/methods.md, "PAIRS: selection (equations 1 to 4)".

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
        if self.score not in get_args(ais.Score):
            raise InputError(f"select.score is {self.score!r}; allowed: {get_args(ais.Score)}.")

    async def __call__(
        self, query: str, pseudo: str, pool: CandidatePool, tools: Tools, trace: Trace
    ) -> tuple[int, ...]:
        """Scores the stored vector of every candidate."""
        q, p = await gather(tools.retriever.embed(query), tools.retriever.embed(pseudo))
        width = -(-len(pool.rows) // _PAD) * _PAD
        where = np.arange(width) < len(pool.rows)
        rows = np.pad(np.asarray(pool.rows, np.int32), (0, width - len(pool.rows)))
        vectors = tools.retriever.vectors(rows.tolist())
        found = ais.select_passages(
            q,
            p,
            vectors,
            rows,
            k=self.k,
            where=where,
            score=self.score,
            alpha0=self.alpha0,
            alpha1=self.alpha1,
        )
        count = len(pool.rows)
        columns = {
            "s1": np.asarray(found.s1)[:count].tolist(),
            "s2": np.asarray(found.s2)[:count].tolist(),
            "score": np.asarray(found.scores)[:count].tolist(),
        }
        kept = tuple(int(row) for row in found.selection.ids if row >= 0)
        record_choice(trace, tools, pool, columns, kept)
        return kept


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

    async def __call__(
        self, query: str, pseudo: str, pool: CandidatePool, tools: Tools, trace: Trace
    ) -> tuple[int, ...]:
        """Scores every candidate; ties keep the pool's order."""
        passages = tools.retriever.passages(pool.rows)
        texts = (query, pseudo) if self.with_pseudo else (query,)
        found = await gather(*(tools.reranker.scores(text, passages) for text in texts))
        columns: dict[str, list[float]] = dict(zip(("s1", "s2"), found, strict=False))
        columns["score"] = [float(sum(pair)) for pair in zip(*found, strict=True)]
        order = sorted(range(len(pool.rows)), key=lambda i: -columns["score"][i])
        kept = tuple(pool.rows[i] for i in order[: self.k])
        record_choice(trace, tools, pool, columns, kept)
        return kept
