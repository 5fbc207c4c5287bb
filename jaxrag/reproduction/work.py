"""The jobs behind tables and figures, each executed once in a directory of its own."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.durable_files import write_text
from jaxrag.core.hashing import canonical, digest
from jaxrag.core.progress import tell
from jaxrag.core.store import CACHE
from jaxrag.engines.local.engine import Local
from jaxrag.engines.vllm import Vllm
from jaxrag.reproduction.measures import JOB, Results
from jaxrag.reproduction.printed.tables import PrintedRow, PrintedTable
from jaxrag.reproduction.tables import Figure, Scale, Setting, Table, columns_of
from jaxrag.runs.job import Job
from jaxrag.runs.loading import describe_job, release, release_programs
from jaxrag.runs.retriever_comparison import RetrieverComparison
from jaxrag.runs.run import Run
from jaxrag.runs.settings import parts_in_use
from jaxrag.runs.table_job import TableJob
from jaxrag.types import InputError

DONE = "done.json"
"""Written into the directory of a job when it has ended without errors."""


@dataclasses.dataclass
class Work:
    """Jobs by directory, in an order in which each comes after those that it needs.

    The name of a directory is a hash of the job's settings, so tables share runs and trainings, and
    a job of a changed setting is another job.

    Attributes:
      root: parent of the directories.
      limit: number of questions of every run and measurement, from the first; 0 is all. Trainings,
        and what they learn from, have all of theirs.
      sizes, ratio: in each `Setting`; without ``sizes`` those of a table's scale.
      seeds: of trainings; what needs one is made for each.
      change: returns a job with other settings in its place, such as those of another engine.
      jobs: by directory.
      needs: by directory, the directories of the jobs that a job needs.
      failed: by directory, why a job could not be done when it was executed.
    """

    root: Path
    _: dataclasses.KW_ONLY
    limit: int = 0
    sizes: Scale | None = None
    ratio: str = ""
    seeds: int = 1
    change: Callable[[Job], Job] = lambda job: job
    jobs: dict[Path, Job] = dataclasses.field(default_factory=dict)
    needs: dict[Path, tuple[Path, ...]] = dataclasses.field(default_factory=dict)
    failed: dict[Path, str] = dataclasses.field(default_factory=dict)
    _trained: set[Path] = dataclasses.field(default_factory=set)

    def add_all(
        self,
        makers: Mapping[str, Callable[[Setting], Job]],
        place: tuple[Scale, str, str],
        seeds: int,
    ) -> list[dict[str, Path]]:
        """Adds some jobs by name, and what they need; again for each seed if one needs a training.

        ``place`` has the scale, data set and questions; returned are directories, by seed.
        """
        by_seed: list[dict[str, Path]] = []
        for seed in range(seeds):
            more = (self.sizes or place[0], self.ratio, seed)
            directories = {
                name: self.add(lambda to, make=make: make(Setting(*place, to, *more)), seed)  # noqa: B023
                for name, make in makers.items()
            }
            by_seed.append(directories)
            if self._trained.isdisjoint(directories.values()):
                break
        return by_seed

    def add(self, make: Callable[[Callable[[Job], Path]], Job], seed: int = 0) -> Path:
        """Adds the job that ``make`` returns, and those whose directories it asks for; its own.

        A job among these that names the directory of another one needs that. ``seed`` is added to
        those of all trainings among them, so that the jobs that do not depend on one are shared.
        """
        needed: list[Path] = []

        def directory(job: Job) -> Path:
            text = canonical(describe_job(job))
            paths = (path for path in needed if json.dumps(str(path))[1:-1] in text)
            needed.append(self._place(job, tuple(paths), seed))
            return needed[-1]

        return self._place(self._limited(make(directory)), tuple(needed), seed)

    def _limited(self, job: Job) -> Job:
        if isinstance(job, Run | RetrieverComparison) and self.limit:
            return dataclasses.replace(job, limit=min(self.limit, job.limit or self.limit))
        if isinstance(job, TableJob) and job.measures:
            return dataclasses.replace(job, run=self._limited(job.run))
        return job

    def _place(self, job: Job, needed: tuple[Path, ...], seed: int) -> Path:
        job = _seeded(self.change(job), seed)
        path = self.root / f"{_name(job)}-{self._digest(job)}"
        self.jobs.setdefault(path, job)
        self.needs[path] = tuple(dict.fromkeys((*self.needs.get(path, ()), *needed)))
        if hasattr(job, "training") or not self._trained.isdisjoint(needed):
            self._trained.add(path)
        return path

    def _digest(self, job: Job) -> str:
        """A hash of a job's settings; directories count without parent, default caches as one."""
        text = canonical({"is": type(job).__name__, **describe_job(job)})
        text = text.replace(canonical({"cache": CACHE})[1:-1], '"cache":"runs/cache"')
        return digest(text.replace(json.dumps(f"{self.root}/")[1:-1], ""))[:10]

    def with_needs(self, wanted: Collection[Path]) -> list[Path]:
        """The directories and those that they need, in an order that loads each model seldom."""
        needed, todo = set[Path](), list(wanted)
        while todo:
            path = todo.pop()
            if path not in needed:
                needed.add(path)
                todo += self.needs[path]
        order, loaded = list[Path](), set[Any]()
        rest = {path: _models(job) for path, job in self.jobs.items() if path in needed}
        while rest:
            ready = [path for path in rest if set(self.needs[path]) <= {*order}]
            changes = ((len(rest[path] - loaded), len(loaded - rest[path])) for path in ready)
            _, path = min(zip(changes, ready, strict=True), key=lambda pair: pair[0])
            order.append(path)
            loaded = rest.pop(path)
        return order

    def finished(self, path: Path) -> bool:
        """Whether a job has ended without errors."""
        return (path / DONE).is_file()

    def execute(self, wanted: Collection[Path]) -> int:
        """Executes jobs that are not finished, those first that others need.

        A job that cannot be done, and those that need it, are added to `failed`; the same call
        tries them again. Returns the number of questions that failed; InputError of the first job
        if none could be done.
        """
        self.failed.clear()
        order = self.with_needs(wanted)
        todo = [path for path in order if not self.finished(path)]
        if len(todo) < len(order):
            tell(f"{len(order) - len(todo)} of {len(order)} jobs are finished already")
        errors, models = 0, set[Any]()
        for number, path in enumerate(todo, 1):
            if models - (models := _models(self.jobs[path])):
                release(keep=models)  # others may not fit beside them
            tell(f"job {number} of {len(todo)}: {path.name}")
            try:
                for needed in self.needs[path]:
                    if needed in self.failed:
                        raise InputError(f"it needs {needed.name}, which could not be done")
                outcome = self.jobs[path].execute(path)
            except InputError as error:
                self.failed[path] = f"{path}: {error}"
                tell(f"left out: {self.failed[path]}")
                continue
            if not isinstance(self.jobs[path], Run):
                release_programs()  # a training's serve no other job
            errors += outcome.errors
            if not outcome.errors:
                record = {"path": str(outcome.path.relative_to(path))}
                write_text(path / DONE, json.dumps(record) + "\n")
        if todo and len(self.failed) == len(order):
            raise InputError(next(iter(self.failed.values())))
        return errors


