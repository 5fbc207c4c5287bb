"""Whether each search of a gated run was needed, from stored runs that never and always search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxrag.evaluation import metrics
from jaxrag.evaluation.pairing import paired_rows
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.summary import BASELINE, name_of

SKIPPED = ("rightly skipped", "wrongly skipped", "skipped in vain")
SEARCHED = ("repaired", "needless", "searched in vain", "harmed")
LOST = ("gold not found", "gold not selected", "gold not read")
NEVER = "no_retrieval"


def need(*, retrieves: bool, right: bool, direct: bool, rag: bool) -> str:
    """The class of a question, one of `SKIPPED` or `SEARCHED`.

    Args:
      retrieves: whether the gate chose to retrieve.
      right: whether the run's answer is right.
      direct: whether No Retrieval's is.
      rag: whether Standard RAG's is.
    """
    if not retrieves:
        return SKIPPED[0] if right else SKIPPED[1] if rag else SKIPPED[2]
    if right:
        return SEARCHED[1] if direct else SEARCHED[0]
    return SEARCHED[3] if direct else SEARCHED[2]


def lost(record: Mapping[str, Any]) -> str:
    """Where a wrong answer that searched lost its gold passages; "" for other questions.

    Not found: no gold passage was in the pool; not selected: none was given to the reader; not
    read: one was, and the answer is wrong.
    """
    found = metrics.question_scores(record, {})
    if "recall" not in found or found.get("exact_match", 1.0):
        return ""
    return LOST[2] if found["recall"] else LOST[1] if found["pool_recall"] else LOST[0]


def needs(runs: Sequence[RunRecords]) -> list[dict[str, str]]:
    """For each run of a data set, the class of each question by id.

    Empty for runs that retrieve for all questions or for none, and for all runs where No Retrieval
    or Standard RAG is missing. Questions that one of the three did not answer are left out.
    """
    by_name = {name_of(run.config, "method"): run for run in runs}
    if not {NEVER, BASELINE} <= by_name.keys():
        return [{} for _ in runs]
    return [_needs(run, by_name[NEVER], by_name[BASELINE]) for run in runs]


def _needs(run: RunRecords, never: RunRecords, always: RunRecords) -> dict[str, str]:
    own = metrics.score(run.records)
    if len({*own["trigger"][own["trigger"] >= 0].tolist()}) < 2:
        return {}
    direct, rag = _right(run, never), _right(run, always)
    return {
        record["question_id"]: need(
            retrieves=bool(own["trigger"][row]),
            right=bool(own["exact_match"][row]),
            direct=direct[row],
            rag=rag[row],
        )
        for row, record in enumerate(run.records)
        if row in direct and row in rag and own["exact_match"][row] >= 0
    }


def _right(run: RunRecords, other: RunRecords) -> dict[int, bool]:
    """By position in ``run``, whether another run answered a question right; without errors."""
    right = metrics.score(other.records)["exact_match"]
    pairs = zip(*paired_rows(run, other), strict=True)
    return {int(row): bool(right[there]) for row, there in pairs if right[there] >= 0}
