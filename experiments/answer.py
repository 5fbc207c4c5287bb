"""Answers a data set's questions with a method, and prints the table.

    python -m experiments.answer --config configs/dtr.py:factbook \
        --config.method.gate.threshold=0.005 --workdir runs/dtr

The same command again goes on where it was stopped. Exit code 0: all questions answered; 1: some
failed (they are recorded, and asked again by the same command); 2: wrong input.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from experiments.configuration import parse, script, show
from jaxrag.run import execute
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Runs one config."""
    run, values = parse(
        argv, lambda v: flags.DEFINE_string("workdir", "", "run directory", flag_values=v)
    )
    if not values.workdir:
        raise InputError("give --workdir=DIRECTORY, such as --workdir=runs/dtr")
    found = execute(run, values.workdir)
    show([values.workdir])
    if found["errors"]:
        print(f"{found['errors']} of {found['questions']} questions failed; see answers.jsonl")
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    script(main)
