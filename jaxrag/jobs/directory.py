"""The directory of a job that is not a run of a method: its settings, its log, one at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.run_log import run_log


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
