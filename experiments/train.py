"""Trains what a config says: a SiDR, a retriever by R3, ARS-RAG's ranker, or a query optimizer.

    python -m experiments.train --config configs/train_r3.py:tiny --workdir runs/r3

The same command again goes on where it was stopped, and ends in the same bits. The directory holds
the settings, metrics.jsonl with a line for each step, the checkpoints, and at the end the trained
retriever in ``retriever``, which ``--config.index.checkpoint`` of `experiments.answer` takes, the
ranker in ``ranker``, which ``--config.rewrite_ranker.checkpoint`` takes, or the query optimizer in
``optimizer``, which ``--config.query_optimizer.checkpoint`` takes.

Of several devices all are used; the result is the same to the bit. SiDR can be trained by several
processes that share a file system: start the command in each with ``--distributed
HOST:PORT,PROCESSES,PROCESS`` (the first one's address, how many there are, and which this is, from
0), or ``--distributed auto`` where JAX finds that out, as on TPU pods and under Slurm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags

from experiments.configuration import parse, script
from jaxrag.jobs import ppo, ppo_toy, query_optimizer, r3, ranker, sidr
from jaxrag.types import InputError

JOBS: dict[type, Callable[[Any, str], Path]] = {
    sidr.TrainSidr: sidr.execute,
    r3.TrainR3: r3.execute,
    ranker.TrainRanker: ranker.execute,
    query_optimizer.TrainQueryOptimizer: query_optimizer.execute,
    ppo.TrainRrr: ppo.execute,
    ppo_toy.TrainToy: ppo_toy.execute,
}
"""What executes a job, by its kind; each returns where the trained checkpoint lies."""


def _define(values: flags.FlagValues) -> None:
    flags.DEFINE_string("workdir", "", "directory of the job", flag_values=values)
    flags.DEFINE_string(
        "distributed", "", "auto, or HOST:PORT,PROCESSES,PROCESS", flag_values=values
    )


def main(argv: Sequence[str]) -> int:
    """Trains by one config."""
    job, values = parse(argv, _define, kinds=tuple(JOBS))
    if not values.workdir:
        raise InputError("give --workdir=DIRECTORY, such as --workdir=runs/r3")
    _join(values.distributed)
    trained = JOBS[type(job)](job, values.workdir)
    print(f"trained: {trained}")
    return 0


def _join(distributed: str) -> None:
    """Makes this process one of several."""
    if distributed == "auto":
        jax.distributed.initialize()
    elif distributed:
        address, *numbers = distributed.split(",")
        if ":" not in address or len(numbers) != 2 or not all(n.isdigit() for n in numbers):
            raise InputError(
                f"--distributed is {distributed!r}: give auto, or HOST:PORT,PROCESSES,PROCESS such "
                "as localhost:1234,2,0"
            )
        jax.distributed.initialize(address, int(numbers[0]), int(numbers[1]))


if __name__ == "__main__":
    script(main)
