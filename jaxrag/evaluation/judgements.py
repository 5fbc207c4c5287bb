"""A language model's judgements of the answers of a run: a metric beside exact match.

``judgements.json`` of a run directory, which `jaxrag.runs.judge` writes, has ``judge``, the model's
name; ``language_model``, its identity; ``prompts`` and ``prompt``, the set and its texts; and
``judgements`` by question id: ``prediction``, the answer that was judged, ``correct`` (null where
the reply is no judgement), and ``reply`` or ``error``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.core.json_text import read_json_object
from jaxrag.types import InputError

FILE = "judgements.json"
JUDGED = "judged"
"""The metric: 1 for an answer that was judged correct, 0 for one that was not."""


def read_judgements(run: Path) -> dict[str, Any]:
    """The contents of a run's judgements; {} without any; InputError if the file is damaged."""
    file, way_out = run / FILE, "remove it, and judge the run again"
    if not file.is_file():
        return {}
    content = read_json_object(file, what="the judgements of a run", way_out=way_out)
    lines = content.get("judgements")
    if not isinstance(lines, dict) or not all(isinstance(line, dict) for line in lines.values()):
        raise InputError(f"{file} lacks judgements by question: {way_out}.")
    return content


def judged(
    records: Sequence[Mapping[str, Any]], found: Mapping[str, Any]
) -> Float[np.ndarray, " q"]:
    """`JUDGED` of each record; NaN for one that was not judged, or has another answer since."""
    values = []
    for record in records:
        line = found.get("judgements", {}).get(record["question_id"], {})
        same = line.get("correct") is not None and line["prediction"] == record.get("prediction")
        values.append(float(line["correct"]) if same else math.nan)
    return np.array(values)


def agreement(
    found: Mapping[str, Any], judged: Float[np.ndarray, " q"], exact_match: Float[np.ndarray, " q"]
) -> str:
    """Who judged, how many replies were judgements, and how many agree with ``exact_match``."""
    defined = ~np.isnan(judged) & ~np.isnan(exact_match)
    replies = [line for line in found["judgements"].values() if {"reply", "error"} & line.keys()]
    parsed = sum(line.get("correct") is not None for line in replies)
    same = (judged == exact_match)[defined]
    text = f"judged by {found['judge']}: {parsed:,} of {len(replies):,} replies are judgements"
    if not len(same):
        return text
    missed = ((judged == 1) & (exact_match == 0)).sum()
    return (
        f"{text}; {100 * same.mean():.1f} % of judgements agree with exact match; correct by the "
        f"judge alone: {missed:,}"
    )
