"""Training bandits from stored reward tables: every scheme, policy and seed, and a report.

A table holds the reward of every question under every K. The directory of the job holds

``curves.jsonl``  a line per training: mean rewards by epoch, and K of every test question after the
                  last epoch
``bandit.json``   scores, regret and choices with intervals (see `summary`)
``report.html``   the same as a page
``bandits``       checkpoints of the learner, by table, scheme and seed (see `bandit_of`)
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core import jsonl
from jaxrag.core.checks import check_limits, check_range
from jaxrag.core.durable_files import write_text
from jaxrag.core.progress import progress
from jaxrag.data.leakage import write_trained_on
from jaxrag.evaluation.records import differences
from jaxrag.evaluation.report import plots
from jaxrag.methods.ars.bandit.report import CURVES, SUMMARY, write_bandit_report
from jaxrag.methods.ars.bandit.reward_table import RewardTable, read_table
from jaxrag.methods.ars.bandit.settings import (
    BanditTraining,
    Learner,
    NeuralUcb,
    Policy,
    RewardScheme,
)
from jaxrag.methods.ars.bandit.summary import summarise
from jaxrag.methods.ars.bandit.trained import write_bandit
from jaxrag.methods.ars.bandit.training import BanditResult, Contexts, contexts_of, train
from jaxrag.runs.job import Outcome, job_directory
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")
LAMBDAS = (0.0, 0.01, 0.02, 0.03, 0.04)
"""Penalties lambda of the paper's appendix C."""


@dataclasses.dataclass(frozen=True)
class TrainBandit:
    """Trains a bandit from each reward table.

    Attributes:
      tables: directories of reward tables with different names.
      arms: rewrites of each question.
      learner: the bandit whose checkpoints are kept; it is trained under every scheme.
      others: policies to compare with, trained under the weights alone.
      weighted: the first reward scheme, base * w_k.
      penalties: lambdas of the other schemes, base - lambda * k.
      seeds: trainings of each.
      workers: parallel trainings; 0: one per processor.
    """

    tables: tuple[str, ...]
    arms: int = 10
    learner: Learner = NeuralUcb()
    others: tuple[Policy, ...] = ()
    training: BanditTraining = BanditTraining()
    weighted: RewardScheme = RewardScheme()
    penalties: tuple[float, ...] = LAMBDAS
    seeds: int = 5
    workers: int = 0

    def __post_init__(self) -> None:
        names = [Path(path).name for path in self.tables]
        if not names or len(set(names)) < len(names):
            raise InputError(
                f"tables are {list(self.tables)}: give directories of reward tables whose names "
                "differ."
            )
        policies = [policy.name for policy in (self.learner, *self.others)]
        if len(set(policies)) < len(policies) or len(set(self.penalties)) < len(self.penalties):
            raise InputError(
                f"The policies {policies} or penalties {list(self.penalties)} hold one twice."
            )
        check_limits(seeds=self.seeds, arms=self.arms)
        check_range(workers=self.workers)

    @property
    def schemes(self) -> tuple[RewardScheme, ...]:
        """The reward schemes: the weights, then each penalty."""
        return (self.weighted, *(RewardScheme(penalty=penalty) for penalty in self.penalties))

    def execute(self, workdir: str | Path) -> Outcome:
        """Runs the trainings that ``workdir`` lacks; the outcome's path is that of the report.
        InputError if a table or setting is invalid, ``workdir`` belongs to another job, or a
        training diverged.
        """
        if not plots.has_matplotlib():
            _log.warning(
                "report.html will have no figures: %s; then run the job again", plots.MISSING
            )
        tables = [read_table(path, arms=self.arms) for path in self.tables]
        for table in tables[1:]:
            _check_comparable(tables[0], table)
        settings = dataclasses.asdict(self)
        for name in ("tables", "workers"):  # paths and parallelism do not change results
            del settings[name]
        settings["learner"] = {"name": self.learner.name, **dataclasses.asdict(self.learner)}
        settings["others"] = [{"name": one.name, **dataclasses.asdict(one)} for one in self.others]
        contents = {one.name: {"config": one.config, "content": one.fingerprint} for one in tables}
        with job_directory(workdir, {"bandit": settings, "tables": contents}) as directory:
            lines = _train_all(list(_tasks(self, tables)), self.workers, directory)
            summaries = [
                summarise(table, self.schemes, [row for row in lines if row["table"] == table.name])
                for table in tables
            ]
            text = json.dumps({"tables": summaries}, indent=2, allow_nan=False, ensure_ascii=False)
            write_text(directory / SUMMARY, text + "\n")
            page = directory / "report.html"
            printed = [grid.terminal() for grid in write_bandit_report(directory, page)]
        return Outcome((*printed, f"wrote {page}"), page, width=160)


