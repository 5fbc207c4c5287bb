"""Was the search needed? A gated run beside one that never and one that always retrieves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxrag.evaluation.metrics import Record, gate, question_scores
from jaxrag.evaluation.pairing import paired_rows
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.significance import Difference, Interval, interval, paired_difference
from jaxrag.evaluation.summary import BASELINE, name_of

SKIPPED = ("rightly skipped", "wrongly skipped", "skipped in vain")
SEARCHED = ("repaired", "needless", "searched in vain", "harmed")
LOST = ("not found", "not selected", "not answered")


def need(retrieved: bool, right: bool, direct: bool, standard: bool) -> str:
    """One of `SKIPPED` or `SEARCHED`.

    ``right``, ``direct``, ``standard``: whether the method, No Retrieval, Standard RAG were right.
    A skipped question is wrongly so if Standard RAG alone is right, in vain if neither is. A search
    repairs a wrong direct answer, is needless if both are right, harms a right one, or is in vain.
    """
    if not retrieved:
        return SKIPPED[0] if right else SKIPPED[1 if standard else 2]
    if right:
        return SEARCHED[1 if direct else 0]
    return SEARCHED[3 if direct else 2]


def lost(record: Record) -> str:
    """Where a wrong answer lost the gold passages: one of `LOST`; "" for others, or if unknown."""
    scores = question_scores(record, {})
    if math.isnan(scores.get("hit", math.nan)) or scores.get("exact_match", 1) == 1:
        return ""
    return LOST[2] if scores["hit"] else LOST[1] if scores["pool_recall"] else LOST[0]


def places(runs: Sequence[RunRecords]) -> tuple[str, ...]:
    """`LOST` if gold passages of some question are marked, else none."""
    return LOST if any(line.get("gold_passages") for run in runs for line in run.records) else ()


def needs(run: RunRecords, direct: RunRecords, standard: RunRecords) -> dict[str, str]:
    """`need` by id, of the questions that all three runs answered with the same gold answers."""
    right_direct, right_standard = _right(run, direct), _right(run, standard)
    kinds = {}
    for record in run.records:
        ident, scores = str(record["question_id"]), question_scores(record, {})
        if "exact_match" in scores and ident in right_direct and ident in right_standard:
            answers = (scores["exact_match"] == 1, right_direct[ident], right_standard[ident])
            kinds[ident] = need(bool(scores["trigger"]), *answers)
    return kinds


def gated_needs(runs: Sequence[RunRecords]) -> list[dict[str, str]]:
    """`needs` of each run beside No Retrieval and Standard RAG; {} of one without a gate."""
    by_name = {name_of(run.config, "method"): run for run in runs}
    direct, standard = by_name.get("no_retrieval"), by_name.get(BASELINE)
    if direct is None or standard is None:
        return [{} for _ in runs]
    kinds = []
    for run in runs:
        chosen = {gate(record).get("trigger") for record in run.records} - {None}
        kinds.append(needs(run, direct, standard) if len(chosen) == 2 else {})
    return kinds


def _right(run: RunRecords, other: RunRecords) -> dict[str, bool]:
    """Whether the other run is right, by the id of each question that both hold."""
    right = {}
    for row in paired_rows(run, other)[1]:
        scores = question_scores(other.records[row], {})
        if "exact_match" in scores:
            right[str(other.records[row]["question_id"])] = scores["exact_match"] == 1
    return right


class Motivation(NamedTuple):
    """DTR's eq 1: retrieval pays where P_ret P_gen > P_param.

    P_param is the share of right answers without retrieval, P_ret that of questions for which
    Standard RAG read a gold passage, P_gen that of right answers among these; ``gain`` is
    P_ret P_gen - P_param, paired over the questions.
    """

    p_param: Interval
    p_ret: Interval
    p_gen: Interval
    gain: Difference

    @property
    def text(self) -> str:
        """A line with all values, in percent."""
        names = ("P_param", "P_ret", "P_gen", "P_ret P_gen - P_param")
        ends = ([100 * end for end in estimate[:3]] for estimate in self)
        values = (f"{mean:.1f} [{low:.1f}, {high:.1f}]" for mean, low, high in ends)
        listed = map(" ".join, zip(names, values, strict=True))
        return f"{', '.join(listed)}; n = {self.gain.n:,}"


def motivation(direct: RunRecords, standard: RunRecords) -> Motivation | None:
    """DTR's eq 1 over the questions of both runs with gold passages; None without such."""
    rows = []
    for a, b in zip(*paired_rows(direct, standard), strict=True):
        without = question_scores(direct.records[a], {})
        scores = question_scores(standard.records[b], {})
        if "exact_match" in without and "hit" in scores:
            rows.append((without["exact_match"], scores["hit"], scores["exact_match"]))
    if not rows:
        return None
    param, read, right = np.array(rows, np.float64).T
    gain = paired_difference(read * right, param)
    return Motivation(interval(param), interval(read), interval(right[read == 1]), gain)
