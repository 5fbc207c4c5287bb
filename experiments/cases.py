"""Sorts the questions of runs by whether their search was needed; finds cases to study.

    jaxrag cases runs/quickstart
    jaxrag cases runs/quickstart --kinds=harmed,"wrongly skipped"

A run is compared, question by question, with No Retrieval and with Standard RAG on the same data,
which must be among the runs. "wrongly skipped": Standard RAG is right; "in vain": neither is.
"repaired", "needless" and "harmed" are searches after a direct answer that was wrong, right, and
right before the search. ``--kinds`` prints the questions of some kinds with all three answers;
`jaxrag explain RUN QUESTION` shows how one was found. Where gold passages are marked, the last line
of a data set estimates eq 1 of DTR: retrieval pays where P_ret P_gen is above P_param.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from jaxrag.core.printable import terminal_text
from jaxrag.evaluation.need import SEARCHED, SKIPPED, motivation, needs
from jaxrag.evaluation.records import RunRecords, read_run
from jaxrag.evaluation.report.tables import Grid, need_grid
from jaxrag.evaluation.summary import by_dataset, labels, name_of
from jaxrag.experiments.configuration import parse_runs, script
from jaxrag.types import InputError

KINDS = (*SKIPPED, *SEARCHED)


def main(argv: Sequence[str]) -> int:
    """Prints the counts of each run, the questions of ``--kinds``, and DTR's eq 1."""
    paths, values = parse_runs(argv, "cases")
    if unknown := sorted({*values.kinds} - {*KINDS}):
        raise InputError(f"--kinds={','.join(unknown)}: give some of {', '.join(KINDS)}.")
    console = Console(width=max(Console().width, 104))
    for name, runs in by_dataset(map(read_run, paths)).items():
        direct, standard = (_run(runs, name, of) for of in (values.direct, values.baseline))
        others = {
            label: run
            for label, run in zip(labels(runs), runs, strict=True)
            if run not in (direct, standard)
        }
        if not others:
            raise InputError(f"Beside {values.direct} and {values.baseline} give other runs.")
        kinds = {label: needs(run, direct, standard) for label, run in others.items()}
        console.print(terminal_text(name))
        counts = need_grid([*others.values()], [*others], [*kinds.values()])
        if counts:
            headings, *rows = zip(counts.headings, *counts.rows, strict=True)  # a kind a row
            console.print(Grid(headings, rows).terminal())
        for label, run in others.items():
            for line in _questions(run, direct, standard, kinds[label], values.kinds):
                console.print(terminal_text(f"{label}: {line}"))
        if equation := motivation(direct, standard):
            console.print(equation.text)
    return 0


def _run(runs: Sequence[RunRecords], dataset: str, name: str) -> RunRecords:
    """The one run of a method or in a directory."""
    of_method = [run for run in runs if name_of(run.config, "method") == name]
    matches = [run for run in runs if run.path == Path(name)] or of_method
    if len(matches) != 1:
        raise InputError(
            f"{len(matches) or 'no'} runs on {dataset} are {name}: give one among the runs; of "
            "several, name one's directory by --direct or --baseline."
        )
    return matches[0]


def _questions(
    run: RunRecords,
    direct: RunRecords,
    standard: RunRecords,
    kinds: dict[str, str],
    chosen: Sequence[str],
) -> Iterator[str]:
    """A line for each question of the wanted kinds."""
    others = [{str(r["question_id"]): r for r in one.records} for one in (direct, standard)]
    for record in run.records:
        ident = str(record["question_id"])
        if kinds.get(ident) in chosen:
            answers = [records[ident]["prediction"] for records in others]
            yield (
                f"{kinds[ident]}: {ident} {record['question']!r}; its answer "
                f"{record['prediction']!r}, without retrieval {answers[0]!r}, always "
                f"{answers[1]!r}, right {', '.join(record['gold_answers'])}"
            )


if __name__ == "__main__":
    script(main)
