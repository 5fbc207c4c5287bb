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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax

from jaxrag.core.checks import check_choices
from jaxrag.core.file_states import one_start
from jaxrag.core.hashing import canonical
from jaxrag.core.progress import progress, run_log, tell
from jaxrag.core.store import Store
from jaxrag.core.tracking import trackers
from jaxrag.data.dataset import Dataset, DataSettings, lacking, unanswered
from jaxrag.data.leakage import Leakage, check_evaluation
from jaxrag.data.origins import origins
from jaxrag.engines.language_model import LanguageModel, ModelSettings, gives_scores
from jaxrag.engines.local.inspection import InspectableModel
from jaxrag.engines.prompts import encoder_of
from jaxrag.engines.scheduler import QuestionOutcome, Scheduler
from jaxrag.evaluation import metrics
from jaxrag.evaluation.report.tables import terminal_table
from jaxrag.evaluation.summary import summarise
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
from jaxrag.runs.tally import Failures, Tally
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


class LoadedQuestions(NamedTuple):
    """The questions of a run with all that answers them, and the contents of config.json.

    Attributes:
      dataset: their data set.
      questions: the questions.
      tools: models, index and helpers.
      corpus: the passages that are searched, or else the data set's.
      record: contents of config.json.
    """

    dataset: Dataset
    questions: tuple[Question, ...]
    tools: Tools
    corpus: Passages
    record: dict[str, Any]


@runtime_checkable
class Requiring(Protocol):
    """Settings of a model, index or reranker that need a package or several devices."""

    def require(self) -> None:
        """Raises InputError if these are missing; loads nothing."""
        ...


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

    ``given`` are helpers that need no settings, as in `load`.

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
      given: as in `load`.

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
    check(run)
    loaded = load(run)
    with shares.opened(Path(workdir), loaded.record, loaded.questions) as share:
        answer(run, loaded, share)
        return record(loaded, share) if share.joined() else {}


def check(run: Run) -> None:
    """Finds, before anything is loaded, what would stop the run later.

    Raises:
      InputError: the settings do not meet the method's needs, a package or devices are missing, a
        checkpoint is not there, or a server lacks the model.
      EngineDown: a server does not answer.
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

    Args:
      run: the run.
      given: loaded helpers, by the method's field; their settings are ignored.

    Raises:
      InputError: something cannot be loaded, or does not meet the method's needs.
    """
    check_needs(run, given=given)
    cache = Path(run.cache)
    dataset, questions = load_questions(run, cache)
    tools, identities = load_tools(run, cache, given=given)
    settings = settings_record(run, dataset, questions)
    for name, identity in identities.items():
        settings[name] |= identity
    for field, helper in run.needs.helpers.items():
        settings["helpers"][field] |= json.loads(tools.helpers[helper].identity)
    corpus = tools.retriever.corpus if run.needs.search else dataset.passages
    return LoadedQuestions(dataset, questions, tools, corpus, settings)


def answer(run: Run, loaded: LoadedQuestions, share: shares.Share) -> None:
    """Answers the questions of a share that have no answer yet into its directory.

    The progress line is updated after every batch of an engine, not only when questions end.
    """
    store = Store(store_path(run.store, run.cache))
    try:
        with run_log(share.directory.path / "log.jsonl"):
            scheduler = Scheduler(store, live=run.live, before=_model_check(run, loaded, store))
            _answer(run, loaded, scheduler, share)
    finally:
        store.close()


def record(loaded: LoadedQuestions, share: shares.Share) -> dict[str, Any]:
    """Writes the metrics of all questions, and the passages that the answers name."""
    named = loaded.corpus.find(share.whole.named_passages())
    results = share.whole.finish([q.id for q in loaded.questions], passages=named)
    share.track(len(loaded.questions), {"result": results})
    return results


def _model_check(run: Run, loaded: LoadedQuestions, store: Store) -> Callable[[], None]:
    """Checks the model, before it answers the first question; see `jaxrag.runs.model_check`."""
    if not run.check_model:
        return lambda: None
    llm, reader = loaded.tools.llm, model_check.reader_of(run.method)
    return lambda: model_check.check_before(run.name, llm, reader, store, Path(run.cache))


def _answer(run: Run, loaded: LoadedQuestions, scheduler: Scheduler, share: shares.Share) -> None:
    dataset, asked, tools, *_ = loaded
    count, todo, directory = share.count, share.todo, share.directory
    label, tally, failures = f"{run.name} on {dataset.name}", Tally(), Failures()
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
            lines = _lines(run, batch, loaded)
            timings = list(map(_timing, batch))
            failures.report(batch)
            directory.append(lines, timings)
            tally.add(lines, timings)
            _log.info("progress", extra={"fields": tally.fields()})
            done += len(batch)
            share.track(done, {"progress": tally.fields()})
            advance(len(batch), tally.note())
    failures.end()
    _log.info("finished", extra={"fields": tally.fields()})


def _timing(ended: QuestionOutcome) -> dict[str, Any]:
    spent = {name: getattr(ended, name) for name in ("seconds", "store_hits", "stored")}
    return {"question_id": ended.id.id, **spent}


def _lines(
    run: Run, batch: Sequence[QuestionOutcome], loaded: LoadedQuestions
) -> list[dict[str, Any]]:
    """Lines of answers.jsonl; the first passage of each question is read from disk in one call."""
    names = {name for ended in batch for name in _selected(ended)[:1]}
    first = {passage.id: passage for passage in loaded.corpus.find(sorted(names))}
    return [_line(run, ended, loaded.dataset, first) for ended in batch]


def _selected(ended: QuestionOutcome) -> Sequence[str]:
    trace = {} if ended.error is not None else ended.value.trace
    return trace.get("selected", {}).get("ids", ())


def _line(
    run: Run, ended: QuestionOutcome, dataset: Dataset, passages: Mapping[str, Passage]
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
        first = next((passages[name] for name in _selected(ended)), None)
        holds = metrics.holds_answer(question, first, run.normalization)
        if holds is not None:
            line["top_holds_answer"] = holds
    return {**line, "prediction": ended.value.text, "trace": trace, "cost": ended.cost}
