"""Closed questions by class: precision, and accuracy of the questions of each class.

Precision: correct predictions of a class / all predictions of it.

ARS-RAG prints a precision without saying how classes are averaged (docs/methods, "Common: answer
scores"), so both usual averages are computed. It is defined for a set of questions, not for one,
and therefore not among `metrics`.

======================  =========================================================================
precision_positive      precision of the class yes (or true); not defined for choices, which have
                        no positive class
precision_macro         mean over all classes that were predicted or are gold; a class that was
                        never predicted has precision 0, as in scikit-learn
======================  =========================================================================

`class_accuracy` is of questions whose classes have names: true and false, yes and no, or the labels
of a data set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.data.question_kinds import VERDICTS, YES_NO
from jaxrag.evaluation.significance import ENDS, Interval, interval, resampled_means

NAMES = ("precision_positive", "precision_macro")
_UNDEFINED = Interval(math.nan, math.nan, math.nan, 0)
_NO_CLASS = -1  # a prediction that names no option


def intervals(records: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """Both precisions with bootstrap intervals over the questions that have options."""
    options = [r["trace"]["option"] for r in records if "option" in r.get("trace", {})]
    options = [question for question in options if question["gold"] is not None]
    if not options:
        return dict.fromkeys(NAMES, _UNDEFINED)
    said = np.array([_NO_CLASS if o["said"] is None else o["said"] for o in options])
    gold = np.array([o["gold"] for o in options])
    classes = [c for c in np.union1d(said, gold) if c != _NO_CLASS]
    answered = said[:, None] == np.array(classes)
    columns = np.concatenate([answered, answered & (gold == said)[:, None]], axis=1).astype(float)
    # the questions themselves come first
    predicted, right = np.split(np.vstack([columns.mean(0), resampled_means(columns)]), 2, axis=1)
    with np.errstate(invalid="ignore"):
        shares = right / predicted  # NaN where a class was never predicted
    scores = {"precision_macro": np.nan_to_num(shares).mean(1)}
    if 0 in classes and all(option["positive"] for option in options):
        scores["precision_positive"] = shares[:, classes.index(0)]
    return {name: _interval(scores.get(name), len(said)) for name in NAMES}


def class_accuracy(records: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """Share of the questions of each gold class that were answered with it, by the class's name.

    Classes are in the order of the labels; an answer that names no class is wrong. Empty for open
    questions and for multiple choice.
    """
    by_task: dict[str, Sequence[str]] = {"fact_checking": VERDICTS, "yes_no": YES_NO}
    right: dict[str, list[float]] = {}
    for record in records:
        trace = record.get("trace", {})
        option = trace.get("option", {})
        names = option.get("labels") or by_task.get(trace.get("task", ""), ())
        if option.get("gold") is not None and names:
            for name in names:
                right.setdefault(name, [])
            right[names[int(option["gold"])]].append(float(option["said"] == option["gold"]))
    return {name: interval(np.array(values)) for name, values in right.items() if values}


def _interval(values: Float[np.ndarray, " r"] | None, n: int) -> Interval:
    if values is None or math.isnan(values[0]):
        return _UNDEFINED
    low, high = np.nanquantile(values[1:], ENDS)
    return Interval(float(values[0]), float(low), float(high), n)
