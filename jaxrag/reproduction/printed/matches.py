"""Matches runs to the papers' printed rows of the same method, model and data set.

Compared are retriever, judge, kind of reranker, passages, threshold, progress of R3's training, and
whether the questions are training questions. Prompts and other settings are not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxrag.evaluation.summary import name_of
from jaxrag.reproduction.printed.models import TRAINED, same_model
from jaxrag.reproduction.printed.tables import PrintedRow, PrintedTable, printed_tables

OUR_NAMES: Mapping[str, tuple[str, ...]] = {
    "no_retrieval": ("direct", "llm", "few_shot"),
    "standard_rag": ("rag", "bm25", "contriever", "contriever_ms", "e5", "dpr"),
    "cot_prompting": ("chain_of_thought",),
    "ars_rag": ("ars",),
    "rewriter_10": ("rewriter10",),
    "rewriter_ranker_top5": ("top",),
    "rewriter_bandit": ("bandit",),
    "llm_judge_7b": ("llm_judge",),
    "llm_judge_72b": ("llm_judge",),
    "self_rag_llama2_7b": ("self_rag",),
    "self_rag_mistral_7b": ("self_rag",),
    "self_rag_llama3_8b": ("self_rag",),
    # R3's standard RAG over a retriever
    "standard_rag_contriever_ms": ("rag_contriever_ms", "contriever_ms"),
    "standard_rag_e5": ("rag_e5", "e5"),
    "standard_rag_sidr_ms": ("rag_sidr_ms",),
    "standard_rag_sidr_nq": ("rag_sidr_nq",),
    "sidr_ms_rank_by_relevance": ("rag_sidr_ms",),
    "sidr_ms_rank_by_answer_probability": ("answer_probability",),
    "contriever": ("rag_contriever",),
    "contriever_ms": ("rag_contriever_ms",),
    "dpr_ms": ("rag_dpr_ms",),
    "dpr_nq": ("rag_dpr_nq", "dpr"),
    "dpr_tqa": ("rag_dpr_tqa",),
    "e5": ("rag_e5",),
    "e5_unsup": ("rag_e5_unsup",),
    "sidr_ms": ("rag_sidr_ms",),
    "sidr_nq": ("rag_sidr_nq",),
    "sidr_tqa": ("rag_sidr_tqa",),
}
"""Our names of printed methods, beside the printed ones. Rows of R3 that differ only in its
training (Table 5, R3 in Table 8) have no name of their own, and stand beside no run."""

_SIDR_BASELINE = "standard_rag_sidr"
"""R3's Table 1: over SiDR_NQ on nq, and over SiDR_MS on other sets."""

_THRESHOLD = re.compile(r"(dtr)_u([0-9.]+)")
_SHARE = re.compile(rf"{TRAINED}(?:-([0-9.]+))?,")  # checkpoints after a share of a training


class PrintedMatch(NamedTuple):
    """A printed row that matches a run.

    Attributes:
      table, row: where it is printed.
      dataset: its data set.
      differs: settings that differ, such as "3 passages (ours: 1)".
    """

    table: PrintedTable
    row: PrintedRow
    dataset: str
    differs: tuple[str, ...]


def matches(config: Mapping[str, Any]) -> list[PrintedMatch]:
    """The nearest row of each table that prints a run's method and generator on its data set.

    Args:
      config: the ``config`` of a run's config.json.

    Returns:
      Of each table the row that differs in the fewest settings, the first printed of several.
    """
    dataset, name, nearest = name_of(config, "dataset"), _method(config), []
    generator = name_of(config, "language_model")
    for table in printed_tables().values():
        rows = [
            PrintedMatch(table, row, dataset, tuple(_differences(row, config)))
            for row in table.rows
            if dataset in row.datasets
            and any(table.metric_of(metric, dataset) for metric in row.values[dataset])
            and name in _names(row, dataset)
            and (not row.generator or same_model(row.generator, generator))
        ]
        if rows:
            nearest.append(min(rows, key=lambda match: len(match.differs)))
    return nearest


