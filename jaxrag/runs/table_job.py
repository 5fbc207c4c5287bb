"""Jobs that answer questions and write a table with what a later training needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
from rich.table import Table

from jaxrag.core import jsonl
from jaxrag.evaluation.records import RunRecords, read_run
from jaxrag.runs.job import RUN, Outcome
from jaxrag.runs.run import Run
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class TableJob:
    """Executes a run and writes a table from its records.

    A subclass sets ``file``, the name of the table in the job's directory, ``method``, the Config
    that the run's method must be, and ``measures``, whether the table is a result of its own and
    not what a training learns from; and defines `lines` and `summary`.
    """

    file: ClassVar[str]
    method: ClassVar[type]
    measures: ClassVar[bool] = False

    run: Run

    def __post_init__(self) -> None:
        if not isinstance(self.run.method, self.method):
            raise InputError(
                f"run.method is {self.run.method}; {type(self).__name__} needs "
                f"{self.method.__module__}.Config."
            )

    def lines(self, records: RunRecords, workdir: Path) -> list[dict[str, Any]]:
        """The lines of the table; further files may be written into ``workdir``."""
        raise NotImplementedError

    def summary(self, lines: Sequence[Mapping[str, Any]]) -> Table:
        """The statistics of the lines, for the terminal."""
        raise NotImplementedError

    def execute(self, workdir: str | Path) -> Outcome:
        """Executes the run, then writes the table; InputError if questions failed."""
        directory, path = Path(workdir) / RUN, Path(workdir) / self.file
        if failed := self.run.execute(directory).errors:
            raise InputError(
                f"{failed} questions failed (see {directory / 'answers.jsonl'}), so there is no "
                "table yet. The answers of the others are kept; the same command asks these again."
            )
        if jax.process_index():  # of several processes the first writes the table
            return Outcome((), path)
        lines = self.lines(read_run(directory), Path(workdir))
        jsonl.write(path, lines)
        return Outcome((self.summary(lines), f"made: {path}"), path)
