"""What jobs that are not runs of a method share: their own directory, and files of other jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.run_log import run_log
from jaxrag.types import InputError


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
