"""A gate on u at every threshold: what it would have answered and spent, from stored answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation import metrics
from jaxrag.evaluation.curves import ThresholdCurve, thresholds
from jaxrag.evaluation.pairing import paired_rows
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.significance import Interval, intervals

LEAST = 10  # questions; with fewer nothing is computed
POINTS = 201  # settings; more than 200 questions share some
COSTS = ("searches", "llm_calls", "prompt_tokens", "new_tokens")


class Arms(NamedTuple):
    """The two answers between which a gate chooses, of each question.

    Attributes:
      source, always: positions of the run whose u and direct answers these are, and of the run that
        retrieved for all questions.
      same: whether that is the source's method but for its gate.
      accepted: greatest u that the source's gate accepted, -inf for none; None without a gate.
      u: uncertainty of the direct answer in nats, +inf if it is empty.
      direct, retrieved: exact match of both answers.
      spent: costs of the direct answer, and of retrieving after it; NaN where no run tells.
    """

    source: int
    always: int
    same: bool
    accepted: float | None
    u: Float[np.ndarray, " q"]
    direct: Float[np.ndarray, " q"]
    retrieved: Float[np.ndarray, " q"]
    spent: Mapping[str, Float[np.ndarray, "2 q"]]


class GateSetting(NamedTuple):
    """A threshold and what it gives.

    ``threshold`` retrieves for the same questions wherever it lies between two values of u; one of
    few digits is taken. 0 retrieves for all.
    """

    threshold: float
    accepted: float  # greatest u that is answered directly, -inf for none
    retrieves: float  # share of the questions
    exact_match: Interval  # over all questions
    difference: Interval  # of exact match from retrieving for all, paired
    costs: Mapping[str, float]  # means per question, NaN if not known for all


def source_of(runs: Sequence[RunRecords]) -> int:
    """Position of the run with the most direct answers; one whose gate on u skips goes first."""
    counts = [(~np.isnan(metrics.direct_answers(run.records)[0])).sum() for run in runs]
    keys = []
    for run, count in zip(runs, counts, strict=True):
        accepted = _accepted(run) if count >= LEAST else None
        # a gate on u that accepted a direct answer, another gate on u, none
        keys.append((0 if accepted is None else 1 + math.isfinite(accepted), count))
    return keys.index(max(keys))


def own_thresholds(run: RunRecords) -> set[float]:
    """The thresholds of a run's gate on u; none without such a gate."""
    gates = (record.get("trace", {}).get("gate", {}) for record in run.records)
    return {gate["threshold"] for gate in gates if gate.get("name") == "nll"}


def arms(runs: Sequence[RunRecords], *, baseline: int) -> Arms | None:
    """The answers of runs on one data set between which a gate on u chooses.

    Direct answers are those of `source_of`. Answers with retrieval are those of a run that
    retrieved for all questions: the same method without its gate or at threshold 0, else the
    ``baseline`` (a position), else the first one. What a direct answer costs is taken from any run
    that gave the same one, at the same u, without a search. None with fewer than 10 questions that
    both runs answered.
    """
    source = source_of(runs)
    searched = [metrics.score(run.records)["retriever_activation"] for run in runs]
    always = [i for i, values in enumerate(searched) if len(values) and not (values < 1).any()]
    always = [i for i in always if not np.isnan(searched[i]).all()]
    if not always:
        return None
    frame = _without_gate(runs[source])
    same = [i for i in always if frame and _without_gate(runs[i]) == frame]
    chosen = same[0] if same else baseline if baseline in always else always[0]
    u, direct = metrics.direct_answers(runs[source].records)
    ours, theirs = paired_rows(runs[source], runs[chosen])
    retrieved = metrics.score(runs[chosen].records)["exact_match"][theirs]
    defined = ~np.isnan(u[ours]) & ~np.isnan(direct[ours]) & ~np.isnan(retrieved)
    if defined.sum() < LEAST:
        return None
    ours, theirs, retrieved = ours[defined], theirs[defined], retrieved[defined]
    records = (
        [runs[source].records[row] for row in ours],
        [runs[chosen].records[row] for row in theirs],
    )
    return Arms(
        source, chosen, bool(same), _accepted(runs[source]), u[ours], direct[ours], retrieved,
        _spent(runs, *records),
    )  # fmt: skip


def _without_gate(run: RunRecords) -> dict[str, Any]:
    """A method's settings but for its gate and name; empty where they are not recorded."""
    method = run.config.get("method")
    if not isinstance(method, Mapping) or "candidates" not in method:
        return {}
    return {name: value for name, value in method.items() if name not in ("is", "gate", "name")}


