"""Orders of rewrites and numbers of rewrites kept; the paper's strategies combine one of each.

Source: docs/methods, "ARS-RAG: strategies and ablations".
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from jaxrag.core.checks import check_limits
from jaxrag.engines.scheduler import Request
from jaxrag.methods.ars.helpers import CountBandit, RewriteRanker
from jaxrag.methods.ars.relevance import RelevanceJudge, judge_all
from jaxrag.steps.candidates import Search
from jaxrag.steps.episode import Episode
from jaxrag.steps.tools import Needs
from jaxrag.types import InputError

JUDGED = "judged"
"""Path of the searches whose passages are judged, not read."""


class Ordered(NamedTuple):
    """Indices of rewrites as generated, from 0, in the order in which they are used, and the scores
    that decided it, in that order; empty for an order without scores.
    """

    numbers: tuple[int, ...]
    scores: tuple[float, ...] = ()


class RewriteOrder(Protocol):
    """Orders the rewrites of a question."""

    def __call__(
        self, episode: Episode, texts: Sequence[str], search: Search
    ) -> Awaitable[Ordered]:
        """The order of ``texts``."""
        ...


class RewriteCount(Protocol):
    """Chooses how many rewrites are kept."""

    def __call__(self, episode: Episode, n: int) -> Awaitable[int]:
        """K, from 1 to ``n``."""
        ...


@dataclasses.dataclass(frozen=True)
class Generated:
    """The order of generation: the ablations without a ranker."""

    async def __call__(self, episode: Episode, texts: Sequence[str], search: Search) -> Ordered:
        """Keeps the order."""
        return Ordered(tuple(range(len(texts))))


@dataclasses.dataclass(frozen=True)
class Shuffled:
    """A random order (Random-K), which depends on the question's id and the seed alone."""

    seed: int = 0

    async def __call__(self, episode: Episode, texts: Sequence[str], search: Search) -> Ordered:
        """Shuffles."""
        numbers = list(range(len(texts)))
        random.Random(f"{self.seed} {episode.question.id}").shuffle(numbers)
        return Ordered(tuple(numbers))


@dataclasses.dataclass(frozen=True)
class Ranked:
    """The trained ranker's order, best first; with ``reverse`` worst first (Worse-K)."""

    reverse: bool = False
    ranker: RewriteRanker = RewriteRanker()

    async def __call__(self, episode: Episode, texts: Sequence[str], search: Search) -> Ordered:
        """Orders by the scores S(q_i, Q)."""
        ranker = episode.helper(self.ranker)
        scores = await ranker.text_scores(episode.question.text, texts)
        return _score_order(scores, worst_first=self.reverse)


@dataclasses.dataclass(frozen=True)
class Judged:
    """The order by number of relevant passages found: the pipeline that the ranker replaces.

    For each question every rewrite is searched for, and the language model judges every passage.
    """

    needs = Needs(search=True)

    judge: RelevanceJudge = RelevanceJudge()

    async def __call__(self, episode: Episode, texts: Sequence[str], search: Search) -> Ordered:
        """Orders by y_i, highest first; ties keep the order of generation."""
        rankings = await search.each(episode, texts, path=JUDGED)
        verdicts = await judge_all(episode, rankings, self.judge)
        counts = [sum(verdicts[row].relevant for row in ranking.rows) for ranking in rankings]
        episode.note(judged={"passages": len(verdicts), "relevant": counts})
        return _score_order(counts)


def _score_order(scores: Sequence[float], *, worst_first: bool = False) -> Ordered:
    numbers = sorted(range(len(scores)), key=lambda i: scores[i] if worst_first else -scores[i])
    return Ordered(tuple(numbers), tuple(float(scores[i]) for i in numbers))


@dataclasses.dataclass(frozen=True)
class Fixed:
    """The same K for every question."""

    k: int = 10

    def __post_init__(self) -> None:
        check_limits(k=self.k)

    async def __call__(self, episode: Episode, n: int) -> int:
        """K; InputError where it exceeds ``n``."""
        if self.k > n:
            raise InputError(f"count.k is {self.k}, and there are {n} rewrites.")
        return self.k


@dataclasses.dataclass(frozen=True)
class Chosen:
    """K chosen by the trained bandit from the question's embedding (Adaptive-K)."""

    bandit: CountBandit = CountBandit()

    @property
    def needs(self) -> Needs:
        """An index; its encoder embeds the question unless the bandit names one of its own."""
        return Needs(search=True, vectors=self.bandit.context is None)

    async def __call__(self, episode: Episode, n: int) -> int:
        """K = pi(x); InputError for a bandit of another number of rewrites."""
        bandit, text = episode.helper(self.bandit), episode.question.text
        if bandit.encoder is not None:
            context = await Request(bandit.encoder, text)
        else:
            context = await episode.embed(text)
        return bandit.count(context, n)
