"""Answering a run's questions in the scheduler, and writing down what came of each."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxrag.core.hashing import canonical
from jaxrag.core.progress import progress
from jaxrag.data.dataset import Dataset
from jaxrag.engines.scheduler import Outcome, Scheduler
from jaxrag.evaluation.metrics import holds_answer
from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.tally import Tally
from jaxrag.types import Answer, Passage, Question

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

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
        if (holds := holds_answer(question, top)) is not None:
            line["top_holds_answer"] = holds
    return {**line, "prediction": outcome.value.text, "trace": trace, "cost": outcome.cost}
