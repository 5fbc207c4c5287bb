"""Jobs: whatever a config file may return. Each executes in a directory of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
from rich.table import Table

from jaxrag.core import jsonl
from jaxrag.core.progress import run_log
from jaxrag.evaluation.records import RunDirectory, read_run
from jaxrag.evaluation.records import RunRecords as Records
from jaxrag.types import InputError

if TYPE_CHECKING:
    from jaxrag.runs.run import Run

RUN = "run"
"""The folder of a run that a job makes a table from."""


class Outcome(NamedTuple):
    """Result of a job.

    Attributes:
      shown: lines of text and tables, for the terminal.
      path: the file or directory that the job was for: a table, a checkpoint, a report.
      errors: number of questions that failed.
      width: columns of a terminal that its tables need.
    """

    shown: tuple[str | Table, ...]
    path: Path
    errors: int = 0
    width: int = 104


@runtime_checkable
class Job(Protocol):
    """A frozen dataclass of settings that can be executed: a run, a training, a comparison."""

    def execute(self, workdir: str | Path) -> Outcome:
        """Does the work, or continues it where it was interrupted.

        Raises:
          InputError: the settings do not fit, or ``workdir`` belongs to another job.
        """
        ...


def trained(checkpoint: Path) -> Outcome:
    """The outcome of a training: where its checkpoint lies."""
    return Outcome((f"trained: {checkpoint}",), checkpoint)


@runtime_checkable
class TableJob(Job, Protocol):
    """A job that executes a run and makes a table from its records.

    Attributes:
      file: name of the table in the job's directory.
      run: the run, whose own directory is the folder `RUN` of the job's.
    """

    file: ClassVar[str]

    @property
    def run(self) -> Run:
        """The run."""
        ...


def write_table(path: Path, lines: Sequence[Mapping[str, Any]], shown: Table) -> Outcome:
    """Writes the lines of a table; the outcome shows their summary."""
    jsonl.write(path, lines)
    return Outcome((shown, f"made: {path}"), path)


def answered(run: Run, workdir: str | Path) -> Records:
    """The records of a run in the folder ``run`` of a job's directory, executed to its end.

    Raises:
      InputError: questions failed (the same call asks these again), or what the run raises.
    """
    directory = Path(workdir) / RUN
    if failed := run.execute(directory).errors:
        raise InputError(
            f"{failed} questions failed (see {directory / 'answers.jsonl'}), so there is no table "
            "yet. The answers of the others are kept; the same command asks these again."
        )
    return read_run(directory)


@contextlib.contextmanager
def job_directory(workdir: str | Path, record: Mapping[str, Any]) -> Iterator[Path]:
    """The directory, made or gone on with, locked and with the log open.

    Of several processes of one job (`jax.distributed`) the first does so for all.

    Raises:
      InputError: it belongs to a job with other settings, or another process works there.
    """
    if jax.process_index():
        yield Path(workdir)
        return
    with RunDirectory.open(workdir, record) as directory, run_log(directory.path / "log.jsonl"):
        yield directory.path


def locate_file(spec: str, name: str, *, field: str, made: str) -> Path:
    """The file that a field of a job names: itself, or the directory that holds it.

    Args:
      spec: the field's value.
      name: what the file is called in a directory.
      field: the job's field, for the error.
      made: what makes such files, for the error.

    Raises:
      InputError: there is none.
    """
    path = Path(spec).expanduser()
    file = path / name if path.is_dir() else path
    if not spec or not file.is_file():
        raise InputError(
            f"{field} is {spec!r}, where there is no {name}: give --config.{field}=DIRECTORY, one "
            f"such as {made} makes."
        )
    return file
