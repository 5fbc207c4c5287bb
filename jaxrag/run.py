"""One run: a method over a data set, from settings to a run directory.

A `Run` is a tree of frozen dataclasses; `execute` does what it says. The scripts in
``experiments`` and the notebooks are thin layers over this file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import inspect
import itertools
import json
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from jaxrag.data.dataset import Dataset
from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.progress import progress
from jaxrag.engines.prompts import encoder_of
from jaxrag.engines.scheduler import Outcome, Scheduler
from jaxrag.engines.store import Store, canonical, digest
from jaxrag.evaluation.metrics import holds_answer
from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.run_log import run_log
from jaxrag.evaluation.tally import Tally
from jaxrag.methods.tools import LanguageModelTool, RerankerTool, RetrieverTool, Tools
from jaxrag.retrieval.manifest import enough_space
from jaxrag.retrieval.rerank import Reranker
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.types import Answer, InputError, Passage, Question

_log = logging.getLogger("jaxrag")
_WRITTEN = 64  # answers that are written to the run directory at a time


class DataSettings(Protocol):
    """Which questions and passages; see `jaxrag.settings`."""

    def load(self, cache: Path) -> Dataset:
        """Reads the data, building it under ``cache`` on first use."""
        ...


class ModelSettings(Protocol):
    """Which language model."""

    @property
    def name(self) -> str:
        """For tables."""
        ...

    def load(self, cache: Path) -> LanguageModel:
        """Loads the model; compiled programs go under ``cache``."""
        ...


class IndexSettings(Protocol):
    """Which encoder and index.

    One whose index is a `TextRetriever` says so by an attribute ``gives_vectors``, False.
    """

    @property
    def name(self) -> str:
        """For tables."""
        ...

    def open(self, dataset: Dataset, cache: Path) -> Retriever | TextRetriever:
        """Opens the index of the data's passages, building it on first use."""
        ...


class RerankerSettings(Protocol):
    """Which reranker."""

    def load(self, model: LanguageModel, cache: Path) -> Reranker:
        """Loads the reranker; ``model`` is the run's language model."""
        ...


@dataclasses.dataclass(frozen=True)
class Run:
    """All settings of a run.

    Attributes:
      method: the config of a method's file; that file's ``answer`` is run.
      data: the questions and the corpus.
      model: the language model that reads (and writes pseudo-contexts).
      index: the retriever; None for a method that never searches.
      reranker: for methods that rerank.
      judge: the model that judges in LLM Judge; None is ``model``.
      label: name in tables; by default the method's file.
      limit: how many questions, from the first; 0 is all.
      live: most questions in progress at once.
      cache: where data sets, indexes and the store are kept between runs.
    """

    method: Any
    data: DataSettings
    model: ModelSettings
    index: IndexSettings | None = None
    reranker: RerankerSettings | None = None
    judge: ModelSettings | None = None
    label: str = ""
    limit: int = 0
    live: int = 4096
    cache: str = "runs/cache"

    def __post_init__(self) -> None:
        if self.limit < 0 or self.live < 1:
            raise InputError(
                f"limit is {self.limit} and live {self.live}: limit must be 0 (all) or more, "
                "live at least 1."
            )

    @property
    def name(self) -> str:
        """The label, or the method's."""
        return self.label or type(self.method).__module__.rpartition(".")[2]


def answer_function(run: Run) -> Callable[[Question, Tools, Any], Coroutine[Any, Any, Answer]]:
    """The ``answer`` of the file that the method's config comes from."""
    module = sys.modules[type(run.method).__module__]
    function = getattr(module, "answer", None)
    if not inspect.iscoroutinefunction(function):
        raise InputError(
            f"{module.__name__} has no `async def answer(question, tools, config)` beside its "
            f"{type(run.method).__name__}."
        )
    return function


