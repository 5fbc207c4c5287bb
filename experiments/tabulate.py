"""Makes what is learned from: labels, rewards, pairs of what is read and what is to be written.

ARS-RAG's labels and rewards; pairs for ERRR's query optimizer and for Adaptive-RAG's classifier.

    python -m experiments.tabulate --config configs/ars_tables.py:labels@tiny --workdir runs/labels
    python -m experiments.tabulate --config configs/errr_pairs.py:tiny --workdir runs/pairs
    python -m experiments.tabulate --config configs/adaptive_labels.py:tiny --workdir runs/labels

The same command again goes on where it was stopped. What was asked of the model is in the store, so
a second table over the same questions asks only what is new. Exit code 2: wrong input, or questions
that failed (they are named, and asked again by the same command).
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags
from rich.console import Console

from experiments.configuration import parse, script
from jaxrag.evaluation.table_figures import described
from jaxrag.jobs import complexity_pairs, query_pairs
from jaxrag.jobs.tables import tabulate
from jaxrag.methods import adaptive_labels, errr_pairs
from jaxrag.types import InputError

_SHOWN = {
    errr_pairs.Config: query_pairs.described,
    adaptive_labels.Config: complexity_pairs.described,
}


def _define(values: flags.FlagValues) -> None:
    flags.DEFINE_string("workdir", "", "directory of the table", flag_values=values)


def main(argv: Sequence[str]) -> int:
    """Makes one table and tells what is in it."""
    run, values = parse(argv, _define)
    if not values.workdir:
        raise InputError("give --workdir=DIRECTORY, such as --workdir=runs/labels")
    made = tabulate(run, values.workdir)
    shown = _SHOWN.get(type(run.method), described)
    Console(width=max(Console().width, 104)).print(shown(made))
    print(f"made: {made}")
    return 0


if __name__ == "__main__":
    script(main)
