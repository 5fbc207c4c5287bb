"""One run: a method over a data set, from settings to a run directory.

A `Run` is a tree of frozen dataclasses; `Run.execute` does what it says. What the method needs
beside a language model, its `needs` say. The scripts in ``experiments`` and the notebooks are thin
layers over this file.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core.progress import run_log
from jaxrag.core.store import Store
from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.engines.language_model import LanguageModel, ModelSettings
from jaxrag.engines.local.inspection import InspectableModel
from jaxrag.engines.prompts import encoder_of
from jaxrag.engines.scheduler import Scheduler
from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.report.tables import terminal_table
from jaxrag.evaluation.summary import summarise
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.retrieval.settings import IndexSettings, RerankerSettings
from jaxrag.runs.answering import Asked, answer_all
from jaxrag.runs.job import Outcome
from jaxrag.runs.loading import describe, load_data, load_model, open_index_over
from jaxrag.steps.inspection_tool import InspectionTool
from jaxrag.steps.needs import HelperTool, LoadedRun, Method
from jaxrag.steps.tools import (
    NO_INDEX,
    NO_INSPECTION,
    NO_RERANKER,
    LanguageModelTool,
    RerankerTool,
    RetrieverTool,
    Tools,
)
from jaxrag.types import InputError, Question


@dataclasses.dataclass(frozen=True)
class Run:
    """All settings of a run.

    Attributes:
      method: a method's Config, with the settings of the models that only it uses.
      data: the questions and the corpus.
      model: the language model that reads (and writes pseudo-contexts).
      index: the retriever; a method that never searches does not open it.
      reranker: for methods that rerank; others do not load it.
      label: name in tables; by default the method's.
      limit: how many questions, from the first; 0 is all.
      live: most questions in progress at once.
      cache: where data sets, indexes and the store are kept between runs.
      store: where results of models and searches are kept: "" is the cache's, "memory" none that
        outlasts the run (so that its seconds are those of computing everything), else a file.
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

    def __post_init__(self) -> None:
        if self.limit < 0 or self.live < 1:
            raise InputError(
                f"limit is {self.limit} and live {self.live}: limit must be 0 (all) or more, "
                "live at least 1."
            )

    @property
    def name(self) -> str:
        """The label, or the method's name."""
        return self.label or self.method.name

    def execute(self, workdir: str | Path) -> Outcome:
        """Answers the questions, or continues an interrupted run; shows its row of the table.

        Raises:
          InputError: the settings do not fit, or ``workdir`` holds a run with other settings.
        """
        found = execute(self, workdir)
        shown: list[Any] = [terminal_table(summarise([workdir]))]
        if errors := found["errors"]:
            shown.append(f"{errors} of {found['questions']} questions failed; see answers.jsonl")
        return Outcome(tuple(shown), Path(workdir), errors)


class PreparedRun(NamedTuple):
    """A run ready to start: data, the questions it asks, its tools, the record of all settings."""

    dataset: Dataset
    questions: tuple[Question, ...]
    tools: Tools
    record: dict[str, Any]


def open_index(run: Run, cache: Path) -> Retriever | TextRetriever:
    """The index of the run's corpus, built where it is not there yet.

    Raises:
      InputError: the run has no index, or what is there does not fit.
    """
    if run.index is None:
        raise InputError(f"{run.name} has no index: set config.index.")
    return open_index_over(run.index, run.data, cache)


def check_needs(run: Run, *, given: Mapping[str, HelperTool] | None = None) -> None:
    """Refuses settings that lack what the method needs, as far as they tell without loading.

    Args:
      run: the run.
      given: helpers that need no settings, as in `prepare`.

    Raises:
      InputError: something is missing; the message names the setting.
    """
    needs = run.method.needs
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
    needs = run.method.needs
    return {
        "method": {**_described_method(run.method), "name": run.name},
        "dataset": {
            "name": dataset.name,
            "identity": dataset.identity,
            "questions": len(questions),
            "passages": len(dataset.passages),
            **describe(run.data),
        },
        "language_model": {"name": run.model.name},
        "retriever": {"name": run.index.name} if needs.search and run.index else None,
        "reranker": {} if needs.reranker else None,
        "helpers": {field: {"name": helper.name} for field, helper in needs.helpers.items()},
    }


