"""A run: a method answers the questions of a data set into a run directory.

A `Run` is a tree of frozen dataclasses of settings. `execute` takes four steps, each of which gets
what the one before has found: `check`, `load`, `answer` (through the scheduler, each answer
appended to the run directory as soon as it is known) and `record`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrag.core.file_states import one_start
from jaxrag.core.progress import progress, run_log, tell
from jaxrag.core.store import Store, store_path
from jaxrag.core.tracking import trackers
from jaxrag.data.dataset import Dataset, lacking, unanswered
from jaxrag.engines.scheduler import Scheduler
from jaxrag.evaluation.records import check_place
from jaxrag.evaluation.report.tables import terminal_table
from jaxrag.evaluation.summary import summarise
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.runs import model_check, shares
from jaxrag.runs.calibration import calibrated
from jaxrag.runs.calls import expected_costs
from jaxrag.runs.job import Outcome
from jaxrag.runs.loading import check_model
from jaxrag.runs.needs import Requiring, check_needs
from jaxrag.runs.parts import load_questions, load_tools, with_loadable_index
from jaxrag.runs.run_record import answer_lines, settings_record, timing_line
from jaxrag.runs.settings import RunSettings
from jaxrag.runs.tally import Failures, Tally
from jaxrag.steps import kinds, prompts
from jaxrag.steps.episode import answer_question
from jaxrag.steps.tools import HelperTool, Tools
from jaxrag.types import Question

_log = logging.getLogger("jaxrag")
_WRITTEN = 64  # answers written to the run directory at a time


@dataclasses.dataclass(frozen=True)
class Run(RunSettings):
    """A run: its settings (see `jaxrag.runs.settings.RunSettings`), and its execution."""

    def execute(self, workdir: str | Path) -> Outcome:
        """Answers the questions, or continues an interrupted run; shows its row of results.

        Of several processes (`jax.distributed`) each answers a share, see `jaxrag.runs.shares`; the
        first shows the row of all. InputError if the settings do not fit, or ``workdir`` holds a
        run with other settings.
        """
        counts = execute(self, workdir)
        if jax.process_index():
            return Outcome((), Path(workdir))
        lines: list[Any] = [terminal_table(summarise([workdir]))]
        if errors := counts["errors"]:
            lines.append(f"{errors} of {counts['questions']} questions failed; see answers.jsonl")
        return Outcome(tuple(lines), Path(workdir), errors)


class LoadedQuestions(NamedTuple):
    """The questions of a run with all that answers them.

    ``corpus`` are the passages that are searched, or else the data set's; ``record`` are the
    contents of config.json.
    """

    dataset: Dataset
    questions: tuple[Question, ...]
    tools: Tools
    corpus: Passages
    record: dict[str, Any]


@one_start()
def execute(run: Run, workdir: str | Path) -> dict[str, Any]:
    """Executes or continues a run; returns the contents of metrics.json.

    A question that fails is recorded with its error and does not stop the others. Of several
    processes each answers its share (`jaxrag.runs.shares`); all but the first return nothing.
    InputError if the settings do not fit, or ``workdir`` holds a run with other settings.
    """
    run = with_loadable_index(run)
    check(run)
    check_place(Path(workdir))
    run, calibration = calibrated(run, Path(workdir), execute)
    loaded = load(run)
    loaded.record.update({"calibration": calibration} if calibration else {})
    with shares.opened(Path(workdir), loaded.record, loaded.questions) as share:
        answer(run, loaded, share)
        return record(loaded, share) if share.joined() else {}


def check(run: Run) -> None:
    """Finds, before anything is loaded, what would stop the run later.

    InputError if the settings do not meet the method's needs, a package or devices are missing, a
    checkpoint is not there, or a server lacks the model; EngineDown if a server does not answer.
    """
    trackers()
    check_needs(run)
    index = run.index if run.needs.search else None
    for part in (run.model, index, run.reranker if run.needs.reranker else None):
        if isinstance(part, Requiring):
            part.require()
    check_model(run.model, Path(run.cache))


@one_start()
def load(run: Run, *, given: Mapping[str, HelperTool] | None = None) -> LoadedQuestions:
    """Loads the data, models, index and helpers of a run.

    ``given`` are loaded helpers, by the method's field; their settings are ignored. InputError if
    something cannot be loaded, or does not meet the method's needs.
    """
    check_needs(run, given=given)
    cache = Path(run.cache)
    dataset, questions = load_questions(run, cache)
    reader = run.method.reader
    if reader.by != "text":
        kinds.check_roles(questions, prompts.load(reader.prompts))
    tools, identities = load_tools(run, cache, given=given)
    settings = settings_record(run, dataset, questions)
    for name, identity in identities.items():
        settings[name] |= identity
    for field, helper in run.needs.helpers.items():
        settings["helpers"][field] |= json.loads(tools.helpers[helper].identity)
    corpus = tools.retriever.corpus if run.needs.search else dataset.passages
    return LoadedQuestions(dataset, questions, tools, corpus, settings)


def answer(run: Run, loaded: LoadedQuestions, share: shares.Share) -> None:
    """Answers the questions of a share that have no answer yet into its directory."""
    store = Store(store_path(run.store, run.cache))
    try:
        with run_log(share.directory.path / "log.jsonl"):
            llm, reader = loaded.tools.llm, model_check.reader_of(run.method)
            arguments = run.name, llm, reader, store, Path(run.cache)
            before = functools.partial(model_check.check_before, *arguments)
            first = {"before": before} if run.check_model else {}
            scheduler = Scheduler(store, live=run.live, **first)
            _answer(run, loaded, scheduler, share)
    finally:
        store.close()


def record(loaded: LoadedQuestions, share: shares.Share) -> dict[str, Any]:
    """Writes the metrics of all questions, and the passages that the answers name."""
    passages = loaded.corpus.find(share.whole.named_passages())
    results = share.whole.finish([q.id for q in loaded.questions], passages=passages)
    share.track(len(loaded.questions), {"result": results})
    return results


def _answer(run: Run, loaded: LoadedQuestions, scheduler: Scheduler, share: shares.Share) -> None:
    dataset, questions, tools, *_ = loaded
    count, todo, directory = share.count, share.todo, share.directory
    label, tally, failures = f"{run.name} on {dataset.name}", Tally(), Failures()
    fields = {"run": label, "questions": count, "left": len(todo)}
    _log.info("started", extra={"fields": fields})
    for note in (unanswered(dataset, questions), lacking(dataset, questions)):
        if note:
            _log.warning(note)
    if todo:
        tell(f"{label}: {len(todo):,} questions to answer; new batch shapes are compiled first")
    done = count - len(todo)
    costs = expected_costs(run, Counter(map(kinds.task_of, questions))) or {}
    expected = len(todo) * (costs.get("llm_calls", 0) + costs.get("searches", 0))
    with progress(count, label, done=done) as advance:

        def on_batch(name: str, size: int) -> None:
            tally.request(name, size)
            advance(0, tally.note(), share=tally.share(expected))

        scheduler.on_batch = on_batch
        ended = scheduler.run(
            (q, functools.partial(answer_question, run.method, q, tools)) for q in todo
        )
        while batch := list(itertools.islice(ended, _WRITTEN)):
            lines = answer_lines(run, batch, loaded.dataset, loaded.corpus)
            timings = list(map(timing_line, batch))
            failures.report(batch)
            directory.append(lines, timings)
            tally.add(lines, timings)
            _log.info("progress", extra={"fields": tally.fields()})
            done += len(batch)
            share.track(done, {"progress": tally.fields()})
            advance(len(batch), tally.note(), share=tally.share(expected))
    failures.end()
    _log.info("finished", extra={"fields": tally.fields()})
