"""The printed rows that a run stands beside: the same method and data set, and what differs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxrag.evaluation.printed import PrintedRow, PrintedTable, printed_tables
from jaxrag.evaluation.summary import name_of

OUR_NAMES: Mapping[str, tuple[str, ...]] = {
    "no_retrieval": ("no_retrieval", "direct", "llm", "few_shot"),
    "standard_rag": ("standard_rag", "rag"),
    "cot_prompting": ("chain_of_thought",),
    "ars_rag": ("ars",),
    "rewriter_10": ("rewriter10",),
    "rewriter_ranker_top5": ("top",),
    "rewriter_bandit": ("bandit",),
    "llm_judge_7b": ("llm_judge",),
    "llm_judge_72b": ("llm_judge",),
}
"""Our names of printed methods, where they differ."""

METRICS: Mapping[str, str] = {
    "EM": "exact_match",
    "F1": "f1",
    "accuracy": "contains",
    "precision": "precision_macro",
    "recall@3": "recall",
    "ir_accuracy@1": "ir_accuracy",
    "trigger_ratio": "trigger",
    "retriever_activation_ratio": "trigger",
}
"""Our metrics by their printed names."""

_THRESHOLD = re.compile(r"(dtr)_u([0-9.]+)")


class PrintedMatch(NamedTuple):
    """A printed row beside a run.

    Attributes:
      table, row: where it is printed.
      dataset: its data set.
      differs: settings that differ, such as "generator Qwen2.5-7B-Instruct (ours: SmolLM2)".
    """

    table: PrintedTable
    row: PrintedRow
    dataset: str
    differs: tuple[str, ...]


def matches(config: Mapping[str, Any]) -> list[PrintedMatch]:
    """The nearest row of each table that prints a run's method on its data set.

    Args:
      config: the ``config`` of a run's config.json.

    Returns:
      Of each table the row that differs in the fewest settings, the first printed of several.
    """
    dataset, found = name_of(config, "dataset"), []
    for table in printed_tables().values():
        rows = [
            PrintedMatch(table, row, dataset, tuple(_differences(row, config)))
            for row in table.rows
            if dataset in row.datasets
            and METRICS.keys() & row.values[dataset].keys()
            and _same_method(row, config)
        ]
        if rows:
            found.append(min(rows, key=lambda match: len(match.differs)))
    return found


def _same_method(row: PrintedRow, config: Mapping[str, Any]) -> bool:
    method = config.get("method", {})
    names = {name_of(config, "method")}
    if isinstance(method, Mapping):
        names.add(str(method.get("is", "")))
    if threshold := _THRESHOLD.fullmatch(row.method):
        return threshold[1] in names
    return bool(names & {*OUR_NAMES.get(row.method, ()), row.method})


def _differences(row: PrintedRow, config: Mapping[str, Any]) -> Iterator[str]:
    ours = {
        "generator": name_of(config, "language_model"),
        "retriever": name_of(config, "retriever") if config.get("retriever") else "",
    }
    for part, name in ours.items():
        printed = getattr(row, part)
        if printed and not _words(printed) <= _words(name):
            yield f"{part} {printed} (ours: {name or 'none'})"
    found = list(_settings(config.get("method", {})))
    passages = [value for name, value in found if name in ("k", "read")]
    if row.passages and passages and row.passages not in passages:
        yield f"{row.passages} passages (ours: {passages[0]})"
    if threshold := _THRESHOLD.fullmatch(row.method):
        values = [value for name, value in found if name == "threshold"]
        if float(threshold[2]) not in values:
            yield f"threshold {threshold[2]} (ours: {', '.join(map(str, values)) or 'none'})"


def _words(name: str) -> set[str]:
    """The parts of a model's name that distinguish it from others."""
    return set(re.findall(r"[a-z0-9.]+", name.lower())) - {"chroma", "instruct"}


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    """All settings of a method by their names, those of its parts included."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield name, part
            yield from _settings(part)
