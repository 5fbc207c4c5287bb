"""Statistics of ARS-RAG's labels: values of y, and agreement of the judgements, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.table import Table

from jaxrag.evaluation.significance import Interval, intervals, resampled_means
from jaxrag.functional.ranking import auc

Counts = Float[np.ndarray, "q 4"]
"""Counts of judgements: all, those of value 1 by the first judge, by the second, by both."""

_PAIRS = (
    ("log-probability and gold", "relevant_logprob", "gold"),
    ("word and gold", "relevant", "gold"),
    ("word and log-probability", "relevant", "relevant_logprob"),
)


def labels_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """The table of labels and agreements that the terminal shows."""
    shown = Table("labels", "questions", "mean", "95 % interval", title=f"{len(lines)} questions")
    found = {name: intervals({"": values})[""] for name, values in _columns(lines).items()}
    for name, one in ({n: v for n, v in found.items() if v.n} | agreements(lines)).items():
        ends = "" if math.isnan(one.low) else f"[{one.low:.3f}, {one.high:.3f}]"
        shown.add_row(name, str(one.n), f"{one.mean:.3f}", ends)
    return shown


def _columns(lines: Sequence[Mapping[str, Any]]) -> dict[str, Float[np.ndarray, " q"]]:
    """Values of each question; NaN where undefined."""

    def column(value: Callable[[Mapping[str, Any]], float | None]) -> Float[np.ndarray, " q"]:
        found = [value(line) for line in lines]
        return np.array([math.nan if one is None else one for one in found], float)

    def mean(name: str) -> Float[np.ndarray, " q"]:
        return column(lambda line: None if line[name] is None else float(np.mean(line[name])))

    return {
        "rewrites filled in": column(lambda line: line["filled"]),
        "different passages": column(lambda line: len(set(chain.from_iterable(line["passages"])))),
        "y by log-probability": mean("labels_logprob"),
        "y by word": mean("labels"),
        "y by gold passages": mean("labels_gold"),
        "neither word": column(lambda line: line["junk"] if line["relevant"] else None),
    }


def agreements(lines: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """Raw agreement, Cohen's kappa, shares judged relevant, and AUC of the probability.

    Each passage of a question counts once. Intervals are bootstrapped over questions.
    """
    found: dict[str, Interval] = {}
    for name, first, second in _PAIRS:
        both = [_passages(line, first, second) for line in lines if line[first] and line[second]]
        sums = [(len(p), p[:, 0].sum(), p[:, 1].sum(), p.prod(1).sum()) for p in both]
        if not sums:
            continue
        counts = np.array(sums, np.float64)
        measures = {"agree": _raw, "kappa": _kappa,
                    "the first says relevant": lambda s: s[:, 1] / s[:, 0],
                    "the second says relevant": lambda s: s[:, 2] / s[:, 0]}  # fmt: skip
        for measure, function in measures.items():
            found[f"{name}: {measure}"] = _bootstrap(counts, function)
    lines = [line for line in lines if line["probability"] and line["gold"]]
    if lines:
        scores, gold = np.concatenate([_passages(o, "probability", "gold") for o in lines]).T
        if 0 < gold.sum() < len(gold):
            value = auc(scores, gold)
            found["probability and gold: AUC"] = Interval(value, math.nan, math.nan, len(lines))
    return found


def _passages(line: Mapping[str, Any], first: str, second: str) -> Float[np.ndarray, "p 2"]:
    """Two judgements of each different passage of a question."""
    columns = (chain.from_iterable(line[name]) for name in ("passages", first, second))
    return np.array(list({name: pair for name, *pair in zip(*columns, strict=True)}.values()))


def _raw(sums: Counts) -> Float[np.ndarray, " r"]:
    """Share of judgements that agree."""
    n, first, second, both = sums.T
    return (n - first - second + 2 * both) / n


def _kappa(sums: Counts) -> Float[np.ndarray, " r"]:
    """Cohen's kappa; NaN where both judges always say the same."""
    n, first, second, _ = sums.T
    chance = (first * second + (n - first) * (n - second)) / n**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance < 1, (_raw(sums) - chance) / (1 - chance), np.nan)


def _bootstrap(counts: Counts, measure: Callable[[Counts], Float[np.ndarray, " r"]]) -> Interval:
    """A measure of the sums over questions; measures are the same of means as of sums."""
    value = float(measure(counts.sum(0, keepdims=True))[0])
    found = measure(resampled_means(counts))
    known = found[~np.isnan(found)]
    low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
    return Interval(value, float(low), float(high), len(counts))
