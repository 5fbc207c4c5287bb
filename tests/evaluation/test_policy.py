"""A gate at every threshold: by hand, and against runs at these thresholds."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.evaluation import policy
from jaxrag.evaluation.records import RunDirectory, RunRecords, read_run
from jaxrag.evaluation.significance import interval, paired_difference
from jaxrag.evaluation.summary import summarise
from tests.evaluation.fabricate import ENVIRONMENT

U = (0.1, 0.2, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, None)  # None: an empty answer
DIRECT = (1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0)
RETRIEVED = (0, 1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1)


def record(row: int, *, retrieve: bool, gate: float | None = None) -> dict[str, Any]:
    """A question as DTR answers it: 1 LLM call directly, 2 more and 2 searches to retrieve.

    ``gate`` is the threshold; without a gate no direct answer is asked if it retrieves.
    """
    right = (RETRIEVED if retrieve else DIRECT)[row]
    trace: dict[str, Any] = {"searches": [{"ids": ["a"]}] if retrieve else []}
    asked = gate is not None or not retrieve
    if asked:
        text = "" if U[row] is None else "Lima" if DIRECT[row] else "Quito"
        trace["direct"] = {"text": text, "u": U[row]}
    if gate is not None:
        trace["gate"] = {"name": "nll", "value": U[row], "threshold": gate, "retrieve": retrieve}
    calls = asked + 2 * retrieve
    cost = {"llm_calls": calls, "prompt_tokens": (100 + row) * calls, "new_tokens": 5 * calls}
    return {
        "question_id": f"q{row}", "question": f"{row}?", "gold_answers": ["Lima"],
        "prediction": "Lima" if right else "Quito", "trace": trace,
        "cost": cost | ({"searches": 2} if retrieve else {}),
    }  # fmt: skip


def written(path: Path, name: str, records: list[dict[str, Any]], **gate: Any) -> RunRecords:
    method = {"is": name, "name": name, "candidates": {"n": 0 if name == "no" else 5}, **gate}
    config = {"method": method, "dataset": {"name": "nq"}}
    with RunDirectory.open(path, config, environment=ENVIRONMENT) as directory:
        directory.append(records)
        directory.finish([str(one["question_id"]) for one in records])
    return read_run(path)


def at(path: Path, threshold: float) -> RunRecords:
    """The method as it runs at a threshold."""
    retrieve = [u is None or u > threshold or threshold == 0 for u in U]
    lines = [record(row, retrieve=which, gate=threshold) for row, which in enumerate(retrieve)]
    return written(path, "dtr", lines, gate={"threshold": threshold})


def without(path: Path, name: str, *, retrieve: bool) -> RunRecords:
    return written(path, name, [record(row, retrieve=retrieve) for row in range(len(U))])


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecords]:
    """No Retrieval, another method that always retrieves, DTR, and DTR without its gate."""
    return [
        without(tmp_path / "no", "no", retrieve=False),
        written(tmp_path / "rag", "rag", [record(i, retrieve=True) for i in range(12)], k=1),
        at(tmp_path / "dtr", 0.45),
        without(tmp_path / "always", "dtr", retrieve=True),
    ]


def test_which_runs_serve(runs: list[RunRecords]) -> None:
    found = policy.arms(runs, baseline=1)
    assert found is not None and (found.source, found.always, found.same) == (2, 3, True)
    assert found.accepted == 0.4
    other = policy.arms(runs[:3], baseline=1)
    assert other is not None and (other.always, other.same) == (1, False)
    assert policy.arms([runs[0], runs[2]], baseline=0) is None  # none always retrieves
    plain = policy.arms(runs[:2], baseline=1)  # without any gate
    assert plain is not None and (plain.source, plain.accepted) == (0, None)


def test_values_are_those_of_runs_at_the_thresholds(runs: list[RunRecords], tmp_path: Path) -> None:
    """Exact match, its interval, costs and the paired difference, at each threshold."""
    # with more calls than the direct answer, as where a second answer is compared with it
    dearer = [record(row, retrieve=False) | {"cost": {"llm_calls": 3}} for row in range(len(U))]
    pairs = written(tmp_path / "pairs", "pairs", dearer, k=1)
    arms = policy.arms([*runs, pairs], baseline=1)
    assert arms is not None
    found = policy.settings(arms)
    assert [one.accepted for one in found] == [-math.inf, *sorted({u for u in U if u})]
    assert [one.threshold for one in found[:3]] == [0, 0.15, 0.3]
    # a run at threshold 0 asks for the direct answer that a run without a gate does not need
    always = at(tmp_path / "threshold=0", 0)
    right = np.array(RETRIEVED, float)
    assert found[0].exact_match == interval(right) and found[0].difference[:3] == (0, 0, 0)
    for one in found:
        run = at(tmp_path / f"threshold={one.threshold}", one.threshold)
        row = summarise([always.path, run.path], baseline="threshold=0")[1]
        assert one.exact_match == pytest.approx(row.means["exact_match"])
        assert one.difference[:3] == pytest.approx(row.differences["exact_match"][:3])
        assert one.retrieves == pytest.approx(row.means["trigger"].mean)
        for name in policy.COSTS:
            assert one.costs[name] == pytest.approx(row.means[name].mean), name
    answered = np.array([*DIRECT[:-1], RETRIEVED[-1]], float)  # an empty answer retrieves
    assert found[-1].exact_match.mean == pytest.approx(answered.mean())
    assert found[-1].difference[:3] == pytest.approx(paired_difference(answered, right)[:3])


def test_a_run_at_threshold_0_serves_as_its_own_arms(tmp_path: Path) -> None:
    arms = policy.arms([at(tmp_path / "a", 0)], baseline=0)
    assert arms is not None and arms.same and (arms.source, arms.always) == (0, 0)
    last = policy.settings(arms)[-1]
    # no run answered without searching, so only what needs no such answer is known
    assert last.exact_match.mean == pytest.approx(4 / 12) and math.isnan(last.costs["llm_calls"])


def test_the_cheapest_within_a_loss(runs: list[RunRecords]) -> None:
    arms = policy.arms(runs, baseline=1)
    assert arms is not None
    found = policy.settings(arms)
    # EM by hand, always retrieving: 7 of 12. u <= 0.1: 8; <= 0.2: 7; <= 0.5: 7; <= 0.6: 6
    right = [round(12 * one.exact_match.mean) for one in found]
    assert right[:6] == [7, 8, 7, 7, 7, 6]
    assert policy.cheapest(found) == 4
    assert policy.cheapest(found, within=0.1) == 6
    assert policy.cheapest(found[:1]) == 0


def test_many_questions_share_settings_and_keep_that_of_the_run() -> None:
    rng = np.random.default_rng(0)
    u, right = rng.gamma(2, 1, 2000), (rng.random(2000) < 0.5).astype(float)
    own = float(np.sort(u)[1234])
    spent = {name: np.ones((2, 2000)) for name in policy.COSTS}
    arms = policy.Arms(0, 0, True, own, u, right, 1 - right, spent)
    found = policy.settings(arms)
    assert 200 <= len(found) <= policy.POINTS + 2 and own in [one.accepted for one in found]
    for one in found[1:]:  # the printed threshold makes the same decisions
        assert ((u <= one.threshold) == (u <= one.accepted)).all()
