"""Loads the parts of a run: its questions, and the models, index and helpers that answer them."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from jaxrag.core.file_states import one_start
from jaxrag.core.progress import tell
from jaxrag.data.dataset import Dataset
from jaxrag.data.documents import QuestionFile
from jaxrag.data.leakage import check_evaluation
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.scann.index import Scann
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.runs.loading import check_model, load_data, load_model, open_index_over
from jaxrag.runs.needs import inspection_of, language_model_of, prompt_limit
from jaxrag.runs.settings import RunSettings
from jaxrag.steps.tools import (
    NO_INDEX,
    NO_INSPECTION,
    NO_RERANKER,
    HelperTool,
    LanguageModelTool,
    LoadedRun,
    RerankerTool,
    RetrieverTool,
    Tools,
)
from jaxrag.types import InputError, Question

Settings = TypeVar("Settings", bound=RunSettings)


def with_loadable_index(run: Settings) -> Settings:
    """The run with an exact index in place of ScaNN's, which runs on Linux on x86-64 alone."""
    index = run.index
    if not isinstance(index, Scann) or not run.needs.search:
        return run
    try:
        index.require()
    except InputError:
        tell("ScaNN cannot be loaded here: every passage is scored instead (Exact)")
        return dataclasses.replace(run, index=Exact(index.encoder, index.metric))
    return run


def load_questions(run: RunSettings, cache: Path) -> tuple[Dataset, tuple[Question, ...]]:
    """The data and the questions of a run.

    InputError if there are none, none has a gold answer, or a checkpoint was trained on some.
    """
    dataset = load_data(run.data, cache)
    questions = tuple(dataset.questions[: run.limit or len(dataset.questions)])
    if not questions:
        raise InputError(f"{dataset.name} has no questions under these settings.")
    if not isinstance(run.data, QuestionFile) and not any(q.answers for q in questions):
        raise InputError(
            f"No question of {dataset.name} has a gold answer, so answers to them cannot be "
            "evaluated. Compare retrievers by the passages that are known to be relevant: "
            "--config configs/retrieval.py:compare@DATA, with --config.data=NAME for a published "
            "set."
        )
    check_evaluation(questions, _checkpoints(run), name=dataset.label, leakage=run.leakage)
    return dataset, questions


def _checkpoints(run: RunSettings) -> list[tuple[str, str]]:
    """Checkpoints of the retriever and of the method's helpers, with their settings."""
    needs, checkpoints = run.needs, []
    if needs.search and run.index is not None:
        checkpoints += [("config.index", spec) for spec in run.index.checkpoints]
    for field, helper in needs.helpers.items():
        checkpoints.append((f"config.method.{field}.checkpoint", helper.checkpoint or ""))
    return checkpoints


def open_index(run: RunSettings, cache: Path) -> Retriever | TextRetriever:
    """The index of the run's corpus, built if necessary.

    InputError if the run has none, or the one that is there does not match its settings.
    """
    if run.index is None:
        raise InputError(f"{run.name} has no index: set config.index.")
    return open_index_over(run.index, run.data, cache)


@one_start()
def load_tools(
    run: RunSettings, cache: Path, *, given: Mapping[str, HelperTool] | None = None
) -> tuple[Tools, dict[str, Any]]:
    """The models, index and helpers of a run, as its method uses them; without its questions.

    ``given`` are loaded helpers by the method's field. Beside the tools it returns the identities
    of language model, retriever and reranker. InputError if something cannot be loaded, or does not
    meet the method's needs.
    """
    needs, given = run.needs, given or {}
    language_model = functools.partial(language_model_of, run, cache)
    check_model(run.model, cache)
    if run.model.checkpoint is None:  # a server: what it lacks is known before an index is built
        language_model()
    retriever = open_index(run, cache) if needs.search else None
    reranker = run.reranker.load(language_model, cache) if needs.reranker and run.reranker else None
    loaded = LoadedRun(
        run.method, language_model, retriever, lambda settings: load_model(settings, cache), cache
    )
    helpers = {
        helper: given[field] if field in given else helper.load(loaded)
        for field, helper in needs.helpers.items()
    }
    model = language_model()  # last: its batches are sized by the memory that is still free
    limit = prompt_limit(run, model) if needs.prompt_length else {}
    inspection = inspection_of(run, model) if needs.inspection else NO_INSPECTION
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