def _models(job: Job) -> set[Any]:
    """Settings of the language models of a job that are loaded in this process."""
    return {part for part in parts_in_use(job) if isinstance(part, Local | Vllm)}


def _seeded(job: Any, seed: int) -> Any:
    """The job with ``seed`` added to its training's, and to those of weights drawn at random."""
    if not seed:
        return job
    changes: dict[str, Any] = {}
    for name in ("training", "new"):
        part: Any = getattr(job, name, None)
        if hasattr(part, "seed"):
            changes[name] = dataclasses.replace(part, seed=part.seed + seed)
    if hasattr(job, "head_seed"):
        changes["head_seed"] = job.head_seed + seed
    return dataclasses.replace(job, **changes) if changes else job


def _name(job: Any) -> str:
    """A readable name of a job: its method or kind, and its data."""
    data = getattr(getattr(job, "run", job), "data", None)
    parts = [getattr(job, "name", "") or type(job).__name__, getattr(data, "name", "")]
    text = "-".join(part for part in parts if part)
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in text)


def add_row(
    work: Work, table: Table, row: PrintedRow, scale: Scale, dataset: str, data: str
) -> Results:
    """Adds the jobs of a printed row on one data set; returns where their results will be."""
    line = table.lines[row.method]
    makers = {
        name: functools.partial(make, row) for name, make in {JOB: line.job, **line.others}.items()
    }
    directories, *others = work.add_all(makers, (scale, dataset, data), work.seeds)
    return Results(directories, row, others)


