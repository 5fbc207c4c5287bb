"""Metrics of a question: accuracy, retrieval, the gate and costs.

Every metric is an array with one float per question, in the order of the records, from which means,
bootstrap intervals and paired tests are computed. NaN where a metric is not defined for a question;
means are over the questions where it is defined, and carry their number.

========================  =====================================================================
exact_match               1 when the normalised prediction equals a normalised alias
f1                        token F1, the best over the aliases
f1_mean_over_aliases      token F1, the mean over the aliases (what PAIRS' TriviaQA column implies)
contains                  1 when the normalised prediction contains a normalised alias, in words
sub_em                    the same in characters, not words (FlashRAG's acc, Search-R1's cover EM)
recall                    share of the gold passages that are among those given to the reader
coverage                  1 when all gold passages are among those given to the reader
hit                       1 when at least one is
pool_recall               share of the gold passages that any search found, selected or not
ir_accuracy               1 when the first passage given to the reader holds a gold answer (R3)
trigger                   1 when the gate, or a method without one, chose to retrieve
retriever_activation      1 when at least one search was made
========================  =====================================================================

The first four retrieval metrics are defined for questions with known gold passages that were
searched for: a question answered directly says nothing about the retriever.
``ir_accuracy`` needs gold answers instead, open ones (see `holds_answer`). A record whose
``normalization`` is "unicode" is compared so (`jaxrag.text.answers.Normalization`). Costs
(``llm_calls``, ``prompt_tokens``, ``new_tokens``, ``searches``, ``seconds``, ``store_hits``) are
per question as well. No metric is defined for questions that failed. ``seconds`` are those of the
first computation of each result, as if nothing had been stored, compilation apart; they are defined
in no question of a run that took results from a store that does not know theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.data.question_kinds import FEVER, VERDICTS, YES_NO
from jaxrag.evaluation.ranking_metrics import recall_at_k
from jaxrag.text.answers import (
    Normalization,
    contains,
    exact_match,
    has_answer,
    normalize,
    sub_em,
    token_f1,
    unify,
)
from jaxrag.types import Passage, Question

Record = Mapping[str, Any]
"""A line of answers.jsonl, as ``jaxrag.evaluation.records`` describes it."""

ACCURACY = ("exact_match", "f1", "f1_mean_over_aliases", "contains", "sub_em")
RETRIEVAL = ("recall", "coverage", "hit", "pool_recall", "ir_accuracy")
GATE = ("trigger", "retriever_activation")
COSTS = ("llm_calls", "prompt_tokens", "new_tokens", "searches")
TIMINGS = ("seconds", "store_hits")
COUNTS = COSTS + TIMINGS
_CLOSED = frozenset({*YES_NO, *VERDICTS, *FEVER})
COLUMNS = (*ACCURACY, *RETRIEVAL, *GATE, *COSTS, *TIMINGS)


def score(
    records: Sequence[Record], timings: Mapping[str, Mapping[str, float]] | None = None
) -> dict[str, Float[np.ndarray, " q"]]:
    """All metrics of the records of a run; ``timings`` is keyed by question id."""
    timings = timings or {}
    rows = [question_scores(record, timings.get(record["question_id"], {})) for record in records]
    columns = {name: np.array([row.get(name, math.nan) for row in rows]) for name in COLUMNS}
    for timing in timings.values():  # older records count or show only store hits
        if timing.get("untimed", timing.get("stored", timing.get("store_hits"))):
            columns["seconds"].fill(math.nan)
    return columns


def question_scores(record: Record, timing: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are defined for one question."""
    if "error" in record:
        return {}
    form = record.get("normalization", "squad")
    answers = accuracy(record["prediction"], record["gold_answers"], form)
    option = record.get("trace", {}).get("option") or {"said": None}
    chosen = option["said"] is not None and not option["positive"]
    if answers and (chosen or "labels" in option):
        # one of several choices: their texts may differ in what normalisation removes (+1 and -1),
        # and a label may contain another, as "mostly true" does
        right = float(option["said"] == option["gold"])
        answers |= dict.fromkeys(("exact_match", "contains", "sub_em"), right)
    costs = {name: float(record["cost"].get(name, 0)) for name in COSTS if "cost" in record}
    times = {name: float(timing[name]) for name in TIMINGS if timing.get(name) is not None}
    retrieved = retrieval(record)
    if "top_holds_answer" in record:
        retrieved["ir_accuracy"] = float(record["top_holds_answer"])
    return answers | retrieved | gate(record) | costs | times


