"""PPO's reward of a rewriter's queries: EM + F1 + hit, by the passages found and the answer.

Ma et al. (2023); or a reranker's score of the passages, as RaFe's (Mao et al., 2024). Requests go
through the scheduler and the store, so that none is computed twice.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from jaxrag.core.checks import check_range
from jaxrag.core.store import Store
from jaxrag.data.dataset import Dataset
from jaxrag.engines.scheduler import Scheduler
from jaxrag.evaluation.metrics import accuracy, passage_has, telling_answers
from jaxrag.methods.errr import queries, rrr
from jaxrag.methods.errr.parsed_queries import ParsedQueries
from jaxrag.methods.errr.ppo.figures import columns
from jaxrag.models.processes import shared
from jaxrag.steps.episode import Episode
from jaxrag.steps.tools import Tools
from jaxrag.types import Generation, InputError, Passage, Question

_log = logging.getLogger("jaxrag")


@dataclasses.dataclass(frozen=True)
class Worth:
    """Weights of the reward EM + F1 + hit (Ma et al., 2023; released code).

    Attributes:
      exact_match, f1: weights of the reader's scores; if both are 0, no answer is generated.
      hit: weight of a hit, 1 if the passages read contain an answer, else -1; 0 where that says
        nothing, as of the answer "no" (`telling_answers`).
      gold: a hit is a gold passage among those read, not an answer in their text.
      rerank: weight of the mean score that the run's reranker gives the passages read for the
        question itself, 0 where nothing was found; it needs neither answers nor gold passages.
    """

    exact_match: float = 1.0
    f1: float = 1.0
    hit: float = 1.0
    gold: bool = False
    rerank: float = 0.0

    def __post_init__(self) -> None:
        names = ("exact_match", "f1", "hit", "rerank")
        check_range(**{f"worth.{name}": getattr(self, name) for name in names})
        if not self.reads and not self.hit and not self.rerank:
            raise InputError("All weights of worth are 0, so every reward is 0: set one above 0.")

    @property
    def reads(self) -> bool:
        """Whether rewards depend on the reader's answer."""
        return bool(self.exact_match or self.f1)


def usable(dataset: Dataset, worth: Worth, limit: int) -> list[Question]:
    """At most ``limit`` (0: all) questions whose queries can be rewarded; InputError if none."""
    needs = (worth.reads or (worth.hit and not worth.gold), bool(worth.hit and worth.gold))
    questions = [
        question
        for question in dataset.questions
        if ((question.answers if worth.reads else telling_answers(question)) or not needs[0])
        and (dataset.gold.get(question.id) or not needs[1])
    ]
    gold = " and ".join(
        name for name, need in zip(("gold answers", "gold passages"), needs, strict=True) if need
    )
    if not questions:
        raise InputError(
            f"No question of {dataset.name} has {gold}, which rewards need: choose other data, or "
            "other weights of worth."
        )
    if len(questions) < len(dataset.questions):
        _log.warning(
            "%d of %d questions of %s have no %s and are left out",
            len(dataset.questions) - len(questions), len(dataset.questions), dataset.name, gold,
        )  # fmt: skip
    return questions[: limit or None]


@dataclasses.dataclass(frozen=True)
class Rewards:
    """The reward of generated texts: searches for their queries, reads, and scores."""

    method: rrr.Config
    live: int
    worth: Worth
    gold: Mapping[str, Sequence[str]]
    tools: Tools
    store: Store

    def __call__(
        self, questions: Sequence[Question], texts: Sequence[Generation]
    ) -> tuple[list[float], list[dict[str, Any]]]:
        """Rewards, and the record of each text: its queries, whether it was parsed, and scores.

        InputError where a question could not be answered; the results of the others are stored.
        """
        most = self.method.rewriter.most
        parsed = [
            queries.parse_generation(question, generation, most)
            for question, generation in zip(questions, texts, strict=True)
        ]
        return self._rewards(questions, parsed)

    def of_questions(self, questions: Sequence[Question]) -> dict[str, Any]:
        """Metrics of the questions as their own queries, named "itself ..."."""
        rewards, records = self._rewards(
            questions, [ParsedQueries((q.text,), True) for q in questions]
        )
        metrics = columns(rewards, records)
        return {f"itself {name}": metrics[name] for name in metrics if name != "parsed"}

    def _rewards(
        self, questions: Sequence[Question], parsed: Sequence[ParsedQueries]
    ) -> tuple[list[float], list[dict[str, Any]]]:
        records = shared([*zip(questions, parsed, strict=True)], self._records)
        return [self._worth(record) for record in records], records

    def _records(self, pairs: Sequence[tuple[Question, ParsedQueries]]) -> list[dict[str, Any]]:
        records: list[Any] = [None] * len(pairs)
        tasks = ((number, partial(self._score, *pair)) for number, pair in enumerate(pairs))
        failed: list[tuple[str, Exception]] = []
        for outcome in Scheduler(self.store, live=self.live).run(tasks):
            if outcome.error is not None:
                failed.append((pairs[outcome.id][0].id, outcome.error))
            else:
                records[outcome.id] = outcome.value
        if failed:
            name, error = failed[0]
            raise InputError(f"Question {name}: {error}") from error
        return records

    def _worth(self, record: Mapping[str, Any]) -> float:
        total = self.worth.hit * {True: 1.0, False: -1.0, None: 0.0}[record["hit"]]
        if self.worth.reads:
            total += self.worth.exact_match * record["exact_match"] + self.worth.f1 * record["f1"]
        if self.worth.rerank:
            total += self.worth.rerank * record["rerank"]
        return total

    async def _score(self, question: Question, written: ParsedQueries) -> dict[str, Any]:
        """Searches for the queries, reads, and scores: the record of a text."""
        method, episode = self.method, Episode(question, self.tools, self.method.reader)
        record: dict[str, Any] = {"queries": list(written.texts), "parsed": written.parsed}
        pool = await queries.search_for(
            episode, written.texts, method.search, search_question=method.search_question
        )
        if self.worth.reads:
            reply = await queries.read(episode, pool)
            scores = accuracy(reply.text, question.answers)
            record |= {name: scores[name] for name in ("exact_match", "f1")}
        if self.worth.rerank:
            scored = await episode.rerank(question.text, episode.passages(pool))
            record["rerank"] = sum(scored) / max(len(scored), 1)
        return record | {"hit": self._hit(question, episode.passages(pool))}

    def _hit(self, question: Question, passages: Sequence[Passage]) -> bool | None:
        """Whether the passages include a gold one, or contain an answer; None if undefined."""
        if self.worth.gold:
            return not set(self.gold[question.id]).isdisjoint(p.id for p in passages)
        answers = telling_answers(question)
        return any(passage_has(passage, answers) for passage in passages) if answers else None