def add_table(
    work: Work, table: Table, printed: PrintedTable, scale: Scale, only: Collection[str] = ()
) -> dict[tuple[int, str], Results]:
    """Adds what `chosen` leaves of a table; results by row number and questions of the column."""
    kinds = kinds_of(printed, table.datasets)
    methods, datasets, generators, retrievers = chosen(printed.id, kinds, only)
    results = {}
    for column in table.columns(printed, scale):
        for number, row in enumerate(printed.rows):
            in_row = table.values(row)
            used = [name for name in column.datasets if name in in_row and name in datasets]
            included = row.generator in generators and row.retriever in retrievers
            included = included and row.method in methods and not table.without(row.method, scale)
            if used and included:
                outputs = add_row(work, table, row, scale, used[0], column.data)
                results[number, column.data] = outputs
    return results


def kinds_of(
    printed: PrintedTable, without_columns: Sequence[str] = ()
) -> dict[str, Sequence[str | None]]:
    """What ``--only`` may name of a table; ``without_columns`` if it prints averages alone."""
    return {
        "methods": [row.method for row in printed.rows],
        "data sets": printed.datasets or without_columns,
        "generators": [row.generator for row in printed.rows],
        "retrievers": [row.retriever for row in printed.rows],
    }


def chosen(
    whole: str, kinds: Mapping[str, Sequence[str | None]], only: Collection[str]
) -> list[list[Any]]:
    """What ``only`` leaves of each kind of parts of a table or figure.

    A name after "-" is left out; of a kind of which ``only`` names nothing, all are left.
    InputError if a name is none of these.
    """
    included: dict[str, set[str]] = {kind: set() for kind in kinds}
    excluded: dict[str, set[str]] = {kind: set() for kind in kinds}
    for text in only:
        name = text.removeprefix("-")
        matching = {kind: _meant(kind, name, parts) for kind, parts in kinds.items()}
        if not any(matching.values()):
            texts = (
                f"{kind} are {', '.join(dict.fromkeys(filter(None, parts)))}"
                for kind, parts in kinds.items()
                if any(parts)
            )
            raise InputError(f"{whole} has no {name!r}: its {'; its '.join(texts)}.")
        for kind, parts in matching.items():
            (excluded if text.startswith("-") else included)[kind] |= parts
    return [
        [part for part in dict.fromkeys(parts) if part not in excluded[kind]
         and (not included[kind] or part in included[kind])]
        for kind, parts in kinds.items()
    ]  # fmt: skip


def _meant(kind: str, name: str, parts: Sequence[str | None]) -> set[str]:
    """The parts of a kind that a name stands for.

    Of methods and series, all that begin with it; of models, the whole name, or all that have it
    as a part, such as "7B".
    """
    names = set(filter(None, parts))
    if kind in ("methods", "series"):
        return {part for part in names if part == name or part.startswith(f"{name}_")}
    if name in names or kind == "data sets":
        return names & {name}
    return {part for part in names if name in re.split(r"[-_+\s]|:(?=\S)", part)}


def add_figure(
    work: Work, name: str, figure: Figure, scale: Scale, only: Collection[str] = ()
) -> dict[str, Results]:
    """Adds what `chosen` leaves of a figure; results by the heading of the data set."""
    kinds = {"series": [*figure.series], "data sets": figure.datasets}
    series, datasets = chosen(name, kinds, only)
    if not datasets or (figure.series and not series):
        raise InputError(f"nothing of {name} is left by --only={','.join(only)}.")
    jobs = {job for s in series for job in figure.series[s]} or {*figure.jobs}
    results = {}
    for column in columns_of(datasets, lambda dataset: figure.data(scale, dataset)):
        place = (scale, column.datasets[0], column.data)
        makers = {job: make for job, make in figure.jobs.items() if job in jobs}
        directories, *others = work.add_all(makers, place, work.seeds if figure.seeds else 1)
        results[column.heading] = Results(directories, None, others)
    return results