def accuracy(
    prediction: str, answers: Sequence[str], normalization: Normalization = "squad"
) -> dict[str, float]:
    """The scores of a prediction against its aliases; none without a gold answer."""
    if not answers:
        return {}
    prediction, *answers = unify(normalization, prediction, *answers)
    f1 = [token_f1(prediction, answer) for answer in answers]
    return {
        "exact_match": exact_match(prediction, answers),
        "f1": max(f1),
        "f1_mean_over_aliases": sum(f1) / len(f1),
        "contains": contains(prediction, answers),
        "sub_em": sub_em(prediction, answers),
    }


def retrieval(record: Record) -> dict[str, float]:
    """Recall of gold passages, coverage and hit, of the selected passages and of the pool."""
    gold = frozenset(record.get("gold_passages", ()))
    trace = record.get("trace", {})
    searches = trace.get("searches", ())
    if not gold or not searches:
        return {}
    selected = trace.get("selected", {}).get("ids", ())
    recall = recall_at_k(selected, gold, k=len(selected))
    # ARS-RAG's judge searches for passages that nobody reads
    read = (search for search in searches if search.get("path") != "judged")
    pool = gold & {passage for search in read for passage in search["ids"]}
    return {
        "recall": recall,
        "coverage": float(recall == 1),
        "hit": float(recall > 0),
        "pool_recall": len(pool) / len(gold),
    }


def holds_answer(
    question: Question, passage: Passage | None, normalization: Normalization = "squad"
) -> bool | None:
    """Whether the title or text of a passage has a gold answer, by DPR's rule (`has_answer`).

    False without a passage. None where this says nothing about a retriever: without
    `telling_answers`, and with choices (for which R3 reports no figure either).
    """
    answers = telling_answers(question)
    if question.choices or not answers:
        return None
    return passage is not None and passage_has(passage, answers, normalization)


def telling_answers(question: Question) -> tuple[str, ...]:
    """Gold answers whose words in a passage are evidence that it answers the question.

    Not yes, no, true, false or FEVER's labels, and no answer of a statement to verify, of a yes/no
    question or of one with labels: any passage may have these words.
    """
    if question.task not in ("open", "multiple_choice"):
        return ()
    return tuple(answer for answer in question.answers if normalize(answer) not in _CLOSED)


def passage_has(
    passage: Passage, answers: Sequence[str], normalization: Normalization = "squad"
) -> bool:
    """Whether the title or text of a passage contains one of the answers, see `has_answer`."""
    text, *answers = unify(normalization, f"{passage.title} {passage.text}", *answers)
    return has_answer(text, answers)


def gate(record: Record) -> dict[str, float]:
    """Whether the gate chose to retrieve, and whether anything was searched; of a trace alone."""
    if "trace" not in record:
        return {}
    trace = record["trace"]
    searched = bool(trace.get("searches"))
    decided = trace.get("gate", {}).get("retrieve", searched)
    return {"retriever_activation": float(searched), "trigger": float(decided)}


def totals(columns: Mapping[str, Float[np.ndarray, " q"]]) -> dict[str, float]:
    """Sums of the cost columns over all questions of a run; NaN for seconds that are not known."""
    sums = {name: float(np.nansum(columns[name])) for name in (*COSTS, *TIMINGS)}
    return sums | ({"seconds": math.nan} if np.isnan(columns["seconds"]).all() else {})


def direct_answers(
    records: Sequence[Record],
) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Uncertainty and exact match of the answers given without retrieval.

    Uncertainty is the stored mean negative log-likelihood in nats, +inf for an empty answer
    (stored as null, since JSON has no infinity). Both are NaN where no such answer was recorded.
    """
    u, right = np.full(len(records), math.nan), np.full(len(records), math.nan)
    for row, record in enumerate(records):
        direct = record.get("trace", {}).get("direct")
        if direct is None or "u" not in direct or not record["gold_answers"]:
            continue
        u[row] = math.inf if direct["u"] is None else direct["u"]
        form = record.get("normalization", "squad")
        scores = accuracy(direct.get("text") or "", record["gold_answers"], form)
        right[row] = scores["exact_match"]
    return u, right
