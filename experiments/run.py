"""Executes a config: a run of a method, a training, a table, a comparison.

    jaxrag run --config configs/dtr.py:dtr@factbook \\
        --config.method.gate.threshold=0.005 --workdir runs/dtr

A config is a file with a function ``get_config(variant)`` that returns a `jaxrag.runs.job.Job`; any
of its settings can be changed with ``--config.NAME=VALUE`` (see `experiments.configuration`). The
same command continues an interrupted job. ``--dry-run`` prints the plan of a run; of another
job the settings, and sizes of its data and indexes. It loads no model and builds no index, but it
reads the data sets, and builds those of files at hand on first use.

A training uses all local devices; the result is identical to the bit on any number of them.
Several processes that share a file system can train SiDR, and answer the questions of a run, each
a share with models of its own: start the command in each of them with
``--distributed HOST:PORT,PROCESSES,PROCESS`` (address of the first process, number of processes,
number of this one from 0), or with ``--distributed auto`` where JAX finds these itself, as on TPU
pods and under Slurm.

``JAXRAG_TRACK=tensorboard``, ``wandb`` or both also writes metrics for TensorBoard and Weights &
Biases into the directory (`jaxrag.core.tracking`); without it nothing is tracked.

Exit code 0: done; 1: some questions failed (they are recorded, and the same command tries them
again); 2: wrong input.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from jaxrag.core.file_states import one_start
from jaxrag.core.tracking import trackers
from jaxrag.data.origins import unbuilt
from jaxrag.evaluation.status import run_directories
from jaxrag.evaluation.training_log import is_training
from jaxrag.experiments.configuration import parse, script
from jaxrag.runs.edits import settings
from jaxrag.runs.job import RUN, Job
from jaxrag.runs.plan import plan, plan_job
from jaxrag.runs.run import Run
from jaxrag.runs.table_job import TableJob
from jaxrag.types import InputError

_WEEK = 7 * 24 * 3600  # seconds


@one_start()
def main(argv: Sequence[str]) -> int:
    """Executes the job of one config, or prints its plan."""
    job, values = parse(argv, "run")
    if values["dry-run"].value:
        print_plan(job, values.workdir)
        return 0
    if not values.workdir:
        raise InputError("give --workdir=DIRECTORY, such as --workdir=runs/dtr")
    trackers()
    join(values.distributed)
    outcome = job.execute(values.workdir)
    console = Console(width=max(Console().width, outcome.width))
    for item in outcome.shown:
        print(item) if isinstance(item, str) else console.print(item)
    if outcome.errors:
        print("next: the same command, which tries the failed questions again")
    elif is_training(values.workdir) or run_directories(values.workdir):
        beside = Path(values.workdir).parent
        several = len([*beside.glob("*/config.json")]) > 1
        print(f"next: jaxrag report {shlex.quote(str(beside if several else values.workdir))}")
    return 1 if outcome.errors else 0


def join(distributed: str) -> None:
    """Makes this process one of several; one that is done waits a week for the others.

    JAX stops all of them where one dies. The devices are started here, in all processes at once:
    later, one would wait two minutes at most for another, which may itself wait for an index that
    the first is building.

    Args:
      distributed: "", "auto", or HOST:PORT,PROCESSES,PROCESS.
    """
    if not distributed:
        return
    if distributed == "auto":
        jax.distributed.initialize(shutdown_timeout_seconds=_WEEK)
    else:
        address, *numbers = distributed.split(",")
        if ":" not in address or len(numbers) != 2 or not all(n.isdigit() for n in numbers):
            raise InputError(
                f"--distributed is {distributed!r}: give auto, or HOST:PORT,PROCESSES,PROCESS such "
                "as localhost:1234,2,0"
            )
        processes, process = map(int, numbers)
        if process >= processes:
            raise InputError(
                f"--distributed is {distributed!r}: {processes} processes are numbered from 0."
            )
        jax.distributed.initialize(address, processes, process, shutdown_timeout_seconds=_WEEK)
    jax.devices()


def print_plan(job: Job, workdir: str) -> None:
    """Prints the plan of a run or of a table's run; of other jobs, settings, data and indexes.

    Where the data of a run are not built, it prints the commands that build them instead.
    """
    run = job.run if isinstance(job, TableJob) else job
    if isinstance(run, Run) and (missing := unbuilt(run.data, Path(run.cache))):
        lines = [("method", run.name), ("data", "not built yet, so there is no more of a plan")]
        lines += [(build.name, f"{build.size}; build it: {build.command}") for build in missing]
    elif isinstance(job, Run):
        lines = plan(job, workdir)
    elif isinstance(job, TableJob):
        lines = [("table", job.file), *plan(job.run, workdir and Path(workdir) / RUN)]
    else:
        entries = settings(job, "--config").items()
        lines = [("job", type(job).__name__), *((name, _setting(entry)) for name, entry in entries)]
        lines += plan_job(job)
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:<{width}}  {text}")


def _setting(value: Any) -> str:
    return type(value).__name__ if dataclasses.is_dataclass(value) else str(value)


if __name__ == "__main__":
    script(main)
