"""A run: a method answers the questions of a data set into a run directory.

A `Run` is a tree of frozen dataclasses of settings. `prepare` loads the models, the index and the
helpers that the method's `needs` name; `execute` sends its questions through the scheduler and
appends each answer to the run directory as soon as it is known.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from jaxrag.core.checks import check_choices
from jaxrag.core.file_states import one_start
from jaxrag.core.hashing import canonical
from jaxrag.core.progress import progress, run_log, tell
from jaxrag.core.store import Store
from jaxrag.core.tracking import Track, trackers, tracking
from jaxrag.data.dataset import Dataset, DataSettings, lacking, unanswered
from jaxrag.data.leakage import Leakage, check_evaluation
from jaxrag.data.origins import origins
from jaxrag.engines.language_model import LanguageModel, ModelSettings, gives_scores
from jaxrag.engines.local.inspection import InspectableModel
from jaxrag.engines.prompts import encoder_of
from jaxrag.engines.scheduler import QuestionOutcome, Scheduler
from jaxrag.evaluation import metrics
from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.report.tables import terminal_table
from jaxrag.evaluation.summary import summarise
from jaxrag.models import processes
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.retrieval.settings import IndexSettings, QueryLikelihood, RerankerSettings
from jaxrag.runs import model_check, shares
from jaxrag.runs.job import Outcome
from jaxrag.runs.loading import (
    check_model,
    describe,
    load_data,
    load_model,
    open_index_over,
)
from jaxrag.steps import prompts
from jaxrag.steps.episode import Method, answer_question
from jaxrag.steps.inspection_tool import InspectionTool
from jaxrag.steps.tools import (
    NO_INDEX,
    NO_INSPECTION,
    NO_RERANKER,
    HelperTool,
    LanguageModelTool,
    LoadedRun,
    Needs,
    RerankerTool,
    RetrieverTool,
    Tools,
    needs_of,
)
from jaxrag.text.answers import Normalization
from jaxrag.types import InputError, Passage, Question

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

_log = logging.getLogger("jaxrag")
_WRITTEN = 64  # answers written to the run directory at a time


class Repeated(NamedTuple):
    """A run that costs as much as a part of a job if it is executed ``times`` times; see `Job`."""

    run: Run
    times: float


@dataclasses.dataclass(frozen=True)
class Run:
    """All settings of a run.

    Attributes:
      method: a method's Config, with the settings of its helpers.
      data: questions and corpus.
      model: the language model that reads, and writes pseudo-contexts.
      index: the retriever; opened only if the method searches.
      reranker: loaded only if the method reranks.
      label: name in tables; "" is the method's name.
      limit: number of questions, from the first; 0 is all.
      live: maximum number of questions in progress.
      cache: directory of data sets, indexes and the store, kept between runs.
      store: file of the results of models and searches; "" is the cache's, "memory" keeps none
        after the run (then its seconds are those of computing everything).
      leakage: "keep" answers questions that the retriever or a helper of the method was trained on
        (see `jaxrag.data.leakage`), and is recorded; otherwise they are refused.
      check_model: whether a model is asked three easy questions before the first run with it (see
        `jaxrag.runs.model_check`); one that fails stops the run.
      normalization: how answers are compared with gold ones; "unicode", which is recorded, ignores
        differences of Unicode form, accents and all punctuation before SQuAD's normalisation.
    """

    method: Method
    data: DataSettings
    model: ModelSettings
    index: IndexSettings | None = None
    reranker: RerankerSettings | None = None
    label: str = ""
    limit: int = 0
    live: int = 4096
    cache: str = "runs/cache"
    store: str = ""
    leakage: Leakage = "refuse"
    normalization: Normalization = "squad"
    check_model: bool = True

    def __post_init__(self) -> None:
        check_choices(self, leakage=Leakage, normalization=Normalization)
        if self.limit < 0 or self.live < 1:
            raise InputError(
                f"limit is {self.limit} and live {self.live}: limit must be 0 (all) or more, "
                "live at least 1."
            )

    @property
    def name(self) -> str:
        """The label, or the method's name."""
        return self.label or self.method.name

    @property
    def needs(self) -> Needs:
        """What the method needs of the run."""
        return needs_of(self.method)

    def execute(self, workdir: str | Path) -> Outcome:
        """Answers the questions, or continues an interrupted run; shows its row of results.

        Of several processes (`jax.distributed`) each answers a share, see `jaxrag.runs.shares`;
        the first shows the row of all.

        Raises:
          InputError: the settings do not fit, or ``workdir`` holds a run with other settings.
        """
        counts = execute(self, workdir)
        if jax.process_index():
            return Outcome((), Path(workdir))
        shown: list[Any] = [terminal_table(summarise([workdir]))]
        if errors := counts["errors"]:
            shown.append(f"{errors} of {counts['questions']} questions failed; see answers.jsonl")
        return Outcome(tuple(shown), Path(workdir), errors)