@contextlib.contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Waits for other processes that prepare the same, and finds done what they did."""
    with enough_space(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        stream = lock.open("w")
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.warning("another process is building here: waiting until it lets go of %s", lock)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@functools.cache
def load_data(settings: DataSettings, cache: Path) -> Dataset:
    """The data set of some settings, read once; built on first use, by one process at a time."""
    with _one_at_a_time(cache / "data.lock"):
        return settings.load(cache / "data")


@functools.cache
def load_model(settings: ModelSettings, cache: Path) -> LanguageModel:
    """The model of some settings, loaded once."""
    return settings.load(cache)


@functools.cache
def open_index_over(
    settings: IndexSettings, data: DataSettings, cache: Path
) -> Retriever | TextRetriever:
    """The index of a data set's passages, opened once; built as `load_data` builds."""
    dataset = load_data(data, cache)
    with _one_at_a_time(cache / "indexes.lock"):
        return settings.open(dataset, cache)


def open_index(run: Run, cache: Path) -> Retriever | TextRetriever:
    """The index of the run's corpus, built where it is not there yet.

    Raises:
      InputError: the run has no index, or what is there does not fit.
    """
    if run.index is None:
        raise InputError(f"{run.name} has no index: set config.index.")
    return open_index_over(run.index, run.data, cache)


def describe(value: Any) -> Any:
    """Settings as plain JSON; a dataclass tells its own name beside its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        kind = f"{type(value).__module__.rpartition('.')[2]}.{type(value).__name__}"
        return {"is": kind, **fields}
    return value


def searches(run: Run) -> bool:
    """Whether the run's method is given an index: wherever there is one, or one is needed."""
    return run.index is not None or hasattr(run.method, "candidates")


def gives_vectors(run: Run) -> bool:
    """Whether the run's index has vectors, as far as its settings tell.

    Raises:
      InputError: it has none, and what selects passages compares vectors.
    """
    given = getattr(run.index, "gives_vectors", True)
    if not given and getattr(getattr(run.method, "select", None), "needs_vectors", False):
        raise InputError(
            f"{run.name} selects passages by their vectors ({type(run.method.select).__name__}), "
            f"and the index {run.index.name if run.index else None} has none: choose one with an "
            "encoder, such as Exact or Scann, or a selector that does without, such as Top or "
            "Rerank."
        )
    return given


def asked(run: Run, cache: Path) -> tuple[Dataset, tuple[Question, ...]]:
    """The data set, built on first use, and those of its questions that the run asks.

    Raises:
      InputError: the data cannot be had, or holds no question.
    """
    dataset = load_data(run.data, cache)
    questions = tuple(dataset.questions[: run.limit or len(dataset.questions)])
    if not questions:
        raise InputError(f"{dataset.name} has no questions under these settings.")
    return dataset, questions


def settings_record(run: Run, dataset: Dataset, questions: Sequence[Question]) -> dict[str, Any]:
    """What config.json says of a run before its models and its index are there."""
    index = run.index if searches(run) else None
    return {
        "method": {"name": run.name, **describe(run.method)},
        "dataset": {
            "name": dataset.name,
            "identity": dataset.identity,
            "questions": len(questions),
            "passages": len(dataset.passages),
            **describe(run.data),
        },
        "language_model": {"name": run.model.name},
        "judge": {} if run.judge else None,
        "retriever": {"name": index.name} if index else None,
        "reranker": {} if run.reranker and searches(run) else None,
    }


def _decides_by_logprobs(run: Run) -> bool:
    return getattr(getattr(run.method, "gate", None), "needs_logprobs", False)


def _limit(run: Run, model: LanguageModel) -> dict[str, int]:
    """Most tokens of prompt and answer, on which results depend where passages are truncated."""
    if not getattr(getattr(run.method, "reader", None), "truncate", False):
        return {}
    encode = encoder_of(model)
    if encode is None:
        raise InputError(
            f"{run.name} cuts passages to what fits (reader.truncate), and for {run.model.name} "
            "that is not known here: of a server, name the model's checkpoint as `tokenizer` (and "
            "let the server tell its max_model_len), or set reader.truncate=False."
        )
    return {"max_length": encode.max_length}


