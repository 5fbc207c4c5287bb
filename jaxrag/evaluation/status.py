"""Progress of a run, from its files alone: its process may be on another machine, or dead."""

from __future__ import annotations

import difflib
import fcntl
import glob
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxrag.core.durable_files import read_whole
from jaxrag.core.json_text import parse_json
from jaxrag.core.progress import tell
from jaxrag.evaluation import metrics
from jaxrag.evaluation.prices import PRICES, Price
from jaxrag.evaluation.records import failure, read_run
from jaxrag.evaluation.summary import name_of
from jaxrag.types import InputError


class Status(NamedTuple):
    """Progress of a run.

    Attributes:
      state: "running" (a process of this machine holds the lock), "finished" (metrics.json exists),
        "failed: " and the error that stopped it, "stopped", or "elsewhere or stopped" (a file was
        written in the last ten minutes, but no process of this machine holds the lock).
      idle: seconds since the last write.
      left: estimated seconds of engine time that remain; None if no question was answered.
      trigger: share of the answered questions that retrieved; None if none was answered.
      dollars_left: estimated dollars of the questions that remain; None without a price of the
        model, or if no question was answered.
    """

    path: Path
    method: str
    dataset: str
    state: str
    asked: int
    answered: int
    errors: int
    idle: float
    left: float | None
    trigger: float | None
    totals: dict[str, float]
    dollars_left: float | None


def run_directories(below: str | Path) -> list[Path]:
    """The run directories at or below a directory, by path; those within a run are its parts."""
    directories = {file.parent for file in Path(below).rglob("config.json") if _is_run(file)}
    return sorted(path for path in directories if not directories & {*path.parents})


def named_directories(names: Sequence[str | Path]) -> list[Path]:
    """The directories of jobs that names stand for, in their order, each once.

    A name is that of a run or another job, of a directory with runs below it (such as a sweep's),
    or a pattern such as "runs/*". Files and directories without runs are left out, which is told,
    as a pattern finds them, too. InputError if there is nothing of that name, or no run at all.
    """
    directories: dict[Path, None] = {}
    for name in names:
        matched = glob.glob(str(name))  # noqa: PTH207  Path.glob takes no absolute patterns
        paths = [Path(name)] if Path(name).exists() else sorted(map(Path, matched))
        if not paths:
            beside = glob.glob(f"{glob.escape(str(Path(name).parent))}/*/")  # noqa: PTH207
            near = difflib.get_close_matches(str(Path(name)), [place[:-1] for place in beside], 1)
            hint = f" Nearest: {near[0]}." if near else ""
            raise InputError(f"{name}: there is no such directory.{hint}")
        for path in paths:
            itself = [path] if (path / "config.json").is_file() else []
            runs = run_directories(path) or itself
            directories |= dict.fromkeys(runs)
            if not runs and len([*names, *paths]) > 2:
                tell(f"{path} is left out: it is no run directory, and none is below it")
    if not directories:
        raise InputError(f"{', '.join(map(str, names))}: no run directory, and none is below.")
    return list(directories)


def _is_run(file: Path) -> bool:
    """Whether a config.json is a method's run's, not a training's or a checkpoint's."""
    if (file.parent / "answers.jsonl").is_file():
        return True
    if not file.is_file():  # a pipe, say, on which a reader would wait
        return False
    try:
        document = parse_json(read_whole(file))
        return "environments" in document and {"method", "dataset"} <= document["config"].keys()
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def status(
    path: str | Path, *, now: float | None = None, prices: Mapping[str, Price] = PRICES
) -> Status:
    """Reads a run directory without changing it.

    ``now`` are seconds since the epoch (default: the clock); ``prices`` are by the name of a model.
    InputError if it is not a run directory, or one of its files is corrupt.
    """
    run, path = read_run(path), Path(path)
    asked = int(run.config.get("dataset", {}).get("questions") or len(run.records))
    errors = sum("error" in record for record in run.records)
    columns = metrics.score(run.records, run.timings)
    newest = max(f.stat().st_mtime for f in path.iterdir() if f.name != ".lock")
    idle = max(0.0, (time.time() if now is None else now) - newest)
    missing = asked - len(run.records)
    seconds = [float(timing.get("spent", timing["seconds"])) for timing in run.timings.values()]
    trigger = columns["trigger"][~np.isnan(columns["trigger"])]
    price = prices.get(name_of(run.config, "language_model"))
    spent = [price.of_question(line["cost"]) for line in run.records if price and "cost" in line]
    return Status(
        path=path,
        method=name_of(run.config, "method"),
        dataset=name_of(run.config, "dataset"),
        state=_state(path, run.finished, idle),
        asked=asked,
        answered=len(run.records) - errors,
        errors=errors,
        idle=idle,
        left=missing * sum(seconds) / len(seconds) if seconds else None,
        trigger=float(trigger.mean()) if trigger.size else None,
        totals=metrics.totals(columns),
        dollars_left=missing * sum(spent) / len(spent) if spent else None,
    )


def _state(path: Path, finished: bool, idle: float) -> str:
    if _is_locked(path):
        return "running"
    if finished:
        return "finished"
    if error := failure(path):
        return f"failed: {error}"
    return "elsewhere or stopped" if idle < 600 else "stopped"


def _is_locked(path: Path) -> bool:
    try:
        lock = os.open(path / ".lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