class PreparedRun(NamedTuple):
    """A run ready to start: its data, questions and tools, and the contents of config.json."""

    dataset: Dataset
    questions: tuple[Question, ...]
    tools: Tools
    record: dict[str, Any]


def open_index(run: Run, cache: Path) -> Retriever | TextRetriever:
    """The index of the run's corpus, built if necessary.

    Raises:
      InputError: the run has no index, or an existing index does not match its settings.
    """
    if run.index is None:
        raise InputError(f"{run.name} has no index: set config.index.")
    return open_index_over(run.index, run.data, cache)


def check_needs(run: Run, *, given: Mapping[str, HelperTool] | None = None) -> None:
    """Checks, before anything is loaded, that the settings meet the method's needs.

    ``given`` are helpers that need no settings, as in `prepare`.

    Raises:
      InputError: something is missing, or a file of prompts cannot be read; the message names the
        setting or the file.
    """
    prompts.own_files(describe(run.method))
    needs = run.needs
    if needs.search and run.index is None:
        raise InputError(f"{run.name} searches, but the run has no index: set config.index.")
    if needs.vectors and run.index and not run.index.gives_vectors:
        raise InputError(
            f"{run.name} compares vectors, and the index {run.index.name} has none: choose one "
            "with an encoder, such as Exact or Scann, or settings of the method that do without, "
            "such as Top or Rerank as the selector of passages."
        )
    if needs.reranker and run.reranker is None:
        raise InputError(f"{run.name} reranks, but the run has no reranker: set config.reranker.")
    for field, helper in needs.helpers.items():
        if field not in (given or {}):
            helper.check(f"config.method.{field}")


def load_questions(run: Run, cache: Path) -> tuple[Dataset, tuple[Question, ...]]:
    """The data set, built on first use, and the questions of the run.

    Raises:
      InputError: the data cannot be loaded, there is no question, none has a gold answer, or a
        checkpoint was trained on some of them.
    """
    dataset = load_data(run.data, cache)
    questions = tuple(dataset.questions[: run.limit or len(dataset.questions)])
    if not questions:
        raise InputError(f"{dataset.name} has no questions under these settings.")
    if not any(question.answers for question in questions):
        raise InputError(
            f"No question of {dataset.name} has a gold answer, so answers to them cannot be "
            "evaluated. Compare retrievers by the passages that are known to be relevant: "
            "--config configs/retrieval.py:compare@DATA, with --config.data=NAME for a published "
            "set."
        )
    check_evaluation(questions, _checkpoints(run), name=dataset.label, leakage=run.leakage)
    return dataset, questions


def _checkpoints(run: Run) -> list[tuple[str, str]]:
    """Checkpoints of the retriever and of the method's helpers, with their settings."""
    needs, found = run.needs, []
    if needs.search and run.index is not None:
        found += [("config.index", spec) for spec in run.index.checkpoints]
    for field, helper in needs.helpers.items():
        found.append((f"config.method.{field}.checkpoint", helper.checkpoint or ""))
    return found


def settings_record(run: Run, dataset: Dataset, questions: Sequence[Question]) -> dict[str, Any]:
    """Contents of config.json as far as they are known without models and index."""
    needs, published = run.needs, origins(run.data)
    own = prompts.own_files(describe(run.method))
    return {
        "method": {**_described_method(run.method), "name": run.name},
        "dataset": {
            "name": dataset.name,
            "identity": dataset.identity,
            "questions": len(questions),
            "passages": len(dataset.passages),
            **describe(run.data),
            **({"published": published} if published else {}),
        },
        "language_model": {"name": run.model.name},
        "retriever": {"name": run.index.name} if needs.search and run.index else None,
        "reranker": {} if needs.reranker else None,
        "helpers": {field: {"name": helper.name} for field, helper in needs.helpers.items()},
        **({"leakage": run.leakage} if run.leakage != "refuse" else {}),
        **_normalization(run),
        **({"prompts": own} if own else {}),
    }


def _normalization(run: Run) -> dict[str, Any]:
    return {} if run.normalization == "squad" else {"normalization": run.normalization}


def _described_method(method: Method) -> dict[str, Any]:
    """A method's settings without its helpers', which are recorded by their identities.

    So a checkpoint may be moved, or run with another batch size.
    """
    found = describe(method)
    for field in needs_of(method).helpers:
        *parents, last = field.split(".")
        del functools.reduce(dict.__getitem__, parents, found)[last]
    return found


