"""Answers a run's questions by the scheduler and appends each to the run directory."""

from __future__ import annotations

import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxrag.core.hashing import canonical
from jaxrag.core.progress import progress
from jaxrag.data.dataset import Dataset
from jaxrag.engines.scheduler import Outcome, Scheduler
from jaxrag.evaluation import metrics
from jaxrag.evaluation.records import RunDirectory
from jaxrag.types import Answer, Passage, Question

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages


class Tally:
    """Sums over the questions that this process has answered."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()

    def request(self, name: str, size: int) -> None:
        """Counts requests that an engine has answered: "generate", "search" and so on."""
        self._requests[name] += size

    def add(self, lines: Iterable[Mapping[str, Any]], timings: Iterable[Mapping[str, Any]]) -> None:
        """Counts lines of answers.jsonl and timings.jsonl."""
        for line in lines:
            self._counts["questions"] += 1
            if "error" in line:
                self._counts["errors"] += 1
                continue
            self._counts["retrieved"] += int(metrics.gate(line)["trigger"])
            self._counts["truncated"] += int("truncated" in line["trace"])
            self._counts.update(line["cost"])
        for timing in timings:
            self._counts["store_hits"] += timing["store_hits"]

    def fields(self) -> dict[str, int]:
        """The counts by name."""
        return dict(sorted(self._counts.items()))

    def note(self) -> str:
        """The counts that matter, in one short text; before a question ends, what was asked."""
        counts = self._counts
        if not counts["questions"]:
            asked = sorted(self._requests.items())
            return "requests answered: " + ", ".join(f"{name} {_short(n)}" for name, n in asked)
        answered = counts["questions"] - counts["errors"]
        parts = [f"retrieves {100 * counts['retrieved'] / max(answered, 1):.0f} %"]
        parts += [f"{_short(counts['llm_calls'])} LLM calls"]
        parts += [f"{_short(counts['prompt_tokens'] + counts['new_tokens'])} tokens"]
        parts += [f"{_short(counts['store_hits'])} from the store"]
        if counts["truncated"]:
            parts.append(f"{counts['truncated']} with passages cut")
        if counts["errors"]:
            parts.append(f"{counts['errors']} errors")
        return ", ".join(parts)


def _short(count: int) -> str:
    """A count in at most four characters and a letter."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:.3g}{letter}"
    return str(count)


_log = logging.getLogger("jaxrag")
_WRITTEN = 64  # answers that are written to the run directory at a time

Started = Iterable[tuple[Question, Callable[[], Coroutine[Any, Any, Answer]]]]


class Asked(NamedTuple):
    """What is asked, and of what.

    Attributes:
      what: the run, for progress.
      total, left: questions of the run, and of those how many have no answer yet.
      dataset: whose gold passages go into the record.
      passages: which the method's searches find.
    """

    what: str
    total: int
    left: int
    dataset: Dataset
    passages: Passages


def answer_all(
    asked: Asked, started: Started, scheduler: Scheduler, directory: RunDirectory
) -> None:
    """Answers questions and appends each to the run directory as it is done.

    A question that fails is recorded with its error and does not stop the others. The progress line
    goes on with every batch that an engine has answered, not only as questions end.
    """
    tally, fields = Tally(), {"run": asked.what, "questions": asked.total, "left": asked.left}
    _log.info("started", extra={"fields": fields})
    with progress(asked.total, asked.what, done=asked.total - asked.left) as advance:

        def heard(name: str, size: int) -> None:
            tally.request(name, size)
            advance(0, tally.note())

        scheduler.on_batch = heard
        outcomes = scheduler.run(started)
        while batch := list(itertools.islice(outcomes, _WRITTEN)):
            _write(directory, batch, asked, tally)
            advance(len(batch), tally.note())
    _log.info("finished", extra={"fields": tally.fields()})


def _write(directory: RunDirectory, outcomes: list[Outcome], asked: Asked, tally: Tally) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            name = outcome.id.id
            fields = {"question_id": name}
            _log.warning("question %s failed: %s", name, outcome.error, extra={"fields": fields})
    tops = _top_passages(outcomes, asked.passages)
    lines = [_line(outcome, asked.dataset, tops) for outcome in outcomes]
    timings = [
        {"question_id": o.id.id, "seconds": o.seconds, "store_hits": o.store_hits} for o in outcomes
    ]
    directory.append(lines, timings)
    tally.add(lines, timings)
    _log.info("progress", extra={"fields": tally.fields()})


def _top_passages(outcomes: list[Outcome], passages: Passages) -> dict[str, Passage]:
    """The first passage that each reader was given, by id, read at once."""
    names = {name for outcome in outcomes for name in _selected(outcome)[:1]}
    return {passage.id: passage for passage in passages.find(sorted(names))}


def _selected(outcome: Outcome) -> Sequence[str]:
    trace = {} if outcome.error is not None else outcome.value.trace
    return trace.get("selected", {}).get("ids", ())


def _line(outcome: Outcome, dataset: Dataset, tops: Mapping[str, Passage]) -> dict[str, Any]:
    question: Question = outcome.id
    line: dict[str, Any] = {
        "question_id": question.id,
        "question": question.text,
        "gold_answers": list(question.answers),
        "gold_passages": list(dataset.gold.get(question.id, ())),
    }
    if outcome.error is not None:
        return {**line, "error": f"{type(outcome.error).__name__}: {outcome.error}"}
    # Branches may have written into the trace in any order; sorted keys make the bytes the same.
    trace = json.loads(canonical(outcome.value.trace))
    if "ids" in trace.get("selected", {}):
        top = next((tops[name] for name in _selected(outcome)), None)
        if (holds := metrics.holds_answer(question, top)) is not None:
            line["top_holds_answer"] = holds
    return {**line, "prediction": outcome.value.text, "trace": trace, "cost": outcome.cost}
