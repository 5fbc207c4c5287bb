"""What a rewriter's queries are worth: by what they find, and by what the reader makes of that.

Ma et al. (2023): EM + F1 + hit, the last 1 or -1. Reader and index are asked through the scheduler
and the store, so that nothing is paid for twice.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from jaxrag.core.store import Store
from jaxrag.data.dataset import Dataset
from jaxrag.engines.scheduler import Scheduler
from jaxrag.evaluation.metrics import accuracy
from jaxrag.methods.errr import queries, rrr
from jaxrag.methods.errr.ppo.figures import columns
from jaxrag.steps.asking import Trace
from jaxrag.steps.tools import Tools
from jaxrag.text.answers import contains
from jaxrag.text.query_lists import ParsedQueries, parse_queries
from jaxrag.training.ppo.settings import check
from jaxrag.types import Generation, InputError, Question

_log = logging.getLogger("jaxrag")


@dataclasses.dataclass(frozen=True)
class Worth:
    """What queries are worth: EM + F1 + hit, the last 1 or -1 (Ma et al., 2023; released code).

    Attributes:
      exact_match, f1: weights of how the reader answers; where both are 0 it is not asked.
      hit: weight of whether what is read holds an answer: 1 where it does, -1 where it does not.
      gold: a hit is a gold passage among what is read, not an answer in its text.
    """

    exact_match: float = 1.0
    f1: float = 1.0
    hit: float = 1.0
    gold: bool = False

    def __post_init__(self) -> None:
        for name in ("exact_match", "f1", "hit"):
            check(f"worth.{name}", getattr(self, name))
        if not self.reads and not self.hit:
            raise InputError("All weights of worth are 0: no text would be worth anything.")

    @property
    def reads(self) -> bool:
        """Whether the reader is asked."""
        return bool(self.exact_match or self.f1)


def usable(dataset: Dataset, worth: Worth, limit: int) -> list[Question]:
    """The questions whose queries can be rewarded, at most ``limit`` of them where that is not 0.

    Raises:
      InputError: there is none.
    """
    needs = (worth.reads or (worth.hit and not worth.gold), bool(worth.hit and worth.gold))
    found = [
        question
        for question in dataset.questions
        if (question.answers or not needs[0]) and (dataset.gold.get(question.id) or not needs[1])
    ]
    what = " and ".join(
        name for name, need in zip(("gold answers", "gold passages"), needs, strict=True) if need
    )
    if not found:
        raise InputError(
            f"No question of {dataset.name} has {what}, by which its queries would be rewarded."
        )
    if len(found) < len(dataset.questions):
        _log.warning(
            "%d of %d questions of %s have no %s and are left out",
            len(dataset.questions) - len(found), len(dataset.questions), dataset.name, what,
        )  # fmt: skip
    return found[: limit or None]


@dataclasses.dataclass(frozen=True)
class Rewards:
    """The reward of texts by what is found, and answered, with the queries in them."""

    method: rrr.Config
    live: int
    worth: Worth
    dataset: Dataset
    gold: Mapping[str, Sequence[str]]
    tools: Tools
    store: Store

    def __call__(
        self, questions: Sequence[Question], texts: Sequence[Generation]
    ) -> tuple[list[float], list[dict[str, Any]]]:
        """Rewards, and of each text its queries, whether they could be read, and its figures.

        Raises:
          InputError: a question could not be answered; what others came to is stored.
        """
        most = self.method.rewriter.most
        found = [
            parse_queries(
                one.text, question.text, limit=most, truncated=one.finish_reason == "length"
            )
            for question, one in zip(questions, texts, strict=True)
        ]
        return self._of(questions, found)

    def of_questions(self, questions: Sequence[Question]) -> dict[str, Any]:
        """The figures of the questions themselves as queries, each "itself ..."."""
        rewards, records = self._of(questions, [ParsedQueries((q.text,), True) for q in questions])
        own = columns(rewards, records)
        return {f"itself {name}": own[name] for name in own if name != "parsed"}

    def _of(
        self, questions: Sequence[Question], found: Sequence[ParsedQueries]
    ) -> tuple[list[float], list[dict[str, Any]]]:
        records: list[Any] = [None] * len(questions)
        asked = enumerate(zip(questions, found, strict=True))
        tasks = ((number, self._task(question, some)) for number, (question, some) in asked)
        failed: list[tuple[str, Exception]] = []
        for outcome in Scheduler(self.store, live=self.live).run(tasks):
            if outcome.error is not None:
                failed.append((questions[outcome.id].id, outcome.error))
            else:
                records[outcome.id] = outcome.value
        if failed:
            name, error = failed[0]
            raise InputError(f"Question {name}: {error}") from error
        return [self._worth(record) for record in records], records

    def _worth(self, record: Mapping[str, Any]) -> float:
        total = self.worth.hit * (1.0 if record["hit"] else -1.0)
        if self.worth.reads:
            total += self.worth.exact_match * record["exact_match"] + self.worth.f1 * record["f1"]
        return total

    def _task(
        self, question: Question, found: ParsedQueries
    ) -> Callable[[], Coroutine[Any, Any, dict[str, Any]]]:
        async def judged() -> dict[str, Any]:
            trace = Trace()
            record: dict[str, Any] = {"queries": list(found.texts), "parsed": found.parsed}
            if self.worth.reads:
                given = found.texts, self.tools, self.method, trace
                answer = await queries.search_and_read(question, *given)
                scores = accuracy(answer.text, question.answers)
                record |= {name: scores[name] for name in ("exact_match", "f1")}
            else:
                await queries.search_for(
                    question, found.texts, self.tools, self.method.search, trace,
                    itself=self.method.search_question,
                )  # fmt: skip
            return record | {"hit": self._hit(question, trace["selected"]["ids"])}

        return judged

    def _hit(self, question: Question, ids: Sequence[str]) -> bool:
        """Whether what is read holds a gold passage, or an answer."""
        if self.worth.gold:
            return not set(self.gold[question.id]).isdisjoint(ids)
        passages = self.dataset.passages.find(ids)
        return any(contains(f"{p.title} {p.text}", question.answers) for p in passages)
