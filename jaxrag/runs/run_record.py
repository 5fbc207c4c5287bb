"""What a run records: its settings, and of each question the answer, the trace and the costs."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrag.core.hashing import canonical
from jaxrag.data.dataset import Dataset
from jaxrag.data.origins import origins
from jaxrag.engines.scheduler import QuestionOutcome
from jaxrag.evaluation import metrics
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.runs.loading import describe
from jaxrag.runs.settings import RunSettings
from jaxrag.steps import prompts
from jaxrag.steps.episode import Method
from jaxrag.steps.tools import needs_of
from jaxrag.types import Passage, Question


def settings_record(
    run: RunSettings, dataset: Dataset, questions: Sequence[Question]
) -> dict[str, Any]:
    """Contents of config.json as far as they are known without models and index."""
    needs, published = run.needs, origins(run.data)
    files = prompts.own_files(describe(run.method))
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
        **({"prompts": files} if files else {}),
    }


def _described_method(method: Method) -> dict[str, Any]:
    """A method's settings without its helpers', which are recorded by their identities."""
    fields = describe(method)
    for field in needs_of(method).helpers:
        *parents, last = field.split(".")
        functools.reduce(lambda part, name: part.get(name, {}), parents, fields).pop(last, None)
    return fields


def _normalization(run: RunSettings) -> dict[str, Any]:
    return {} if run.normalization == "squad" else {"normalization": run.normalization}


def answer_lines(
    run: RunSettings, batch: Sequence[QuestionOutcome], dataset: Dataset, corpus: Passages
) -> list[dict[str, Any]]:
    """Lines of answers.jsonl; the first passage of each question is read from disk in one call."""
    names = {name for ended in batch for name in _selected(ended)[:1]}
    first = {passage.id: passage for passage in corpus.find(sorted(names))}
    return [_line(run, ended, dataset, first) for ended in batch]


def _line(
    run: RunSettings, ended: QuestionOutcome, dataset: Dataset, passages: Mapping[str, Passage]
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


def _selected(ended: QuestionOutcome) -> Sequence[str]:
    trace = {} if ended.error is not None else ended.value.trace
    return trace.get("selected", {}).get("ids", ())


def timing_line(ended: QuestionOutcome) -> dict[str, Any]:
    """A line of timings.jsonl."""
    spent = {name: getattr(ended, name) for name in ("seconds", "untimed", "spent", "store_hits")}
    return {"question_id": ended.id.id, **spent}
