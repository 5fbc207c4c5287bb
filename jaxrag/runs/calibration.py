"""Thresholds of gates that are given as the share of questions that retrieve, such as "ratio:0.75".

A threshold in nats, or of F1, belongs to a language model. The share can be compared between
models; the threshold for it is a quantile of the gate's score over training questions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.core.progress import tell
from jaxrag.data.draw import Draw
from jaxrag.data.leakage import question_set, without_leaks
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.summary import calibration_text
from jaxrag.runs.parts import load_questions
from jaxrag.types import InputError

QUESTIONS = 500
"""Training questions on which a threshold is set, from the first; or all, if there are fewer."""

_LARGEST = 1e30
"""Above all scores but infinity; unlike that, plain JSON."""

DIRECTORY = "calibration"
"""In a run's directory: the run of the training questions."""


def calibrated(
    run: Any, workdir: Path, execute: Callable[[Any, Path], Any]
) -> tuple[Any, dict[str, Any]]:
    """The run with a number as its gate's threshold, and how that was found.

    Such a gate has `with_threshold`, which returns it with another threshold; `ratio`, which is
    None if its threshold is a number; and `score` of a trace: it retrieves above the threshold. It
    scores the first `QUESTIONS` questions of the training split of the run's data, in a run of its
    own in ``workdir``/calibration. The record is {} without a ratio. InputError if there is no
    training split, or training questions are evaluated, too, and ``leakage`` is not "keep".
    """
    if (data := calibration_data(run)) is None:
        return run, {}
    gate = run.method.gate
    sub = dataclasses.replace(
        run,
        method=dataclasses.replace(run.method, gate=gate.with_threshold(_LARGEST)),
        data=data,
        limit=QUESTIONS,
        label=f"{run.name}, calibration",
    )
    cache = Path(run.cache)
    evaluated, questions = load_questions(run, cache)
    training, asked = load_questions(sub, cache)
    texts = [question.text for question in asked]
    tested = question_set(f"the evaluated data {evaluated.label}", (q.text for q in questions))
    without_leaks(asked, texts, [tested], name=training.label, leakage=run.leakage)
    execute(sub, workdir / DIRECTORY)
    records = read_run(workdir / DIRECTORY).records
    scores = np.array([gate.score(r["trace"]) for r in records if "trace" in r])
    threshold, reached = threshold_of(scores, gate.ratio)
    record = {
        "ratio": gate.ratio,
        "reached": reached,
        "threshold": threshold,
        "questions": len(scores),
        "split": getattr(sub.data, "split", "") or getattr(sub.data, "part", ""),
    }
    tell(f"{run.name}: {calibration_text(record)}")
    method = dataclasses.replace(run.method, gate=gate.with_threshold(threshold))
    return dataclasses.replace(run, method=method), record


def calibration_data(run: Any) -> Any:
    """Settings of the questions that set a gate's threshold; None if that is a number."""
    gate: Any = getattr(run.method, "gate", None)
    if not hasattr(gate, "with_threshold") or gate.ratio is None:
        return None
    return training_split(run.data)


def threshold_of(scores: Float[np.ndarray, " q"], ratio: float) -> tuple[float, float]:
    """The threshold t at which the share of scores above t is nearest to ``ratio``.

    t lies in the middle between two neighbouring scores, so that no score equals it; it is 0, or
    just above the largest finite score, for the largest and the smallest share. Of two thresholds
    as near, the smaller one is taken, which retrieves more often. Infinite scores are above all.
    InputError if there are no scores.
    """
    if not scores.size:
        raise InputError(
            "no training question was answered, so there is no threshold for a ratio: see "
            f"answers.jsonl in the run's directory {DIRECTORY}."
        )
    finite = np.unique(scores[np.isfinite(scores)])
    last = finite[-1:] + 1e-6 * np.abs(finite[-1:])
    thresholds = np.unique([0.0, *(finite[:-1] + finite[1:]) / 2, *last])
    above = scores.size - np.searchsorted(np.sort(scores), thresholds)  # 0 is above 0: always
    shares = above / scores.size
    best = int(np.argmin(np.abs(shares - ratio)))
    return float(thresholds[best]), float(shares[best])


def training_split(data: Any) -> Any:
    """Settings of the training questions of some data; InputError if there are none."""
    if isinstance(data, Draw):
        return dataclasses.replace(data, part="train")
    split = getattr(data, "split", None)
    if split is None or split == "train":
        raise InputError(
            f"a gate's threshold that is a ratio needs training questions, and the data "
            f"({type(data).__name__} {getattr(data, 'name', '')}) have no training split beside "
            "the one that is evaluated: give a number."
        )
    changes = {"split": "train"} | ({"first": 0} if hasattr(data, "first") else {})
    return dataclasses.replace(data, **changes)
