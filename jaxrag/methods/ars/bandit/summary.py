"""What trained selectors come to on the test questions: scores, regret and choices, with intervals.

All of it follows from the table and from which K each training chose at its last epoch. A figure of
several seeds is each question's mean over them, its interval a bootstrap over questions; ``std`` is
the sample standard deviation of the seeds' own means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxrag.evaluation.significance import intervals, paired_difference
from jaxrag.functional.bandits import policies
from jaxrag.methods.ars.bandit.reward_table import RewardTable
from jaxrag.methods.ars.bandit.settings import Scheme

SCORES = ("correct", "exact_match", "f1")
BEST_FIXED, ORACLE, RANDOM = "best fixed K", "oracle", "random K"
Line = Mapping[str, Any]


def summarise(
    table: RewardTable, schemes: Sequence[Scheme], lines: Sequence[Line]
) -> dict[str, Any]:
    """A table's part of selector.json: a row for each scheme and policy.

    Best fixed K and oracle stand beside the policies under every scheme, random K and each fixed K
    under the weights alone.

    Args:
      table: the stored rewards.
      schemes: how they are paid.
      lines: the table's lines of curves.jsonl.
    """
    rows = []
    for scheme in schemes:
        here = [line for line in lines if line["scheme"] == scheme.name]
        rows += [{"scheme": scheme.name, "penalty": scheme.penalty, **row}
                 for row in _rows(table, scheme, here)]  # fmt: skip
    counts = {"train": int(table.train.sum()), "test": int((~table.train).sum())}
    dataset = table.config.get("dataset", table.name)
    name = dataset.get("name", table.name) if isinstance(dataset, Mapping) else str(dataset)
    return {"table": table.name, "dataset": name, "questions": counts, "arms": table.arms,
            "results": rows}  # fmt: skip


def _rows(table: RewardTable, scheme: Scheme, lines: Sequence[Line]) -> list[dict[str, Any]]:
    paid = scheme.rewards(table.base)
    test, train = paid[~table.train], paid[table.train]
    fixed = int(policies.best_fixed_arm(jnp.asarray(train)))
    rows = []
    for policy in dict.fromkeys(line["policy"] for line in lines):
        mine = [line for line in lines if line["policy"] == policy]
        chosen = np.array([line["chosen"] for line in mine]) - 1
        rows.append({"policy": policy, **_row(table, test, fixed, chosen)})
    n, arms = test.shape
    same = [("K = " + str(a + 1), np.full((1, n), a)) for a in range(arms)]
    every = np.tile(
        np.arange(arms)[:, None], (1, n)
    )  # random K: the mean over all of them, exactly
    best = np.asarray(policies.oracle(jnp.asarray(test)))[None]
    references = [(BEST_FIXED, same[fixed][1]), (ORACLE, best)]
    if scheme.penalty is None:
        references += [(RANDOM, every), *same]
    for policy, chosen in references:
        rows.append({"policy": policy, **_row(table, test, fixed, chosen, seeds=0)})
    return rows


def _row(
    table: RewardTable,
    paid: Float[np.ndarray, "q a"],
    fixed: int,
    chosen: Int[np.ndarray, "s q"],
    *,
    seeds: int | None = None,
) -> dict[str, Any]:
    """Figures of what was ``chosen``, arms from 0, by every seed for every test question."""
    scores = {name: getattr(table, name)[~table.train] for name in SCORES}
    row = np.arange(len(paid))
    tables = {"reward": paid.astype(np.float64), **scores}
    each = {name: values[row, chosen] for name, values in tables.items()}
    each["k"] = chosen + 1.0
    each["regret"] = tables["reward"].max(1) - each["reward"]
    means = {name: values.mean(0) for name, values in each.items()}
    against = paired_difference(means["reward"], paid[:, fixed].astype(np.float64))
    many = len(chosen) if seeds is None else seeds
    counts = np.bincount(chosen.ravel(), minlength=paid.shape[1])
    return {
        "seeds": many,
        "means": _with_intervals(means),
        "std": {name: float(v.mean(1).std(ddof=1)) for name, v in each.items()}
        if many > 1
        else None,
        "over_best_fixed": against._asdict(),
        "best_fixed": fixed + 1,
        "share_of_k": (counts / counts.sum()).tolist(),
    }


def _with_intervals(columns: Mapping[str, Float[np.ndarray, " q"]]) -> dict[str, dict[str, float]]:
    """Means with their ends. Only shares get Wilson's interval where all questions agree."""
    found = {name: one._asdict() for name, one in intervals(columns).items()}
    for name, values in columns.items():
        if name not in SCORES and np.ptp(values) == 0:
            found[name] |= {"low": found[name]["mean"], "high": found[name]["mean"]}
    return found