def _described_method(method: Method) -> dict[str, Any]:
    """A method's settings without those of its helpers, which are recorded by their identities.

    So a checkpoint that was moved, or runs with other batches, is the same.
    """
    found = describe(method)
    for field in method.needs.helpers:
        *parents, last = field.split(".")
        holder = functools.reduce(dict.__getitem__, parents, found)
        del holder[last]
    return found


def _inspection(run: Run, model: LanguageModel) -> InspectionTool:
    """The model's inside."""
    if not isinstance(model, InspectableModel):
        raise InputError(
            f"{run.name} needs the model's attentions and hidden states, and the engine of "
            f"{run.model.name} ({type(run.model).__name__}) gives none: use the local engine."
        )
    return InspectionTool(model)


def _limit(run: Run, model: LanguageModel) -> dict[str, int]:
    """Most tokens of prompt and answer, on which results depend where passages are truncated."""
    encode = encoder_of(model)
    if encode is None:
        raise InputError(
            f"{run.name} cuts passages to what fits (reader.truncate), and for {run.model.name} "
            "that is not known here: of a server, name the model's checkpoint as `tokenizer` (and "
            "let the server tell its max_model_len), or set reader.truncate=False."
        )
    return {"max_length": encode.max_length}


def prepare(run: Run, cache: Path, *, given: Mapping[str, HelperTool] | None = None) -> PreparedRun:
    """Loads what a run needs.

    Args:
      run: the run.
      cache: where data sets and indexes are kept.
      given: helpers that are at hand and need not be loaded, by the method's field.

    Raises:
      InputError: something cannot be had, or does not fit; nothing has been computed yet.
    """
    needs, given = run.method.needs, given or {}
    check_needs(run, given=given)
    dataset, questions = asked(run, cache)
    model = load_model(run.model, cache)
    if needs.logprobs and not model.gives_logprobs:
        raise InputError(
            f"{run.name} decides by the log-probabilities of the model's answers, and "
            f"{run.model.name} gives none: choose another model, or a gate that does without."
        )
    limit = _limit(run, model) if needs.prompt_length else {}
    inspection = _inspection(run, model) if needs.inspection else NO_INSPECTION
    retriever = open_index(run, cache) if needs.search else None
    reranker = run.reranker.load(model, cache) if needs.reranker and run.reranker else None
    loaded = LoadedRun(model, retriever, lambda settings: load_model(settings, cache), cache)
    helpers = {
        field: given[field] if field in given else helper.load(loaded)
        for field, helper in needs.helpers.items()
    }
    tools = Tools(
        llm=LanguageModelTool(model),
        retriever=RetrieverTool(retriever) if retriever else NO_INDEX,
        reranker=RerankerTool(reranker) if reranker else NO_RERANKER,
        inspection=inspection,
        helpers={needs.helpers[field]: tool for field, tool in helpers.items()},
    )
    record = settings_record(run, dataset, questions)
    record["language_model"] |= json.loads(model.identity) | limit
    for name, part in (("retriever", retriever), ("reranker", reranker)):
        if part is not None:
            record[name] |= json.loads(part.identity)
    for field, tool in helpers.items():
        record["helpers"][field] |= json.loads(tool.identity)
    return PreparedRun(dataset, questions, tools, record)


def store_path(run: Run) -> Path | None:
    """Where the run's store lies; None keeps it in memory."""
    if run.store == "memory":
        return None
    return Path(run.store) if run.store else Path(run.cache) / "store.sqlite"


def execute(run: Run, workdir: str | Path) -> dict[str, Any]:
    """Runs, or goes on with, one run; returns the contents of metrics.json.

    Raises:
      InputError: the settings do not fit, or ``workdir`` holds a run with other settings.
    """
    dataset, questions, tools, record = prepare(run, Path(run.cache))
    with (
        RunDirectory.open(workdir, record) as directory,
        run_log(directory.path / "log.jsonl"),
    ):
        todo = [q for q in questions if q.id not in directory.finished]
        passages = tools.retriever.corpus if run.method.needs.search else dataset.passages
        what = f"{run.name} on {dataset.name}"
        asked_of = Asked(what, len(questions), len(todo), dataset, passages)
        store = Store(store_path(run))
        try:
            started = ((q, functools.partial(run.method.answer, q, tools)) for q in todo)
            answer_all(asked_of, started, Scheduler(store, live=run.live), directory)
        finally:
            store.close()
        named = passages.find(directory.named_passages())
        return directory.finish([q.id for q in questions], passages=named)
