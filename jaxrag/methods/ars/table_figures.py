"""What is in ARS-RAG's tables of labels and rewards: figures with intervals, for the terminal."""

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
"""Of each question: judgements, those that say 1, gold ones, and those where both do."""


def labels_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """How rewrites and judgements came out, and how far the judgements agree."""
    shown = Table("labels", "questions", "mean", "95 % interval", title=f"{len(lines)} questions")
    for name, values in label_columns(lines).items():
        found = intervals({"one": values})["one"]
        if found.n:
            _row(shown, name, found)
    for name, found in agreements(lines).items():
        _row(shown, name, found)
    return shown


def rewards_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """What each number of rewrites earns on the test questions (all, where there are none)."""
    test = [line for line in lines if line["part"] == "test"] or lines
    name = "exact match" if test[0]["task"] == "open" else "accuracy"
    shown = Table("rewrites", f"{name} %", "F1 %", "reward", title=f"{len(test)} test questions")
    base = np.array([line["base"] for line in test])
    for k in range(1, base.shape[1] + 1):
        columns = {n: np.array([line[n][k - 1] for line in test]) for n in ("correct", "f1")}
        found = intervals({**columns, "base": base[:, k - 1]})
        shown.add_row(
            str(k), _percent(found["correct"]), _percent(found["f1"]), f"{found['base'].mean:.3f}"
        )
    best = intervals({"one": base.max(1)})["one"]
    shown.add_row("best of each", "", "", f"{best.mean:.3f}")
    return shown


def label_columns(
    lines: Sequence[Mapping[str, Any]],
) -> dict[str, Float[np.ndarray, " q"]]:
    """Figures with a value for every question; NaN where one has none."""

    def column(value: Callable[[Mapping[str, Any]], float | None]) -> Float[np.ndarray, " q"]:
        found = [value(line) for line in lines]
        return np.array([math.nan if one is None else one for one in found], float)

    def mean(name: str) -> Callable[[Mapping[str, Any]], float | None]:
        return lambda line: None if line[name] is None else float(np.mean(line[name]))

    return {
        "rewrites filled in": column(lambda line: line["filled"]),
        "different passages": column(lambda line: len(set(chain.from_iterable(line["passages"])))),
        "y by log-probability": column(mean("labels_logprob")),
        "y by word": column(mean("labels")),
        "y by gold passages": column(mean("labels_gold")),
        "neither word": column(lambda line: line["junk"] if line["relevant"] else None),
    }


_PAIRS = (
    ("log-probability and gold", "relevant_logprob", "gold"),
    ("word and gold", "relevant", "gold"),
    ("word and log-probability", "relevant", "relevant_logprob"),
)


def agreements(lines: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """Raw agreement, Cohen's kappa, shares judged relevant, and the AUC of the probability.

    Each passage of a question counts once. Intervals are over resampled questions.
    """
    found: dict[str, Interval] = {}
    for name, ours, theirs in _PAIRS:
        counts = _counts(lines, ours, theirs)
        if not len(counts):
            continue
        measures = {"agree": raw, "kappa": kappa, "the first says relevant": judged_share,
                    "the second says relevant": gold_share}  # fmt: skip
        for told, measure in measures.items():
            found[f"{name}: {told}"] = _resampled(counts, measure)
    pairs = [_passages(line, "probability", "gold") for line in lines
             if line["probability"] and line["gold"]]  # fmt: skip
    if pairs and 0 < sum(g for one in pairs for _, g in one) < sum(map(len, pairs)):
        scores, gold = zip(*(pair for one in pairs for pair in one), strict=True)
        value = auc(scores, gold)
        found["probability and gold: AUC"] = Interval(value, math.nan, math.nan, len(pairs))
    return found


def _passages(line: Mapping[str, Any], ours: str, theirs: str) -> list[tuple[float, float]]:
    """What two columns say of each different passage of a question."""
    columns = (chain.from_iterable(line[name]) for name in ("passages", ours, theirs))
    pairs = zip(*columns, strict=True)
    return list({name: (first, second) for name, first, second in pairs}.values())


def _counts(lines: Sequence[Mapping[str, Any]], ours: str, theirs: str) -> Counts:
    rows = []
    for line in lines:
        if line[ours] is None or line[theirs] is None:
            continue
        pairs = np.array(_passages(line, ours, theirs))
        rows.append([len(pairs), pairs[:, 0].sum(), pairs[:, 1].sum(), pairs.prod(1).sum()])
    return np.array(rows, np.float64).reshape(-1, 4)


def raw(sums: Counts) -> Float[np.ndarray, " r"]:
    """Share of judgements that agree."""
    n, first, second, both = sums.T
    return (n - first - second + 2 * both) / n


def kappa(sums: Counts) -> Float[np.ndarray, " r"]:
    """Cohen's kappa: agreement beyond chance; NaN where both always say the same."""
    n, first, second, _ = sums.T
    chance = (first * second + (n - first) * (n - second)) / n**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance < 1, (raw(sums) - chance) / (1 - chance), np.nan)


def judged_share(sums: Counts) -> Float[np.ndarray, " r"]:
    """Share of judgements that the first makes 1."""
    return sums[:, 1] / sums[:, 0]


def gold_share(sums: Counts) -> Float[np.ndarray, " r"]:
    """Share of judgements that the second makes 1."""
    return sums[:, 2] / sums[:, 0]


def _resampled(counts: Counts, measure: Callable[[Counts], Float[np.ndarray, " r"]]) -> Interval:
    """A measure of sums over questions, with its bootstrap interval over questions.

    The measures are the same of means as of sums.
    """
    value = float(measure(counts.sum(0, keepdims=True))[0])
    found = measure(resampled_means(counts))
    known = found[~np.isnan(found)]
    low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
    return Interval(value, float(low), float(high), len(counts))


def _row(table: Table, name: str, found: Interval) -> None:
    ends = "" if math.isnan(found.low) else f"[{found.low:.3f}, {found.high:.3f}]"
    table.add_row(name, str(found.n), f"{found.mean:.3f}", ends)


def _percent(found: Interval) -> str:
    return f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"
