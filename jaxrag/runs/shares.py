"""A run that several processes answer (`jax.distributed`): each a share of the questions.

Every process has models of its own, on its own devices, and answers every n-th question into a run
directory of its own below the run's. Once all are done, the first puts their answers together. An
answer depends on its question alone, so that it is the one that a single process gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrag.core import jsonl
from jaxrag.evaluation.records import RunDirectory, newest
from jaxrag.types import InputError, Question

FOLDER = "processes"
"""The folder of the processes' run directories."""


def share_directory(workdir: Path, process: int) -> Path:
    """The run directory of a process's share."""
    return workdir / FOLDER / str(process)


def answered(workdir: Path) -> frozenset[str]:
    """Ids of the questions that the whole run has answers to."""
    lines = newest(jsonl.read(workdir / "answers.jsonl", torn_ok=True)).values()
    return frozenset(line["question_id"] for line in lines if "error" not in line)


def put_together(
    workdir: Path, whole: RunDirectory, questions: Sequence[Question], processes: int
) -> None:
    """Copies the answers of all processes into the run directory.

    Raises:
      InputError: a process's directory is not there, or a process stopped before it was done; the
        answers of the others are kept.
    """
    for process in range(processes):
        share = share_directory(workdir, process)
        if not (share / "config.json").is_file():
            raise InputError(
                f"{share} is not there: the processes of a run need one --workdir, on a file "
                "system that all of them see."
            )
        # a process that was killed may have left a line that is not complete
        timings: Any = newest(jsonl.read(share / "timings.jsonl", torn_ok=True))
        records = newest(jsonl.read(share / "answers.jsonl", torn_ok=True))
        new = [record for name, record in records.items() if name not in whole.finished]
        ids = (record["question_id"] for record in new)
        whole.append(new, [timings[name] for name in ids if name in timings])
    lines = newest(jsonl.read(workdir / "answers.jsonl"))
    if missing := [question.id for question in questions if question.id not in lines]:
        raise InputError(
            f"{len(missing)} questions, such as {missing[0]!r}, have no answer: a process stopped "
            f"early, and its log is below {workdir / FOLDER}. Start the same commands again."
        )
