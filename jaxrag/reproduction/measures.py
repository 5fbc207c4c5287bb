"""Outputs of finished jobs: facts for records, and measures that are not means over answers."""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.core import jsonl
from jaxrag.core.hashing import digest_file
from jaxrag.engines.memory import decoder_of
from jaxrag.evaluation.prices import prices
from jaxrag.evaluation.records import RunRecords, read_run
from jaxrag.evaluation.significance import Interval, interval
from jaxrag.evaluation.summary import calibration_text, name_of
from jaxrag.reproduction.printed.measured import Measured, ScoredRun, over_seeds
from jaxrag.reproduction.printed.tables import PrintedRow
from jaxrag.runs.job import RUN, Job
from jaxrag.types import InputError

JOB = ""
"""Name of a row's own job among its results."""


class Results:
    """Outputs of the jobs of a printed row, by the jobs' names; `JOB` is the row's own.

    Attributes:
      row: the printed row; None for a figure.
      seeds: results of the same jobs by each seed of the trainings that they need, these first;
        these alone if nothing is trained.
    """

    def __init__(
        self,
        directories: Mapping[str, Path],
        row: PrintedRow | None = None,
        others: Sequence[Mapping[str, Path]] = (),
    ):
        """Results in the jobs' directories; ``others`` are those of further seeds."""
        self.directories, self.row = directories, row
        self.seeds = (self, *(Results(seed, row) for seed in others))

    @property
    def paths(self) -> list[Path]:
        """The directories of all jobs, by all seeds."""
        return [path for seed in self.seeds for path in seed.directories.values()]

    @property
    def there(self) -> bool:
        """Whether all jobs have been executed, here or by another host."""
        return all(path.is_dir() for path in self.paths)

    def measure(self, measure: Measure) -> Measured:
        """What a measure finds, over the seeds."""
        return over_seeds([measure(seed) for seed in self.seeds])

    def has(self, *jobs: str) -> bool:
        """Whether all these jobs were made; a part of a figure lacks some."""
        return set(jobs) <= set(self.directories)

    @functools.cache  # noqa: B019 - as many as a table has rows
    def scored(self, job: str = JOB) -> ScoredRun:
        """A run with its metrics; of a job that executes a run, that run."""
        return ScoredRun(read_run(_run_directory(self.directories[job])))

    def runs(self) -> Iterator[tuple[str, RunRecords]]:
        """Names and records of the jobs that answered questions, so not of trainings."""
        for job, directory in self.directories.items():
            if directory.is_dir():
                with contextlib.suppress(InputError):  # not a run
                    if (run := self.scored(job).run).records:
                        yield job, run

    @property
    def seconds(self) -> float:
        """Seconds in which the runs among the jobs answered; 0 without a log."""
        return sum(map(job_seconds, self.paths))


def _run_directory(directory: Path) -> Path:
    """The directory of a job's run: its own, or that within it."""
    inner = directory / RUN
    return inner if inner.is_dir() else directory


Measure = Callable[[Results], Measured]
"""Measures a printed metric."""


def total_cost(results: Results) -> Measured:
    """Dollars of a run, but helpers', at the printed generator's price; InputError without one."""
    assert results.row is not None
    generator, listed = results.row.generator or "", prices()
    if generator not in listed:
        raise InputError(
            f"{generator} has no price: add it to a JSON file and name that by $JAXRAG_PRICES (see "
            "jaxrag/evaluation/prices.py)."
        )
    price, records = listed[generator], results.scored().run.records
    dollars = [len(records) * price.of_question(record.get("cost", {})) for record in records]
    names = (record["question_id"] for record in records)
    return Measured(interval(np.array(dollars)), dict(zip(names, dollars, strict=True)))


def wall_seconds(results: Results) -> Measured:
    """Seconds in which a run with a store of its own answered, without loading models."""
    run = results.scored().run
    seconds = answering_seconds(run.path)
    return Measured(Interval(seconds, seconds, seconds, len(run.records)))


def job_seconds(directory: Path) -> float:
    """`answering_seconds` of a job's run; 0 for a training."""
    return answering_seconds(_run_directory(directory))


def answering_seconds(directory: Path) -> float:
    """Seconds from a run's start to its last line of the log, of all its parts; 0 without a log."""
    seconds, started, log = 0.0, None, directory / "log.jsonl"
    for line in jsonl.read(log, key="time", torn_ok=True) if log.is_file() else ():
        moment = datetime.datetime.fromisoformat(line["time"])
        if line["message"] == "started":
            started = last = moment
        elif started is not None:
            seconds, last = seconds + (moment - last).total_seconds(), moment
    return seconds


def describe_runs(
    results: Iterable[Results], jobs: Mapping[Path, Job], published: Mapping[str, float]
) -> dict[str, Any]:
    """The readers, numbers of questions, data, and thresholds set.

    "parameters" of the readers are in billions, as are those ``published`` of checkpoints; "files"
    has the SHA-256 of those that are files.
    """
    models, questions, thresholds = dict[str, Any](), set[int](), dict[str, None]()
    data = dict[str, dict[str, Any]]()
    for outputs in (of_seed for result in results for of_seed in result.seeds):
        for path in outputs.directories.values():  # a training's model is its reader
            model = _reader(jobs.get(path))
            models |= {model.name: model} if model else {}
        for job, run in outputs.runs():
            name = name_of(run.config, "language_model")
            models |= {} if name == "unnamed" else {name: _reader(jobs[outputs.directories[job]])}
            questions.add(len(run.records))
            dataset = run.config["dataset"]
            facts = {key: dataset[key] for key in ("passages", "identity") if key in dataset}
            data[name_of(run.config, "dataset")] = facts
            if calibration := run.config.get("calibration"):
                name = f"{run.config['method']['name']} on {run.config['dataset']['name']}"
                thresholds[f"{name}: {calibration_text(calibration)}"] = None
    files = {
        name: path
        for name, model in models.items()
        if (path := Path(getattr(model, "checkpoint", "") or "").expanduser()).is_file()
    }
    return {
        "models": sorted(models),
        "parameters": {name: _billions(models[name], published) for name in sorted(models)},
        "files": {name: digest_file(file) for name, file in sorted(files.items())},
        "questions": sorted(questions),
        "data": data,
        **({"thresholds": list(thresholds)} if thresholds else {}),
    }


def _reader(job: Any) -> Any:
    """The language model of a job or of its run; None without one."""
    return getattr(getattr(job, "run", job), "model", None)


def _billions(model: Any, published: Mapping[str, float]) -> float | None:
    """Parameters of a published checkpoint, also behind a server, or of a local one's shapes."""
    spec = getattr(model, "checkpoint", "") or getattr(model, "tokenizer", "")
    if spec in published:
        return published[spec]
    try:
        config = decoder_of(spec, {}) if spec and getattr(model, "checkpoint", "") else None
    except InputError:  # of another kind, such as T5
        return None
    return None if config is None else round(config.parameters / 1e9, 3)
