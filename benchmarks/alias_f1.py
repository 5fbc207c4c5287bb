"""F1 of an exact answer against all aliases of its question: what a mean over aliases can reach.

    python -m benchmarks.alias_f1 nq webquestions triviaqa squad hotpotqa

For each folder below $JAXRAG_DATA with ``queries.jsonl``: the mean, over questions, of the mean F1
of their first alias against all of them. 1 where every question has one alias. Papers that print F1
near EM times this number have averaged over aliases (docs/methods, "PAIRS: data and metrics").
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from jaxrag.configs.data import ROOT
from jaxrag.core import jsonl
from jaxrag.evaluation.metrics import accuracy


def main(names: list[str]) -> None:
    """Prints a line for each folder."""
    for name in names:
        lines = jsonl.read(Path(ROOT) / name / "queries.jsonl", key="id")
        answers = [line["answers"] for line in lines if line["answers"]]
        found = [accuracy(one[0], one)["f1_mean_over_aliases"] for one in answers]
        count = np.mean([len(one) for one in answers])
        print(
            f"{name}: {len(answers):,} questions, {count:.2f} aliases each, F1 of the first "
            f"{np.mean(found):.3f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