def _method(config: Mapping[str, Any]) -> str:
    """The name by which printed rows know a run's method; "" if none does.

    A name of its own, such as that of an ablation, goes before the name of the method's settings.
    """
    name, method = name_of(config, "method"), config.get("method", {})
    own = str(method.get("is", "")) if isinstance(method, Mapping) else ""
    if own == "r3":  # it reads passages of any retriever: only the run's name tells the row
        own = ""
    candidates = (name, name.partition(" ")[0], own)
    return next((name for name in candidates if name in _known_names()), "")


@functools.cache
def _known_names() -> frozenset[str]:
    rows = [row for table in printed_tables().values() for row in table.rows]
    return frozenset(
        name for row in rows for dataset in row.datasets for name in _names(row, dataset)
    )


def _names(row: PrintedRow, dataset: str) -> tuple[str, ...]:
    """The names of a row's method in configs of runs."""
    if threshold := _THRESHOLD.fullmatch(row.method):
        return (threshold[1],)
    if row.method == _SIDR_BASELINE:
        return (row.method, "rag_sidr_nq" if dataset == "nq" else "rag_sidr_ms")
    return (row.method, *OUR_NAMES.get(row.method, ()))


def _differences(row: PrintedRow, config: Mapping[str, Any]) -> Iterator[str]:
    for part, name in _models(row, config).items():
        printed = row.other.get(part) or getattr(row, part, None)
        if printed and not same_model(printed, name):
            yield f"{part} {printed} (ours: {name or 'none'})"
    settings = list(_settings(config.get("method", {})))
    passages = [value for name, value in settings if name in ("k", "read") and value]
    if row.passages and passages and row.passages not in passages:
        yield f"{row.passages} passages (ours: {passages[0]})"
    if threshold := _THRESHOLD.fullmatch(row.method):
        values = [value for name, value in settings if name == "threshold"]
        if float(threshold[2]) not in values:
            yield f"threshold {threshold[2]} (ours: {', '.join(map(str, values)) or 'none'})"
    printed, ours = row.other.get("progress_percent"), _progress(name_of(config, "retriever"))
    if None not in (printed, ours) and printed != ours:
        yield f"{printed} % of the on-policy training (ours: {ours:g} %)"
    kinds = [*(config.get("reranker") or {})]
    if "reranker" in row.other and "cross_encoder" not in kinds:
        name = kinds[0].replace("_", " ") if kinds else "none"
        yield f"reranker {row.other['reranker']} (ours: {name})"
    if (trained := _on_training_questions(config)) != (row.other.get("split") == "train"):
        yield "test questions (ours: training)" if trained else "training questions (ours: test)"


def _models(row: PrintedRow, config: Mapping[str, Any]) -> dict[str, str]:
    """Names of a run's other models by the part that they play, as far as the row names them."""
    models = {"retriever": name_of(config, "retriever") if config.get("retriever") else ""}
    if "judge" in row.other:
        helpers = config.get("helpers", {}).items()
        judges = (name_of({"judge": part}, "judge") for field, part in helpers if "judge" in field)
        models["judge"] = next(judges, name_of(config, "language_model"))
    if "progress_percent" in row.other:  # compared by itself
        models["retriever"] = _SHARE.sub(f"{TRAINED},", models["retriever"])
    return models


def _progress(retriever: str) -> float | None:
    """Percent of the on-policy phase, the second half of R3's training, after which it was kept."""
    share = _SHARE.match(retriever)
    return 2 * float(share[1] or 100) - 100 if share else None


def _on_training_questions(config: Mapping[str, Any]) -> bool:
    data = config.get("dataset", {})
    return isinstance(data, Mapping) and "train" in (data.get("split"), data.get("part"))


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    """All settings of a method by their names, those of its parts included."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield name, part
            yield from _settings(part)
