"""A run that several processes answer (`jax.distributed`): each a share of the questions.

Every process has models of its own, on its own devices, and answers every n-th question into a run
directory of its own below the run's. Once all are done, the first puts their answers together.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrag.core import jsonl
from jaxrag.core.tracking import Track, tracking
from jaxrag.evaluation.records import RunDirectory, newest
from jaxrag.models import processes
from jaxrag.types import InputError, Question

FOLDER = "processes"
"""The folder of the processes' run directories."""


@dataclasses.dataclass(frozen=True)
class Share:
    """What this process answers of a run.

    ``whole`` is the run's directory, which of several processes the first alone holds, and
    ``directory`` where this one writes; ``todo`` are its questions without an answer, of ``count``.
    """

    whole: RunDirectory
    directory: RunDirectory
    questions: Sequence[Question]
    todo: Sequence[Question]
    count: int
    track: Track

    def joined(self) -> bool:
        """Puts all shares together in the run's directory; False in all processes but the first."""
        number, count = jax.process_index(), jax.process_count()
        if count > 1:
            jax.distributed.shutdown()  # waits for the others
        if count > 1 and not number:
            put_together(self.whole.path, self.whole, self.questions, count)
        return not number


@contextlib.contextmanager
def opened(
    workdir: Path, record: Mapping[str, Any], questions: Sequence[Question]
) -> Iterator[Share]:
    """This process's share of a run, its directories open; InputError for another run's."""
    number, several = jax.process_index(), jax.process_count() > 1
    # the whole run's first: another run's directory is refused before anything is computed
    paths = [] if number else [workdir]
    paths += [share_directory(workdir, number)] if several else []
    own = processes.share_of(questions)
    with contextlib.ExitStack() as stack:
        directories = [stack.enter_context(RunDirectory.open(path, record)) for path in paths]
        track = stack.enter_context(tracking(workdir, writes=not number))
        whole, directory = directories[0], directories[-1]
        done = directory.finished | (answered(workdir) if several else frozenset())
        todo = [question for question in own if question.id not in done]
        yield Share(whole, directory, questions, todo, len(own), track)


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
    """Copies the answers of all processes into the run directory, or InputError if some lack."""
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
