"""Trains what a config says: a SiDR, or a retriever by R3.

    python -m experiments.train --config configs/train_r3.py:tiny --workdir runs/r3

The same command again goes on where it was stopped, and ends in the same bits. The directory holds
the settings, metrics.jsonl with a line for each step, the checkpoints, and at the end the trained
retriever in ``retriever``, which ``--config.index.checkpoint`` of `experiments.answer` takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from experiments.configuration import parse, script
from jaxrag.jobs import r3, sidr
from jaxrag.types import InputError


def _define(values: flags.FlagValues) -> None:
    flags.DEFINE_string("workdir", "", "directory of the job", flag_values=values)


def main(argv: Sequence[str]) -> int:
    """Trains by one config."""
    job, values = parse(argv, _define, kinds=(sidr.TrainSidr, r3.TrainR3))
    if not values.workdir:
        raise InputError("give --workdir=DIRECTORY, such as --workdir=runs/r3")
    trained = (
        sidr.execute(job, values.workdir)
        if isinstance(job, sidr.TrainSidr)
        else r3.execute(job, values.workdir)
    )
    print(f"trained: {trained}")
    return 0


if __name__ == "__main__":
    script(main)
