"""What ARS-RAG's ways of answering share: the order of rewrites, how many, and their search.

docs/methods.md, "ARS-RAG: strategies and ablations". ``order`` and ``count`` compose: the
strategies and ablations of the paper are combinations of them.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from jaxrag.engines.scheduler import gather
from jaxrag.methods.ars import relevance
from jaxrag.methods.ars.settings import CountBandit, RewriteRanker
from jaxrag.steps.asking import Trace
from jaxrag.steps.needs import MethodPart, Needs, needs_of
from jaxrag.steps.searches import Search
from jaxrag.steps.tools import Tools
from jaxrag.types import InputError, Question, Ranking


class Ordered(NamedTuple):
    """Rewrites in the order in which they are taken.

    Attributes:
      numbers: of the rewrites as generated, from 0, first taken first.
      scores: what they were ordered by, in that order; empty where by nothing.
    """

    numbers: tuple[int, ...]
    scores: tuple[float, ...] = ()


class Order(MethodPart, Protocol):
    """Which rewrites are taken first."""

    def __call__(
        self, question: Question, texts: Sequence[str], tools: Tools, search: Search, trace: Trace
    ) -> Awaitable[Ordered]:
        """Orders a question's rewrites."""
        ...


class Count(MethodPart, Protocol):
    """How many rewrites are kept."""

    def __call__(self, question: Question, n: int, tools: Tools) -> Awaitable[int]:
        """K, from 1 to ``n``."""
        ...


@dataclasses.dataclass(frozen=True)
class Generated:
    """As the model wrote them: the ablations without a ranker."""

    needs = Needs()

    async def __call__(
        self, question: Question, texts: Sequence[str], tools: Tools, search: Search, trace: Trace
    ) -> Ordered:
        """Leaves them as they are."""
        return Ordered(tuple(range(len(texts))))


@dataclasses.dataclass(frozen=True)
class Shuffled:
    """In random order (Random-K), another one for every question and seed."""

    needs = Needs()

    seed: int = 0

    async def __call__(
        self, question: Question, texts: Sequence[str], tools: Tools, search: Search, trace: Trace
    ) -> Ordered:
        """Shuffles; the same question and seed give the same order on any machine."""
        numbers = list(range(len(texts)))
        random.Random(f"{self.seed} {question.id}").shuffle(numbers)
        return Ordered(tuple(numbers))


@dataclasses.dataclass(frozen=True)
class Ranked:
    """By the trained ranker, best first; the worst first with ``reverse`` (Worse-K)."""

    reverse: bool = False
    ranker: RewriteRanker = RewriteRanker()

    @property
    def needs(self) -> Needs:
        """The ranker."""
        return Needs(helpers={"ranker": self.ranker})

    async def __call__(
        self, question: Question, texts: Sequence[str], tools: Tools, search: Search, trace: Trace
    ) -> Ordered:
        """Scores every rewrite beside the question."""
        scores = await tools.helper(self.ranker).text_scores(question.text, texts)
        return _by(scores, self.reverse)


@dataclasses.dataclass(frozen=True)
class Judged:
    """By how many of a rewrite's passages the model finds relevant: the original pipeline.

    Every rewrite is searched for and every passage judged, at each question (docs/methods.md,
    "ARS-RAG: strategies and ablations").
    """

    judge: relevance.Judge = relevance.Judge()

    @property
    def needs(self) -> Needs:
        """Passages to judge, and those of the judge."""
        return Needs(search=True) | needs_of(judge=self.judge)

    async def __call__(
        self, question: Question, texts: Sequence[str], tools: Tools, search: Search, trace: Trace
    ) -> Ordered:
        """Counts relevant passages; more come first, equals as generated."""
        rankings = await search.of_all(texts, tools)
        verdicts = await judge_all(question, rankings, tools, self.judge)
        counts = [sum(verdicts[row].relevant for row in ranking.ids) for ranking in rankings]
        trace["judged"] = {"passages": len(verdicts), "relevant": counts}
        return _by(counts, False)


def _by(scores: Sequence[float], reverse: bool) -> Ordered:
    numbers = sorted(range(len(scores)), key=lambda i: scores[i] if reverse else -scores[i])
    return Ordered(tuple(numbers), tuple(float(scores[i]) for i in numbers))


async def judge_all(
    question: Question, rankings: Sequence[Ranking], tools: Tools, judge: relevance.Judge
) -> dict[int, relevance.Judgement]:
    """The verdict on every passage that was found, each judged once, by row."""
    rows = list(dict.fromkeys(row for ranking in rankings for row in ranking.ids))
    passages, llm = tools.retriever.passages(rows), judge.language_model(tools)
    found = await gather(*(relevance.judge(question.text, p, llm, judge) for p in passages))
    return dict(zip(rows, found, strict=True))


@dataclasses.dataclass(frozen=True)
class Fixed:
    """K = ``k`` for every question."""

    needs = Needs()

    k: int = 10

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"count.k is {self.k}; it must be at least 1.")

    async def __call__(self, question: Question, n: int, tools: Tools) -> int:
        """The setting.

        Raises:
          InputError: there are fewer rewrites.
        """
        if self.k > n:
            raise InputError(f"count.k is {self.k}, and there are {n} rewrites.")
        return self.k


@dataclasses.dataclass(frozen=True)
class Chosen:
    """K by the trained bandit from the question's embedding: Adaptive-K."""

    bandit: CountBandit = CountBandit()

    @property
    def needs(self) -> Needs:
        """The bandit, and the question's vector."""
        return Needs(search=True, vectors=True, helpers={"bandit": self.bandit})

    async def __call__(self, question: Question, n: int, tools: Tools) -> int:
        """Asks the bandit, which has as many arms as there are rewrites."""
        return await tools.helper(self.bandit).count(question.text, n, tools.retriever)