def prepare(run: Run, cache: Path) -> tuple[Dataset, tuple[Question, ...], Tools, dict[str, Any]]:
    """Loads what a run needs: data, its questions, the tools and the record of all settings.

    Raises:
      InputError: something cannot be had, or does not fit; nothing has been computed yet.
    """
    gives_vectors(run)
    dataset, questions = asked(run, cache)
    model = load_model(run.model, cache)
    judge = load_model(run.judge, cache) if run.judge else None
    if _decides_by_logprobs(run) and not getattr(model, "gives_logprobs", True):
        raise InputError(
            f"{run.name} decides by the log-probabilities of the model's answers, and "
            f"{run.model.name} gives none: choose another model, or a gate that does without."
        )
    limit = _limit(run, model)
    retriever = open_index(run, cache) if searches(run) else None
    reranker = run.reranker.load(model, cache) if run.reranker and searches(run) else None
    tools = Tools(
        llm=LanguageModelTool(model),
        retriever=RetrieverTool(retriever) if retriever else None,
        reranker=RerankerTool(reranker) if reranker else None,
        judge=LanguageModelTool(judge) if judge else None,
    )
    record = settings_record(run, dataset, questions)
    record["language_model"] |= json.loads(model.identity) | limit
    for name, part in (("judge", judge), ("retriever", retriever), ("reranker", reranker)):
        if part is not None:
            record[name] |= json.loads(part.identity)
    return dataset, questions, tools, record


def execute(run: Run, workdir: str | Path) -> dict[str, Any]:
    """Runs, or goes on with, one run; returns the contents of metrics.json.

    Raises:
      InputError: the settings do not fit, or ``workdir`` holds a run with other settings.
    """
    cache = Path(run.cache)
    answer = answer_function(run)
    dataset, questions, tools, record = prepare(run, cache)
    with (
        RunDirectory.open(workdir, record) as directory,
        run_log(directory.path / "log.jsonl"),
    ):
        todo = [q for q in questions if q.id not in directory.finished]
        store = Store(cache / "store.sqlite")
        try:
            _answer_all(run, answer, todo, len(questions), dataset, tools, store, directory)
        finally:
            store.close()
        named = dataset.passages.find(directory.named_passages())
        return directory.finish([q.id for q in questions], passages=named)


def _answer_all(
    run: Run,
    answer: Callable[..., Coroutine[Any, Any, Answer]],
    todo: list[Question],
    total: int,
    dataset: Dataset,
    tools: Tools,
    store: Store,
    directory: RunDirectory,
) -> None:
    def started() -> Iterator[tuple[Question, Callable[[], Coroutine[Any, Any, Answer]]]]:
        for question in todo:
            yield question, functools.partial(answer, question, tools, run.method)

    what, tally = f"{run.name} on {dataset.name}", Tally()
    _log.info("started", extra={"fields": {"run": what, "questions": total, "left": len(todo)}})
    with progress(total, what, done=total - len(todo)) as advance:
        outcomes = Scheduler(store, live=run.live).run(started())
        while batch := list(itertools.islice(outcomes, _WRITTEN)):
            _write(directory, batch, dataset, tally)
            advance(len(batch), tally.note())
    _log.info("finished", extra={"fields": tally.fields()})


def _write(
    directory: RunDirectory, outcomes: list[Outcome], dataset: Dataset, tally: Tally
) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            name = outcome.id.id
            fields = {"question_id": name}
            _log.warning("question %s failed: %s", name, outcome.error, extra={"fields": fields})
    tops = _top_passages(outcomes, dataset)
    lines = [_line(outcome, dataset, tops) for outcome in outcomes]
    timings = [
        {"question_id": o.id.id, "seconds": o.seconds, "store_hits": o.store_hits} for o in outcomes
    ]
    directory.append(lines, timings)
    tally.add(lines, timings)
    _log.info("progress", extra={"fields": tally.fields()})


def _top_passages(outcomes: list[Outcome], dataset: Dataset) -> dict[str, Passage]:
    """The first passage that each reader was given, by id, read at once."""
    names = {name for outcome in outcomes for name in _selected(outcome)[:1]}
    return {passage.id: passage for passage in dataset.passages.find(sorted(names))}


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


def index_directory(cache: Path, *identities: str) -> Path:
    """Where an index with these identities (encoder, passages, settings) is kept."""
    return cache / "indexes" / digest(*identities)[:16]
