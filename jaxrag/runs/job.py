"""Jobs: whatever a config file may return. Each executes in a directory of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
from rich.table import Table

from jaxrag.core.progress import run_log
from jaxrag.evaluation.records import RunDirectory
from jaxrag.types import InputError

RUN = "run"
"""The folder of a run that a job makes a table from."""


class Outcome(NamedTuple):
    """What a job shows, and the file or directory that it was for: a table, a checkpoint, a report.

    ``errors`` is the number of questions that failed, ``width`` that of a terminal's columns that
    the tables need.
    """

    shown: tuple[str | Table, ...]
    path: Path
    errors: int = 0
    width: int = 104


@runtime_checkable
class Job(Protocol):
    """A frozen dataclass of settings that can be executed: a run, a training, a comparison.

    A job that calls language models has a field ``run``, which it executes or learns from, or a
    method ``reading`` that returns a run with its models and its index.
    """

    def execute(self, workdir: str | Path) -> Outcome:
        """Does the work, or continues it where it was interrupted.

        InputError if the settings do not fit, or ``workdir`` belongs to another job.
        """
        ...


def trained(checkpoint: Path) -> Outcome:
    """The outcome of a training: where its checkpoint lies."""
    return Outcome((f"trained: {checkpoint}",), checkpoint)


@contextlib.contextmanager
def job_directory(workdir: str | Path, record: Mapping[str, Any]) -> Iterator[Path]:
    """The directory, made or gone on with, locked and with the log open.

    Of several processes of one job (`jax.distributed`) the first does so for all. InputError if it
    belongs to a job with other settings, or another process works there.
    """
    if jax.process_index():
        yield Path(workdir)
        return
    with RunDirectory.open(workdir, record) as directory, run_log(directory.path / "log.jsonl"):
        yield directory.path


def locate_file(spec: str, name: str, *, field: str, made: str) -> Path:
    """The file that a field of a job names, itself or in that directory; else InputError."""
    path = Path(spec).expanduser()
    file = path / name if path.is_dir() else path
    if not spec or not file.is_file():
        raise InputError(
            f"{field} is {spec!r}, where there is no {name}: give --config.{field}=DIRECTORY, one "
            f"such as {made} makes."
        )
    return file