def _accepted(run: RunRecords) -> float | None:
    """The greatest u for which a run's gate did not retrieve, -inf if it always did."""
    if not own_thresholds(run):
        return None
    gates = (record.get("trace", {}).get("gate", {}) for record in run.records)
    skipped = (gate["value"] for gate in gates if gate.get("retrieve") is False)
    return max((u for u in skipped if u is not None), default=-math.inf)


def _spent(
    runs: Sequence[RunRecords], ours: Sequence[metrics.Record], theirs: Sequence[metrics.Record]
) -> dict[str, Float[np.ndarray, "2 q"]]:
    """Costs of the direct answers, and of answers with retrieval after them."""
    costs = {
        _direct_answer(record): record["cost"]
        for run in runs
        for record in run.records
        if record.get("cost", {}).get("llm_calls") == 1 and not record["trace"].get("searches")
    }
    spent = {name: np.full((2, len(ours)), math.nan) for name in COSTS}
    for row, (own, other) in enumerate(zip(ours, theirs, strict=True)):
        direct = costs.get(_direct_answer(own))
        for name in COSTS:
            first = math.nan if direct is None else direct.get(name, 0)
            included = "direct" in other.get("trace", {})
            after = other.get("cost", {}).get(name, math.nan if name != "searches" else 0)
            spent[name][:, row] = first, after + (0 if included else first)
    return spent


def _direct_answer(record: metrics.Record) -> tuple[str, Any, Any]:
    """Question, text and u of a record's direct answer."""
    direct = record.get("trace", {}).get("direct", {})
    return str(record["question_id"]), direct.get("text"), direct.get("u")


def settings(arms: Arms) -> list[GateSetting]:
    """What each threshold gives, from retrieving for all questions to the fewest.

    Up to 200 questions there is a setting for each value of u, beyond that for shares of questions
    that grow evenly. An empty direct answer always retrieves. Intervals are those of
    `significance.intervals` over the questions, all on the same resamples.
    """
    finite = arms.u[np.isfinite(arms.u)]
    grid = thresholds(finite, points=POINTS)[:-1] if len(finite) else np.array([-math.inf])
    limit = -math.inf if arms.accepted is None else arms.accepted
    grid = np.unique([*grid, finite[finite <= limit].max(initial=-math.inf)])
    taken = [arms.u <= accepted for accepted in grid]
    scores = {str(i): np.where(t, arms.direct, arms.retrieved) for i, t in enumerate(taken)}
    changes = {f"change {i}": score - arms.retrieved for i, score in scores.items()}
    estimates = intervals(scores | changes, counts=changes)
    return [
        GateSetting(
            _between(accepted, arms.u[arms.u > accepted].min(initial=math.inf)),
            float(accepted),
            float(1 - direct.mean()),
            estimates[str(i)],
            estimates[f"change {i}"],
            {name: float(np.where(direct, *spent).mean()) for name, spent in arms.spent.items()},
        )
        for i, (accepted, direct) in enumerate(zip(grid, taken, strict=True))
    ]


def curve(found: Sequence[GateSetting]) -> ThresholdCurve:
    """Exact match of the settings by the share that is answered directly."""
    rows = [(gate.accepted, 1 - gate.retrieves, *gate.exact_match[:3]) for gate in found]
    return ThresholdCurve(*np.array(rows, np.float64).T)


def _between(low: float, high: float) -> float:
    """A number of few digits above ``low`` and below ``high``; 0 below all."""
    if math.isinf(low):
        return 0.0
    middle = (low + high) / 2 if math.isfinite(high) else 1.1 * low + 0.1
    rounded = (float(f"{middle:.{digits}g}") for digits in range(1, 18))
    return next((value for value in rounded if low < value < high), low)


def cheapest(found: Sequence[GateSetting], *, within: float = 0.01) -> int:
    """Position of the setting with the fewest tokens that loses at most ``within`` exact match.

    The loss is the mean difference from retrieving for all. LLM calls and searches decide among
    equal ones, and all where tokens are not known.
    """

    def price(i: int) -> tuple[float, ...]:
        costs = found[i].costs
        tokens = costs["prompt_tokens"] + costs["new_tokens"]
        spent = (tokens, costs["llm_calls"], costs["searches"])
        return tuple(math.inf if math.isnan(value) else value for value in spent)

    allowed = [i for i, gate in enumerate(found) if gate.difference.mean >= -within - 1e-9]
    return min(allowed, key=price)