def bandit_of(directory: str | Path, table: str, scheme: RewardScheme, seed: int = 0) -> Path:
    """The checkpoint of a seed's bandit for a table's name, in the directory of its job."""
    name = scheme.name.replace(" ", "-") + (f"-seed-{seed}" if seed else "")
    return Path(directory) / "bandits" / table / name


def _check_comparable(first: RewardTable, other: RewardTable) -> None:
    """InputError for tables of other rewriters, orders or readers; rankers may differ."""

    def source(table: RewardTable) -> dict[str, Any]:
        settings = dict(table.source)
        if "order" in settings:
            settings["order"] = {n: v for n, v in settings["order"].items() if n != "ranker"}
        return settings

    if first.source and other.source and (changed := differences(source(first), source(other))):
        listed = "\n".join(f"  {line}" for line in changed)
        raise InputError(
            f"{first.path} (recorded) and {other.path} (now) have rewards of different orders of "
            f"rewrites, readers or rewriters:\n{listed}\nTrain from one of them at a time, each in "
            "a directory of its own."
        )


class _Task(NamedTuple):
    """A training of one policy on one table, see `train`."""

    table: RewardTable
    contexts: Contexts
    scheme: RewardScheme
    policy: Policy
    training: BanditTraining
    seed: int

    @property
    def name(self) -> str:
        return "/".join((self.table.name, self.scheme.name, self.policy.name, str(self.seed)))


def _tasks(job: TrainBandit, tables: list[RewardTable]) -> Iterator[_Task]:
    for table in tables:
        contexts = contexts_of(table, job.training.dimensions)
        for scheme in job.schemes:
            policies = (job.learner, *(job.others if scheme == job.weighted else ()))
            for policy, seed in itertools.product(policies, range(job.seeds)):
                yield _Task(table, contexts, scheme, policy, job.training, seed)


def _train_all(tasks: list[_Task], workers: int, directory: Path) -> list[dict[str, Any]]:
    """Runs the trainings without a line in curves.jsonl; returns the lines of all, in order."""
    file = directory / CURVES
    jsonl.cut_torn_line(file)
    lines = {line["training"]: line for line in jsonl.read(file, key="training")}
    missing = [task for task in tasks if task.name not in lines]
    count = min(workers or os.cpu_count() or 1, max(len(missing), 1))
    with (
        progress(len(tasks), "training bandits", done=len(tasks) - len(missing)) as advance,
        ThreadPoolExecutor(count) as pool,
    ):
        running = {pool.submit(train, *task[:-1], seed=task.seed): task for task in missing}
        try:
            for future in as_completed(running):
                task = running[future]
                line = _keep(task, future.result(), directory)
                jsonl.append(file, [jsonl.encode(task.name, line)])
                lines[task.name] = line
                advance(1, task.name)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    ordered = [lines[task.name] for task in tasks]
    if missing:
        jsonl.write(file, ordered)
    return ordered


def _keep(task: _Task, result: BanditResult, directory: Path) -> dict[str, Any]:
    """Writes the checkpoint; returns the training's line of curves.jsonl."""
    about = {"table": task.table.name, "scheme": task.scheme.name, "seed": task.seed}
    if result.bandit is not None:
        path = bandit_of(directory, task.table.name, task.scheme, task.seed)
        write_bandit(path, result.bandit, trained=about)
        if task.table.trained_on:
            write_trained_on(path, task.table.trained_on)
    curves = {name: getattr(result, name).round(6).tolist() for name in ("played", "train", "test")}
    about |= {"training": task.name, "policy": task.policy.name}
    return about | curves | {"chosen": result.chosen.tolist()}
