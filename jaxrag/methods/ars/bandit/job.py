"""Training selectors from stored reward tables: every scheme, policy and seed, and what came of it.

No language model is called: a table holds the reward of every question under every K. The
directory of the job holds

``curves.jsonl``   a line a training: mean rewards by epoch, and the K chosen at the last one for
                   every test question
``selector.json``  scores, regret and choices with intervals (see `selector_summary`)
``report.html``    the same as a page
``selectors``      of the first seed of the learner, by table and scheme, what `load_selector` reads
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core import jsonl
from jaxrag.core.durable_files import write_text
from jaxrag.core.progress import progress
from jaxrag.methods.ars.bandit.checkpoint import write_selector
from jaxrag.methods.ars.bandit.report import CURVES, SUMMARY, write_selector_report
from jaxrag.methods.ars.bandit.reward_table import RewardTable, read_table
from jaxrag.methods.ars.bandit.settings import NeuralUcb, Policy, Scheme, Training
from jaxrag.methods.ars.bandit.summary import summarise
from jaxrag.methods.ars.bandit.training import Contexts, Trained, contexts_of, train
from jaxrag.runs.job import Outcome, job_directory
from jaxrag.types import InputError

SELECTORS = "selectors"
LAMBDAS = (0.0, 0.01, 0.02, 0.03, 0.04)
"""Of the paper's appendix C."""


@dataclasses.dataclass(frozen=True)
class TrainSelector:
    """What selectors are trained from and how.

    Attributes:
      tables: directories of reward tables, of different names.
      arms: rewrites of each question.
      learner: the bandit that becomes the selector; it is trained under every scheme.
      others: policies beside it, trained under the weights alone.
      training: how.
      weighted: the weights of the first scheme.
      penalties: lambdas of the other schemes.
      seeds: trainings of each.
      workers: trainings at a time; 0 is one a processor.
    """

    tables: tuple[str, ...]
    arms: int = 10
    learner: NeuralUcb = NeuralUcb()
    others: tuple[Policy, ...] = ()
    training: Training = Training()
    weighted: Scheme = Scheme()
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
        if self.seeds < 1 or self.arms < 1 or self.workers < 0:
            raise InputError(
                f"seeds, arms and workers are {self.seeds}, {self.arms} and {self.workers}; give "
                "at least 1, 1 and 0."
            )

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """How rewards are paid: by weights, then with each penalty."""
        return (self.weighted, *(Scheme(penalty=penalty) for penalty in self.penalties))

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains the bandits that ``workdir`` lacks; the path is that of the report.

        Raises:
          InputError: a table or setting is at fault, ``workdir`` is another job's, or a training
            diverged.
        """
        tables = [read_table(path, arms=self.arms) for path in self.tables]
        settings = dataclasses.asdict(self)
        for name in ("tables", "workers"):  # paths and parallelism change no result
            del settings[name]
        settings["others"] = [{"name": one.name, **dataclasses.asdict(one)} for one in self.others]
        record = {"selector": settings, "tables": {one.name: _identity(one) for one in tables}}
        with job_directory(workdir, record) as directory:
            lines = _train_all(list(_tasks(self, tables)), self.workers, directory)
            found = [
                summarise(table, self.schemes, [one for one in lines if one["table"] == table.name])
                for table in tables
            ]
            text = json.dumps({"tables": found}, indent=2, allow_nan=False, ensure_ascii=False)
            write_text(directory / SUMMARY, text + "\n")
            page = directory / "report.html"
            shown = [grid.terminal() for grid in write_selector_report(directory, page)]
        return Outcome((*shown, f"wrote {page}"), page, width=160)


class _Task(NamedTuple):
    """One training."""

    table: RewardTable
    contexts: Contexts
    scheme: Scheme
    policy: Policy
    training: Training
    seed: int

    @property
    def name(self) -> str:
        return "/".join((self.table.name, self.scheme.name, self.policy.name, str(self.seed)))


def _identity(table: RewardTable) -> dict[str, Any]:
    return {"config": table.config, "content": table.fingerprint}


def _tasks(job: TrainSelector, tables: list[RewardTable]) -> Iterator[_Task]:
    for table in tables:
        contexts = contexts_of(table, job.training.dimensions)
        for scheme in job.schemes:
            policies = (job.learner, *(job.others if scheme == job.weighted else ()))
            for policy in policies:
                for seed in range(job.seeds):
                    yield _Task(table, contexts, scheme, policy, job.training, seed)


def _train_all(tasks: list[_Task], workers: int, directory: Path) -> list[dict[str, Any]]:
    """The lines of all trainings, in order; those that are missing are made and kept one by one."""
    file = directory / CURVES
    jsonl.cut_torn_line(file)
    lines = {line["training"]: line for line in jsonl.read(file, key="training")}
    missing = [task for task in tasks if task.name not in lines]
    count = min(workers or os.cpu_count() or 1, max(len(missing), 1))
    with (
        progress(len(tasks), "training selectors", done=len(tasks) - len(missing)) as advance,
        ThreadPoolExecutor(count) as pool,
    ):
        running = {pool.submit(_train, task): task for task in missing}
        try:
            for future in as_completed(running):
                task, trained = running[future], future.result()
                line = _keep(task, trained, directory)
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


def _train(task: _Task) -> Trained:
    return train(task.table, task.contexts, task.scheme, task.policy, task.training, seed=task.seed)


def _keep(task: _Task, trained: Trained, directory: Path) -> dict[str, Any]:
    """The line of a training, its selector written first where it is one that is kept."""
    if trained.selector is not None and task.seed == 0:
        about = {"table": task.table.name, "scheme": task.scheme.name, "seed": task.seed}
        place = directory / SELECTORS / task.table.name / task.scheme.name.replace(" ", "-")
        write_selector(place, trained.selector, trained=about)
    curves = {
        name: getattr(trained, name).round(6).tolist() for name in ("played", "train", "test")
    }
    return {
        "training": task.name,
        "table": task.table.name,
        "scheme": task.scheme.name,
        "policy": task.policy.name,
        "seed": task.seed,
        **curves,
        "chosen": trained.chosen.tolist(),
    }