def _inspection(run: Run, model: LanguageModel) -> InspectionTool:
    if not isinstance(model, InspectableModel):
        raise InputError(
            f"{run.name} needs the model's attentions and hidden states, and the engine of "
            f"{run.model.name} ({type(run.model).__name__}) has none: use the local engine."
        )
    return InspectionTool(model)


def _limit(run: Run, model: LanguageModel) -> dict[str, int]:
    """The model's maximum length, on which results depend where passages are truncated."""
    encode = encoder_of(model)
    if encode is None:
        raise InputError(
            f"{run.name} truncates passages (reader.truncate), but the tokenizer or the maximum "
            f"length of {run.model.name} is not known: for a server, set `tokenizer` to the "
            "model's checkpoint and let the server report max_model_len (or set max_length), or "
            "set reader.truncate=False."
        )
    return {"max_length": encode.max_length}


@one_start()
def prepare(run: Run, cache: Path, *, given: Mapping[str, HelperTool] | None = None) -> PreparedRun:
    """Loads the data, models, index and helpers of a run.

    Args:
      run: the run.
      cache: directory of data sets and indexes.
      given: loaded helpers, by the method's field; their settings are ignored.

    Raises:
      InputError: something cannot be loaded, or does not meet the method's needs.
    """
    check_needs(run, given=given)
    dataset, questions = load_questions(run, cache)
    tools, identities = load_tools(run, cache, given=given)
    record = settings_record(run, dataset, questions)
    for name, identity in identities.items():
        record[name] |= identity
    for field, helper in run.needs.helpers.items():
        record["helpers"][field] |= json.loads(tools.helpers[helper].identity)
    return PreparedRun(dataset, questions, tools, record)


def _language_model(run: Run, cache: Path) -> LanguageModel:
    """The run's language model, loaded once; InputError if the method needs what it lacks."""
    model, needs = load_model(run.model, cache), run.needs
    if needs.logprobs and not model.gives_logprobs:
        raise InputError(
            f"{run.name} decides by the log-probabilities of the model's answers, and "
            f"{run.model.name} gives none: choose another model, or a gate that does without."
        )
    reranks = needs.reranker and isinstance(run.reranker, QueryLikelihood)
    if (needs.scores or reranks) and not gives_scores(model):
        raise InputError(
            f"{run.name} compares the log-probabilities of given texts, and {run.model.name} gives "
            "none: of a server, name the model's checkpoint as config.model.tokenizer; or choose "
            "another engine, or settings that do without (by=text, another reranker)."
        )
    if needs.prompt_length:
        _limit(run, model)
    if needs.inspection:
        _inspection(run, model)
    return model


@one_start()
def load_tools(
    run: Run, cache: Path, *, given: Mapping[str, HelperTool] | None = None
) -> tuple[Tools, dict[str, Any]]:
    """The models, index and helpers of a run, as its method uses them; without its questions.

    Args:
      run: the run.
      cache: directory of data sets and indexes.
      given: as in `prepare`.

    Returns:
      The tools, and the identities of language model, retriever and reranker.

    Raises:
      InputError: something cannot be loaded, or does not meet the method's needs.
    """
    needs, given = run.needs, given or {}
    language_model = functools.partial(_language_model, run, cache)
    check_model(run.model, cache)
    if run.model.checkpoint is None:  # a server: what it lacks is known before an index is built
        language_model()
    retriever = open_index(run, cache) if needs.search else None
    reranker = run.reranker.load(language_model, cache) if needs.reranker and run.reranker else None
    loaded = LoadedRun(
        run.method, language_model, retriever, lambda other: load_model(other, cache), cache
    )
    helpers = {
        helper: given[field] if field in given else helper.load(loaded)
        for field, helper in needs.helpers.items()
    }
    model = language_model()  # last: its batches are sized by the memory that is still free
    limit = _limit(run, model) if needs.prompt_length else {}
    inspection = _inspection(run, model) if needs.inspection else NO_INSPECTION
    tools = Tools(
        llm=LanguageModelTool(model),
        retriever=RetrieverTool(retriever) if retriever else NO_INDEX,
        reranker=RerankerTool(reranker) if reranker else NO_RERANKER,
        inspection=inspection,
        helpers=helpers,
    )
    identities = {"language_model": json.loads(model.identity) | limit}
    for name, part in (("retriever", retriever), ("reranker", reranker)):
        if part is not None:
            identities[name] = json.loads(part.identity)
    return tools, identities


