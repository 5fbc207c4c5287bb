"""Metrics of a ranked list of passages against relevance judgements, as trec_eval defines them.

Passages without a judgement count as not relevant. A question without relevant passages has no
score (NaN); trec_eval gives it 0, so the means over the other questions are the same.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import Any

import numpy as np


def recall_at_k(ranked: Sequence[Hashable], relevant: Set[Hashable], *, k: int) -> float:
    """Share of the relevant passages among the first ``k`` of a ranking (NaN without any)."""
    return len(relevant & {*ranked[:k]}) / len(relevant) if relevant else math.nan


def reciprocal_rank(ranked: Sequence[Hashable], relevant: Set[Hashable], *, k: int) -> float:
    """1 / rank of the first relevant passage; 0 if there is none among the first ``k``.

    Its mean over questions is MRR@k. NaN without relevant passages.
    """
    if not relevant:
        return math.nan
    return next((1 / rank for rank, item in enumerate(ranked[:k], 1) if item in relevant), 0.0)


def ndcg(ranked: Sequence[Hashable], grades: Mapping[Any, int], *, k: int) -> float:
    """Normalised discounted cumulative gain of the first ``k`` (Järvelin and Kekäläinen 2002).

    DCG = sum over ranks r of grade / log2(r + 1), divided by that of the ideal order of all judged
    passages, cut at ``k``, too: the linear gain of trec_eval and BEIR. ``grades`` are those of the
    judged passages; 0 is not relevant. NaN if no grade is above 0.
    """
    ideal = _dcg(sorted(grades.values(), reverse=True)[:k])
    return _dcg([grades.get(item, 0) for item in ranked[:k]]) / ideal if ideal else math.nan


def _dcg(grades: Sequence[int]) -> float:
    values = np.array(grades, np.float64)
    return float(np.sum(values / np.log2(np.arange(2, len(values) + 2))))
