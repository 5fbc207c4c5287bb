"""Measures and figures of ARS-RAG (docs/methods, "ARS-RAG: strategies and ablations")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxrag.core import jsonl
from jaxrag.evaluation.report import plots
from jaxrag.evaluation.significance import (
    ENDS,
    Interval,
    interval,
    intervals,
    resampled_means,
    seed_interval,
)
from jaxrag.methods.ars.bandit.figures import over_seeds, seeds_std
from jaxrag.methods.ars.bandit.report import CURVES
from jaxrag.methods.ars.bandit.reward_table import RewardTable, read_table
from jaxrag.methods.ars.bandit.settings import RewardScheme
from jaxrag.methods.ars.rewards import reward_line
from jaxrag.reproduction.measures import JOB, Measure, Results, wall_seconds
from jaxrag.reproduction.printed.measured import Measured
from jaxrag.reproduction.tables import Picture

REWARDS = "rewards"
"""Name of the job that made the reward table of a bandit."""
WHOLE = "whole"
"""Name of the job that trained a bandit with the whole matrix Z."""
WEIGHTED = RewardScheme().name


def best_fixed_k(results: Results) -> Measured:
    """The K that scores best on the test questions; its interval is over bootstrap samples."""
    scores = _table_scores(read_table(results.directories[JOB])).scores
    drawn = 1 + resampled_means(scores).argmax(axis=1)
    low, high = np.quantile(drawn, ENDS)
    best = 1 + int(scores.mean(axis=0).argmax())
    return Measured(Interval(best, float(low), float(high), len(scores)))


def under_penalty(column: Literal["correct", "k"]) -> Measure:
    """Measures accuracy or mean K of the bandit that was trained with the row's lambda.

    A question's value is its mean over the seeds. Jobs: the row's trained the bandit, `REWARDS`
    made its reward table.
    """

    def measure(results: Results) -> Measured:
        assert results.row is not None
        scheme = RewardScheme(penalty=float(results.row.other["penalty_lambda"])).name
        table = read_table(results.directories[REWARDS])
        chosen = chosen_k(results.directories[JOB], scheme)
        scores = chosen.astype(np.float64)
        if column == "correct":
            correct = table.correct[~table.train]
            scores = correct[np.arange(len(correct)), chosen - 1]
        means = scores.mean(axis=0)
        values = dict(zip(_table_scores(table).ids, means.tolist(), strict=True))
        if np.ptp(means) == 0 and column == "k":  # its interval would be that of a share
            return Measured(Interval(means[0], means[0], means[0], len(means)), values)
        return Measured(interval(means), values)

    return measure


def chosen_k(bandit: Path, scheme: str) -> Int[np.ndarray, "s q"]:
    """K of every test question after the last epoch, by seed."""
    return np.array([line["chosen"] for line in _curves(bandit, scheme)])


def _curves(bandit: Path, scheme: str) -> list[dict[str, Any]]:
    lines = jsonl.read(bandit / CURVES, key="training")
    return [line for line in lines if line["scheme"] == scheme]


class _Scores(NamedTuple):
    """Scores of the test questions by K; one column where a strategy has no K."""

    ids: Sequence[str]
    scores: Float[np.ndarray, "q a"]

    def points(self) -> list[dict[str, Any]]:
        """Means with intervals and the values of questions, by K, for the record of a figure."""
        columns = {str(k): scores for k, scores in enumerate(self.scores.T)}
        return [
            {**mean._asdict(), "values": dict(zip(self.ids, columns[k].tolist(), strict=True))}
            for k, mean in intervals(columns).items()
        ]


def strategies(results: Mapping[tuple[int, str], Results]) -> list[Picture]:
    """Draws the score over K of every order of rewrites, a panel for the questions of each column.

    Jobs: `JOB` and "generated" made reward tables; "worst" and "random 0", "random 1", ... are runs
    of `jaxrag.methods.ars.rewards` on the test questions; "rag" and "ars" are runs.
    """
    panels, numbers = [], {}
    for (_, data), outputs in results.items():
        by_order, y_title = _strategy_scores(outputs)
        points = {order: scores.points() for order, scores in by_order.items()}
        arms = max(map(len, points.values()))
        means = {order: [100 * point["mean"] for point in line] for order, line in points.items()}
        curves = {  # one point is a horizontal line
            order: plots.Curve(range(1, arms + 1), line if len(line) > 1 else line * arms)
            for order, line in means.items()
        }
        title = data.removeprefix("paper-")
        panels.append(plots.Panel(f"{title}, n = {points['Top-K'][0]['n']:,}", y_title, curves))
        numbers[title] = {"score": y_title} | {
            order: line if order in _WITH_K else line[0] for order, line in points.items()
        }
    drawn = plots.curves("Strategies of choosing rewrites", panels, x_title="rewrites kept, K")
    return [Picture(drawn, numbers)]


_WITH_K = ("Top-K", "Worse-K", "Random-K", "Rewriter-K")


def _strategy_scores(results: Results) -> tuple[dict[str, _Scores], str]:
    """The scores of each strategy, and the name of the score: F1 of open questions, or accuracy."""
    ranked = read_table(results.directories[JOB])
    is_open = bool((ranked.base != ranked.correct).any())
    column = "f1" if is_open else "correct"
    random = [
        _answered(results, job, column) for job in results.directories if job.startswith("random")
    ]
    by_order = {
        "Top-K": _table_scores(ranked),
        "Worse-K": _answered(results, "worst", column),
        "Random-K": _mean_of(random),
        "Rewriter-K": _table_scores(read_table(results.directories["generated"])),
    }
    for name, job in {"ARS-RAG": "ars", "RAG": "rag"}.items():
        values = results.scored(job).measure("f1" if is_open else "exact_match").values
        by_order[name] = _Scores([*values], np.array([*values.values()])[:, None])
    return by_order, "F1 %" if is_open else "accuracy %"


def _table_scores(table: RewardTable) -> _Scores:
    """The printed scores of the test questions by K: F1 of open questions, else accuracy."""
    is_open = bool((table.base != table.correct).any())
    ids = [name for name, train in zip(table.ids, table.train, strict=True) if not train]
    return _Scores(ids, (table.f1 if is_open else table.correct)[~table.train])


def _answered(results: Results, job: str, column: str) -> _Scores:
    records = [r for r in results.scored(job).run.records if "error" not in r]
    scores = np.array([reward_line(r, "test")[column] for r in records], np.float64)
    return _Scores([r["question_id"] for r in records], scores)


def _mean_of(runs: Sequence[_Scores]) -> _Scores:
    """The mean over several runs of the questions that all of them answered."""
    by_run = [dict(zip(run.ids, run.scores, strict=True)) for run in runs]
    ids = [name for name in runs[0].ids if all(name in scores for scores in by_run)]
    return _Scores(ids, np.mean([[scores[name] for name in ids] for scores in by_run], axis=0))


def rewards_by_epoch(title: str, results: Mapping[str, Results]) -> list[Picture]:
    """Draws mean and standard deviation of the weighted reward over epochs, by part.

    Jobs: `JOB` trained a bandit with the diagonal of Z, and `WHOLE`, if it is there, one with the
    whole matrix. The record also has the first and the last epoch of each part with the values of
    seeds, as "train, first and last" and "test, first and last"; names of the second bandit's
    curves end in ", whole Z".
    """
    panels, numbers = [], {}
    for dataset, outputs in results.items():
        curves, record, seeds = {}, {}, []
        for job, suffix in {JOB: "", WHOLE: ", whole Z"}.items():
            if not outputs.has(job):
                continue
            lines = _curves(outputs.directories[job], WEIGHTED)
            seeds.append(str(len(lines)))
            for label, part in {"training": "train", "test": "test"}.items():
                values = np.array([line[part] for line in lines])
                curves[label + suffix] = over_seeds(values)
                mean, std = values.mean(0).tolist(), seeds_std(values).tolist()
                record[part + suffix] = {"mean": mean, "std": std}
                ends = [_seed_mean(values[:, at]) for at in (0, -1)]
                record[f"{part}, first and last{suffix}"] = ends
        panel_title = f"{dataset}, {' and '.join(dict.fromkeys(seeds))} seeds"
        panels.append(plots.Panel(panel_title, "weighted reward", curves))
        numbers[dataset] = record
    return [Picture(plots.curves(title, panels, x_title="epoch"), numbers)]


def _seed_mean(values: Float[np.ndarray, " s"]) -> dict[str, Any]:
    """The mean over seeds with its interval and its values by seed."""
    by_seed = {str(seed): value for seed, value in enumerate(values.tolist())}
    return {**seed_interval(values)._asdict(), "values": by_seed}


def kept_histograms(
    title: str, results: Mapping[str, Results], *, schemes: Sequence[str] = (WEIGHTED,)
) -> list[Picture]:
    """Draws how often a bandit chose each K for the test questions, over all seeds.

    A panel for each data set and reward scheme. Jobs: `JOB` trained the bandit, `REWARDS` made its
    reward table. The record also has the share of choices that keep at most half of the rewrites,
    over questions; a question's value is its mean over the seeds.
    """
    panels, numbers = {}, {}
    for dataset, outputs in results.items():
        table = read_table(outputs.directories[REWARDS])
        for scheme in schemes:
            chosen = chosen_k(outputs.directories[JOB], scheme)
            counts = np.bincount(chosen.ravel(), minlength=table.arms + 1)[1:].tolist()
            label = dataset if schemes == (WEIGHTED,) else f"{dataset}, {scheme}"
            by_k = {str(k): count for k, count in enumerate(counts, 1)}
            panels[f"{label}: mean {chosen.mean():.1f}"] = by_k
            few = _Scores(_table_scores(table).ids, (chosen <= table.arms / 2).mean(0)[:, None])
            numbers[label] = {"counts": counts, "mean": float(chosen.mean())}
            numbers[label]["at most half"] = few.points()[0]
    return [Picture(plots.histograms(title, panels, x_title="K"), numbers)]


def seconds(job: str) -> Callable[[Results], Measured | None]:
    """Measures the seconds per question of a run with an empty store; None if it was not made."""

    def measure(results: Results) -> Measured | None:
        if not results.has(job):
            return None
        total = wall_seconds(Results({JOB: results.directories[job]})).interval
        value = total.mean / total.n
        return Measured(Interval(value, value, value, total.n))

    return measure