def store_path(store: str, cache: str) -> Path | None:
    """The file of a store, of the settings of a run or job; None keeps it in memory."""
    if store == "memory":
        return None
    return Path(store) if store else Path(cache) / "store.sqlite"


@one_start()
def execute(run: Run, workdir: str | Path) -> dict[str, Any]:
    """Executes or continues a run; returns the contents of metrics.json.

    A question that fails is recorded with its error and does not stop the others. Of several
    processes each answers its share (`jaxrag.runs.shares`); all but the first return nothing.

    Raises:
      InputError: the settings do not fit, or ``workdir`` holds a run with other settings.
    """
    trackers()
    cache, workdir = Path(run.cache), Path(workdir)
    count, process = jax.process_count(), jax.process_index()
    if count == 1:
        return _execute_alone(run, prepare(run, cache), workdir)
    loaded = prepare(run, cache)
    with contextlib.ExitStack() as held:
        if not process:  # refuses another run's directory before anything is computed
            whole = held.enter_context(RunDirectory.open(workdir, loaded.record))
        track = held.enter_context(tracking(workdir, writes=not process))
        share = shares.share_directory(workdir, process)
        with RunDirectory.open(share, loaded.record) as directory:
            own, done = processes.share_of(loaded.questions), shares.answered(workdir)
            _answer_all(run, loaded, own, directory, done | directory.finished, track)
        jax.distributed.shutdown()  # waits for the others
        if process:
            return {}
        shares.put_together(workdir, whole, loaded.questions, count)
        return _finish(run, loaded, whole, track)


def _execute_alone(run: Run, loaded: PreparedRun, workdir: Path) -> dict[str, Any]:
    """Answers all questions in this process."""
    with RunDirectory.open(workdir, loaded.record) as directory, tracking(workdir) as track:
        _answer_all(run, loaded, loaded.questions, directory, directory.finished, track)
        return _finish(run, loaded, directory, track)


def _corpus(run: Run, loaded: PreparedRun) -> Passages:
    return loaded.tools.retriever.corpus if run.needs.search else loaded.dataset.passages


def _finish(run: Run, loaded: PreparedRun, directory: RunDirectory, track: Track) -> dict[str, Any]:
    """Writes the metrics of all questions, and the passages that the answers name."""
    named = _corpus(run, loaded).find(directory.named_passages())
    found = directory.finish([q.id for q in loaded.questions], passages=named)
    track(len(loaded.questions), {"result": found})
    return found


def _answer_all(
    run: Run,
    loaded: PreparedRun,
    questions: Sequence[Question],
    directory: RunDirectory,
    done: frozenset[str],
    track: Track,
) -> None:
    """Answers the questions that are not ``done`` into a run directory."""
    store = Store(store_path(run.store, run.cache))
    try:
        with run_log(directory.path / "log.jsonl"):
            todo = [question for question in questions if question.id not in done]
            scheduler = Scheduler(store, live=run.live, before=_model_check(run, loaded, store))
            _answer(run, loaded, todo, len(questions), scheduler, directory, track)
    finally:
        store.close()


def _model_check(run: Run, loaded: PreparedRun, store: Store) -> Callable[[], None]:
    """Checks the model, before it answers the first question; see `jaxrag.runs.model_check`."""
    if not run.check_model:
        return lambda: None
    llm, reader = loaded.tools.llm, model_check.reader_of(run.method)
    return lambda: model_check.check_before(run.name, llm, reader, store, Path(run.cache))


def _answer(
    run: Run,
    loaded: PreparedRun,
    todo: Sequence[Question],
    count: int,
    scheduler: Scheduler,
    directory: RunDirectory,
    track: Track,
) -> None:
    """Answers questions, of ``count`` in all.

    The progress line is updated after every batch of an engine, not only when questions end.
    """
    dataset, asked, tools, _ = loaded
    passages = _corpus(run, loaded)
    label, tally, failures = f"{run.name} on {dataset.name}", Tally(), _Failures()
    fields = {"run": label, "questions": count, "left": len(todo)}
    _log.info("started", extra={"fields": fields})
    for note in (unanswered(dataset, asked), lacking(dataset, asked)):
        if note:
            _log.warning(note)
    if todo:
        tell(f"{label}: {len(todo):,} questions to answer; new batch shapes are compiled first")
    done = count - len(todo)
    with progress(count, label, done=done) as advance:

        def on_batch(name: str, size: int) -> None:
            tally.request(name, size)
            advance(0, tally.note())

        scheduler.on_batch = on_batch
        ended = scheduler.run(
            (q, functools.partial(answer_question, run.method, q, tools)) for q in todo
        )
        while batch := list(itertools.islice(ended, _WRITTEN)):
            lines = _lines(run, batch, dataset, passages)
            timings = list(map(_timing, batch))
            failures.report(batch)
            directory.append(lines, timings)
            tally.add(lines, timings)
            _log.info("progress", extra={"fields": tally.fields()})
            done += len(batch)
            track(done, {"progress": tally.fields()})
            advance(len(batch), tally.note())
    failures.end()
    _log.info("finished", extra={"fields": tally.fields()})


