"""Statistics of trained bandits on the test questions: scores, regret and choices, with intervals.

A value of several seeds is each question's mean over the seeds, its interval a bootstrap over
questions; ``std`` is the sample standard deviation of the seeds' means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxrag.evaluation.significance import intervals, paired_difference
from jaxrag.functional.bandits import policies
from jaxrag.methods.ars.bandit.reward_table import RewardTable
from jaxrag.methods.ars.bandit.settings import RewardScheme

SCORES = ("correct", "exact_match", "f1")
BEST_FIXED, ORACLE, RANDOM = "best fixed K", "oracle", "random K"
Line = Mapping[str, Any]


def summarise(
    table: RewardTable, schemes: Sequence[RewardScheme], lines: Sequence[Line]
) -> dict[str, Any]:
    """A table's part of bandit.json: a row for each scheme and policy.

    ``lines`` are the table's of curves.jsonl. Best fixed K and oracle are added under every scheme,
    random K and each fixed K under the weights alone.
    """
    rows = []
    for scheme in schemes:
        mine = [line for line in lines if line["scheme"] == scheme.name]
        rows += [{"scheme": scheme.name, "penalty": scheme.penalty, **row}
                 for row in _rows(table, scheme, mine)]  # fmt: skip
    counts = {"train": int(table.train.sum()), "test": int((~table.train).sum())}
    dataset = table.config.get("dataset", table.name)
    name = dataset.get("name", table.name) if isinstance(dataset, Mapping) else str(dataset)
    return {"table": table.name, "dataset": name, "questions": counts, "arms": table.arms,
            "results": rows}  # fmt: skip


def _rows(
    table: RewardTable, scheme: RewardScheme, lines: Sequence[Line]
) -> Iterator[dict[str, Any]]:
    rewards = scheme.rewards(table.base)
    test, train = rewards[~table.train], rewards[table.train]
    fixed = int(policies.best_fixed_arm(jnp.asarray(train)))
    for policy in dict.fromkeys(line["policy"] for line in lines):
        chosen = np.array([line["chosen"] for line in lines if line["policy"] == policy]) - 1
        yield {"policy": policy, "seeds": len(chosen), **_row(table, test, fixed, chosen)}
    n, arms = test.shape
    every = np.tile(np.arange(arms)[:, None], (1, n))  # [a q]: row a always keeps a + 1
    references = {
        BEST_FIXED: every[fixed][None],
        ORACLE: np.asarray(policies.oracle(jnp.asarray(test)))[None],
    }
    if scheme.penalty is None:
        references[RANDOM] = every  # the mean over all K is random K, exactly
        references |= {f"K = {a + 1}": every[a][None] for a in range(arms)}
    for policy, chosen in references.items():
        row = _row(table, test, fixed, chosen)
        yield {"policy": policy, "seeds": 0, **row, "std": None}


def _row(
    table: RewardTable,
    rewards: Float[np.ndarray, "q a"],
    fixed: int,
    chosen: Int[np.ndarray, "s q"],
) -> dict[str, Any]:
    """Statistics of the arms ``chosen``, from 0, by every seed for every test question."""
    scores = {name: getattr(table, name)[~table.train] for name in SCORES}
    row = np.arange(len(rewards))
    tables = {"reward": rewards.astype(np.float64), **scores}
    columns = {name: values[row, chosen] for name, values in tables.items()}
    columns["k"] = chosen + 1.0
    columns["regret"] = tables["reward"].max(1) - columns["reward"]
    means = {name: values.mean(0) for name, values in columns.items()}
    difference = paired_difference(means["reward"], rewards[:, fixed].astype(np.float64))
    std = None
    if len(chosen) > 1:
        std = {name: float(values.mean(1).std(ddof=1)) for name, values in columns.items()}
    counts = np.bincount(chosen.ravel(), minlength=rewards.shape[1])
    return {
        "means": _with_intervals(means),
        "std": std,
        "over_best_fixed": difference._asdict(),
        "best_fixed": fixed + 1,
        "share_of_k": (counts / counts.sum()).tolist(),
    }


def _with_intervals(columns: Mapping[str, Float[np.ndarray, " q"]]) -> dict[str, dict[str, float]]:
    """Means and their intervals; of a constant column only scores, shares of questions, have one.

    `intervals` gives constant columns Wilson's interval, which is for shares.
    """
    means = {name: interval._asdict() for name, interval in intervals(columns).items()}
    for name, values in columns.items():
        if name not in SCORES and np.ptp(values) == 0:
            means[name] |= {"low": means[name]["mean"], "high": means[name]["mean"]}
    return means
