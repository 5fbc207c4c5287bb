"""One run: a method over a data set, from settings to a run directory.

A `Run` is a tree of frozen dataclasses; `execute` does what it says. The scripts in
``experiments`` and the notebooks are thin layers over this file.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from jaxrag.answering import Asked, answer_all
from jaxrag.data.dataset import Dataset
from jaxrag.engines.inspection import InspectableModel
from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.prompts import encoder_of
from jaxrag.engines.scheduler import Scheduler
from jaxrag.engines.store import Store
from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.run_log import run_log
from jaxrag.loading import (
    CountSelectorSettings,
    DataSettings,
    IndexSettings,
    ModelSettings,
    RerankerSettings,
    RewriteRankerSettings,
    describe,
    load_data,
    load_model,
    open_index_over,
)
from jaxrag.methods.inspection_tool import InspectionTool
from jaxrag.methods.language_model_tool import LanguageModelTool
from jaxrag.methods.search_tools import RerankerTool, RetrieverTool
from jaxrag.methods.tools import SelectorTool, Tools
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.types import Answer, InputError, Question


@dataclasses.dataclass(frozen=True)
class Run:
    """All settings of a run.

    Attributes:
      method: the config of a method's file; that file's ``answer`` is run.
      data: the questions and the corpus.
      model: the language model that reads (and writes pseudo-contexts).
      index: the retriever; None for a method that never searches.
      reranker: for methods that rerank.
      judge: the model that judges, in LLM Judge and of ARS-RAG's passages; None is ``model``.
      rewrite_ranker: for methods that rank rewrites.
      count_selector: for methods that choose how many rewrites to keep.
      query_optimizer: a trained model that writes queries, for methods that have one.
      complexity: a trained model that says how complex a question is, for Adaptive-RAG.
      label: name in tables; by default the method's file.
      limit: how many questions, from the first; 0 is all.
      live: most questions in progress at once.
      cache: where data sets, indexes and the store are kept between runs.
      store: where results of models and searches are kept: "" is the cache's, "memory" none that
        outlasts the run (so that its seconds are those of computing everything), else a file.
    """

    method: Any
    data: DataSettings
    model: ModelSettings
    index: IndexSettings | None = None
    reranker: RerankerSettings | None = None
    judge: ModelSettings | None = None
    rewrite_ranker: RewriteRankerSettings | None = None
    count_selector: CountSelectorSettings | None = None
    query_optimizer: ModelSettings | None = None
    complexity: ModelSettings | None = None
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


def open_index(run: Run, cache: Path) -> Retriever | TextRetriever:
    """The index of the run's corpus, built where it is not there yet.

    Raises:
      InputError: the run has no index, or what is there does not fit.
    """
    if run.index is None:
        raise InputError(f"{run.name} has no index: set config.index.")
    return open_index_over(run.index, run.data, cache)


def searches(run: Run) -> bool:
    """Whether the run's method is given an index: wherever there is one, or one is needed."""
    needs = hasattr(run.method, "candidates") or hasattr(run.method, "search")
    return run.index is not None or needs


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
    parts = (run.method, getattr(run.method, "gate", None))
    closed = getattr(run.method, "by", "text") != "text"
    return closed or any(getattr(part, "needs_logprobs", False) for part in parts)


def _inspection(run: Run, model: LanguageModel) -> InspectionTool | None:
    """The model's inside, where the method looks into it."""
    if not getattr(run.method, "needs_inspection", False):
        return None
    if not isinstance(model, InspectableModel):
        raise InputError(
            f"{run.name} needs the model's attentions and hidden states, and the engine of "
            f"{run.model.name} ({type(run.model).__name__}) gives none: use the local engine."
        )
    return InspectionTool(model)


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
    others = {name: load_model(part, cache) for name, part in other_models(run).items()}
    if _decides_by_logprobs(run) and not getattr(model, "gives_logprobs", True):
        raise InputError(
            f"{run.name} decides by the log-probabilities of the model's answers, and "
            f"{run.model.name} gives none: choose another model, or a gate that does without."
        )
    limit, inspection = _limit(run, model), _inspection(run, model)
    retriever = open_index(run, cache) if searches(run) else None
    reranker = run.reranker.load(model, cache) if run.reranker and searches(run) else None
    ranker = run.rewrite_ranker.load() if run.rewrite_ranker else None
    selector = run.count_selector.load(retriever) if run.count_selector and retriever else None
    tools = Tools(
        llm=LanguageModelTool(model),
        retriever=RetrieverTool(retriever) if retriever else None,
        reranker=RerankerTool(reranker) if reranker else None,
        rewrite_ranker=RerankerTool(ranker) if ranker else None,
        count_selector=SelectorTool(selector) if selector else None,
        inspection=inspection,
        **{name: LanguageModelTool(part) for name, part in others.items()},
    )
    record = settings_record(run, dataset, questions)
    record["language_model"] |= json.loads(model.identity) | limit
    parts = {"retriever": retriever, "reranker": reranker, **others}
    parts |= {"rewrite_ranker": ranker, "count_selector": selector}
    for name, part in parts.items():
        if part is not None:
            record[name] = (record.get(name) or {}) | json.loads(part.identity)
    return dataset, questions, tools, record


def other_models(run: Run) -> dict[str, ModelSettings]:
    """The language models of a run beside the one that reads, by their names in `Tools`."""
    models = {name: getattr(run, name) for name in ("judge", "query_optimizer", "complexity")}
    return {name: settings for name, settings in models.items() if settings}


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
    cache = Path(run.cache)
    answer = answer_function(run)
    dataset, questions, tools, record = prepare(run, cache)
    with (
        RunDirectory.open(workdir, record) as directory,
        run_log(directory.path / "log.jsonl"),
    ):
        todo = [q for q in questions if q.id not in directory.finished]
        passages = tools.retriever.corpus if tools.retriever else dataset.passages
        what = f"{run.name} on {dataset.name}"
        asked_of = Asked(what, len(questions), len(todo), dataset, passages)
        store = Store(store_path(run))
        try:
            started = ((q, functools.partial(answer, q, tools, run.method)) for q in todo)
            answer_all(asked_of, started, Scheduler(store, live=run.live), directory)
        finally:
            store.close()
        named = passages.find(directory.named_passages())
        return directory.finish([q.id for q in questions], passages=named)