def _timing(one: QuestionOutcome) -> dict[str, Any]:
    spent = {name: getattr(one, name) for name in ("seconds", "store_hits", "stored")}
    return {"question_id": one.id.id, **spent}


def _lines(
    run: Run, batch: Sequence[QuestionOutcome], dataset: Dataset, passages: Passages
) -> list[dict[str, Any]]:
    """Lines of answers.jsonl; the first passage of each question is read from disk in one call."""
    first = {name for one in batch for name in _selected(one)[:1]}
    known = {passage.id: passage for passage in passages.find(sorted(first))}
    return [_line(run, one, dataset, known) for one in batch]


def _selected(ended: QuestionOutcome) -> Sequence[str]:
    trace = {} if ended.error is not None else ended.value.trace
    return trace.get("selected", {}).get("ids", ())


def _line(
    run: Run, ended: QuestionOutcome, dataset: Dataset, known: Mapping[str, Passage]
) -> dict[str, Any]:
    question: Question = ended.id
    line: dict[str, Any] = {
        "question_id": question.id,
        "question": question.text,
        "gold_answers": list(question.answers),
        "gold_passages": list(dataset.gold.get(question.id, ())),
        **_normalization(run),
    }
    if ended.error is not None:
        return {**line, "error": f"{type(ended.error).__name__}: {ended.error}"}
    # Branches may have written into the trace in any order; sorted keys make the bytes the same.
    trace = json.loads(canonical(ended.value.trace))
    if "ids" in trace.get("selected", {}):
        first = next((known[name] for name in _selected(ended)), None)
        holds = metrics.holds_answer(question, first, run.normalization)
        if holds is not None:
            line["top_holds_answer"] = holds
    return {**line, "prediction": ended.value.text, "trace": trace, "cost": ended.cost}


class _Failures:
    """Reports each error once, with the first question that it stopped, and counts the others."""

    def __init__(self) -> None:
        self._questions: dict[str, list[str]] = {}

    def report(self, batch: Sequence[QuestionOutcome]) -> None:
        """Logs the errors that are new among the outcomes."""
        for ended in batch:
            if ended.error is None:
                continue
            text, first = str(ended.error), {"question_id": ended.id.id}
            if text not in self._questions:
                _log.warning("question %s failed: %s", ended.id.id, text, extra={"fields": first})
            self._questions.setdefault(text, []).append(ended.id.id)

    def end(self) -> None:
        """Logs how often the repeated errors came."""
        for first, *others in self._questions.values():
            if others:
                fields = {"question_id": first, "others": len(others)}
                message = "question %s and %d others have the same error"
                _log.warning(message, first, len(others), extra={"fields": fields})


class Tally:
    """Sums over the questions that this process has answered, for the log and the progress line."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()

    def request(self, name: str, size: int) -> None:
        """Counts requests answered by an engine; ``name`` is "generate", "search" and so on."""
        self._requests[name] += size

    def add(self, lines: Iterable[Mapping[str, Any]], timings: Iterable[Mapping[str, Any]]) -> None:
        """Adds lines of answers.jsonl and timings.jsonl."""
        for line in lines:
            self._counts["questions"] += 1
            if "error" in line:
                self._counts["errors"] += 1
                continue
            self._counts["retrieved"] += int(metrics.gate(line)["trigger"])
            self._counts["truncated"] += int("truncated" in line["trace"])
            if any(not one["ids"] for one in line["trace"].get("searches", ())):
                self._counts["empty_searches"] += 1
            self._counts.update(line["cost"])
        for timing in timings:
            self._counts["store_hits"] += timing["store_hits"]

    def fields(self) -> dict[str, int]:
        """The counts by name."""
        return dict(sorted(self._counts.items()))

    def note(self) -> str:
        """A short summary; until the first question ends, of the requests answered."""
        counts = self._counts
        if not counts["questions"]:
            requests = sorted(self._requests.items())
            return "requests answered: " + ", ".join(f"{name} {_short(n)}" for name, n in requests)
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
    """A count with three significant digits, such as 12.3k."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:.3g}{letter}"
    return str(count)
