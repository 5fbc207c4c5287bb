"""Explains scores of SiDR by the tokens that contribute most.

    jaxrag explain --config configs/r3.py:r3@factbook \\
        --question "What is the currency of the Bahamas?"

prints the best passages and their tokens; ``--passages ID``, repeated, chooses other passages. With
``--workdir runs/r3`` instead of a question it explains some questions of that run, each with the
first passage that was read, and writes them into the run directory, for `jaxrag report`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from jaxrag.core.printable import terminal_text
from jaxrag.evaluation.records import differences, read_run
from jaxrag.evaluation.report import explanations
from jaxrag.experiments.configuration import parse, script
from jaxrag.retrieval.sidr.explain import explain
from jaxrag.retrieval.sidr.semi_parametric import SidrIndex
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs.parts import open_index
from jaxrag.runs.run import Run
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Explains a question, or some of a run."""
    run, values = parse(argv, "explain", kind=Run)
    if bool(values.question) == bool(values.workdir):
        raise InputError("give one of the two: --question=TEXT or --workdir=DIRECTORY of a run.")
    index = _index(run)
    if values.workdir:
        lines = _of_run(Path(values.workdir), index, values)
        explanations.write(Path(values.workdir), lines)
    else:
        lines = _of_question(index, values)
    console = Console(width=max(Console().width, 104))
    for line in lines:
        console.print(terminal_text(f"\n{line['question']}", "italic"))
        console.print(explanations.table(line))
    if values.workdir:
        print(f"wrote {Path(values.workdir) / explanations.NAME}")
    return 0


def _index(run: Run) -> SidrIndex:
    if not isinstance(run.index, Sidr):
        name = run.index.name if run.index else "None"
        raise InputError(
            f"config.index is {name}, no index of SiDR: only SiDR's scores are sums over tokens."
        )
    index = open_index(run, Path(run.cache))
    assert isinstance(index, SidrIndex)
    return index


def _of_question(index: SidrIndex, values: Any) -> list[dict[str, Any]]:
    if values.passages:
        rows = [_row(index, name) for name in values.passages]
    else:
        rows = index.search_texts([values.question], values.k)[0].ids
    matches = explain(index, values.question, rows)
    return [explanations.line("", index.search, match, most=values.tokens) for match in matches]


def _row(index: SidrIndex, name: str) -> int:
    try:
        return index.passages.row_of(name)
    except KeyError:
        raise InputError(f"The corpus has no passage {name!r}.") from None


def _of_run(workdir: Path, index: SidrIndex, values: Any) -> list[dict[str, Any]]:
    run = read_run(workdir)
    recorded = {k: v for k, v in (run.config.get("retriever") or {}).items() if k != "name"}
    if changed := differences(recorded, json.loads(index.identity), "retriever"):
        listed = "\n".join(f"  {line}" for line in changed)
        raise InputError(f"{workdir} searched another index:\n{listed}")
    lines = []
    for record in run.records:
        found = record.get("trace", {}).get("selected", {}).get("ids", ())
        if found and len(lines) < values.questions:
            (match,) = explain(index, record["question"], [_row(index, found[0])])
            name = record["question_id"]
            lines.append(explanations.line(name, index.search, match, most=values.tokens))
    if not lines:
        raise InputError(f"{workdir} has no answered question for which passages were read.")
    return lines


if __name__ == "__main__":
    script(main)
