"""Run directories: settings and answers of a run, safe to resume after a crash.

``config.json``     the resolved settings and the identities of data and models, under ``config``;
                    package versions, devices and commit, one entry per distinct environment, under
                    ``environments``
``answers.jsonl``   a line per question, appended as questions finish: ``question_id``,
                    ``question``, ``gold_answers``, ``gold_passages`` (ids, where known),
                    ``top_holds_answer`` (for open questions answered from passages: whether the
                    first passage contains a gold answer), ``normalization`` (of texts that are
                    compared, unless "squad"), ``prediction``, ``trace``, ``cost``; or ``error`` in
                    place of the last three
``timings.jsonl``   ``question_id``, ``seconds`` of the first computation of its results (see
                    `jaxrag.engines.scheduler.QuestionOutcome`), ``untimed``, the results whose
                    seconds are not known, ``spent`` in this run, ``store_hits``: these may differ
                    between two runs of the same command; answers.jsonl does not
``passages.jsonl``  ``id``, ``title``, ``text`` of the passages that the traces name (optional)
``judgements.json``  a language model's judgements (see `jaxrag.evaluation.judgements`; optional)
``metrics.json``    written at the end, with the SHA-256 of answers.jsonl (``answers_sha256``);
                    seconds are null if a result is untimed; ``alarms`` has the number of questions
                    of each and the sentences of those raised
``log.jsonl``       log of all processes that worked on the run (see `run_log`)
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from jaxrag.core import jsonl
from jaxrag.core.checks import check_local
from jaxrag.core.durable_files import (
    check_size,
    explain_limits,
    make_directory,
    open_own,
    read_whole,
    take_lock,
    write_text,
)
from jaxrag.core.hashing import digest_file
from jaxrag.core.json_text import parse_json
from jaxrag.evaluation import alarms, metrics, precision
from jaxrag.evaluation.judgements import read_judgements
from jaxrag.evaluation.significance import intervals
from jaxrag.types import InputError, Passage

PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scann", "transformers", "tokenizers", "gguf", "vllm")
_ANSWERED = {"prediction": str, "trace": dict, "cost": dict}
_TIMING = {"seconds": jsonl.NUMBER}
_ANSWERS_HASH = "answers_sha256"
_UNFIT = "Use another run directory, or delete this one to start over."


class RunRecords(NamedTuple):
    """Contents of a run directory; ``records`` has the newest line of each question."""

    path: Path
    config: dict[str, Any]
    environments: list[dict[str, Any]]
    records: tuple[dict[str, Any], ...]
    timings: dict[str, dict[str, Any]]
    finished: bool
    judgements: Mapping[str, Any] = MappingProxyType({})


class RunDirectory:
    """A run directory held open for writing by one process.

    Use it as a context manager. ``finished`` has the ids of the questions that earlier processes
    answered; questions that failed are not among them, so that they are tried again.
    """

    def __init__(self, path: Path, lock: int, finished: frozenset[str]):
        self.path = path
        self.finished = finished
        self._lock = lock

    @classmethod
    def open(
        cls,
        path: str | Path,
        config: Mapping[str, Any],
        *,
        environment: Mapping[str, Any] | None = None,
    ) -> RunDirectory:
        """Starts a run, or continues an interrupted one with the same ``config``.

        ``config`` is plain JSON of everything that determines results (settings, identities of data
        and models). The report reads ``method.name``, ``dataset.name``, ``language_model`` and
        ``retriever``. ``environment`` is recorded beside it, and may change between sessions; by
        default package versions, devices and commit of this process. InputError if another process
        is writing there, the directory holds a run with another config, one of its files is
        corrupt, or the disk is full. An incomplete last line, as ``kill -9`` leaves it, is removed.
        """
        check_local({"the run directory": path})
        path = Path(path)
        plain = json.loads(jsonl.encode("config", config))
        with explain_limits(path):
            make_directory(path, "a run directory")
            lock = open_own(path / ".lock", os.O_RDWR)
            if not take_lock(lock, path):
                os.close(lock)
                raise InputError(
                    f"another process is writing to {path}; wait for it or use another directory."
                )
        try:
            _write_or_check_config(path, plain, dict(environment or describe_environment()))
            _check_answers(path)
            for name in ("answers.jsonl", "timings.jsonl"):
                jsonl.cut_torn_line(path / name)
            records = newest(_read_answers(path))
            jsonl.read(path / "timings.jsonl", fields=_TIMING)
        except BaseException:
            os.close(lock)
            raise
        answered = (name for name, record in records.items() if "error" not in record)
        return cls(path, lock, frozenset(answered))

    def append(
        self, records: Iterable[Mapping[str, Any]], timings: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        """Appends records, on disk when this returns.

        ValueError if one is not plain JSON (which has no NaN or infinity); InputError if the disk
        is full: none of these lines is kept.
        """
        answer_lines = [jsonl.encode(str(record["question_id"]), record) for record in records]
        timing_lines = [jsonl.encode(str(timing["question_id"]), timing) for timing in timings]
        (self.path / "metrics.json").unlink(missing_ok=True)  # out of date from here on
        # Timings first: a kill in between leaves a timing without an answer; a later one wins.
        jsonl.append(self.path / "timings.jsonl", timing_lines)
        jsonl.append(self.path / "answers.jsonl", answer_lines)

    def finish(
        self, question_ids: Sequence[str], *, passages: Iterable[Passage] = ()
    ) -> dict[str, Any]:
        """Sorts the lines by ``question_ids`` and writes metrics.json; returns its figures.

        The bytes of answers.jsonl then do not depend on interruptions. Questions without a line are
        counted as missing. ``passages`` are kept for the report.
        """
        for name in ("answers.jsonl", "timings.jsonl"):
            jsonl.reorder(self.path / name, question_ids)
        if rows := [dataclasses.asdict(passage) for passage in passages]:
            jsonl.write(self.path / "passages.jsonl", rows)
        run = read_run(self.path)
        figures = summary(run, asked=len(question_ids))
        answers = self.path / "answers.jsonl"
        saved = {**figures, _ANSWERS_HASH: digest_file(answers) if answers.is_file() else None}
        write_text(self.path / "metrics.json", json.dumps(saved, indent=2, allow_nan=False) + "\n")
        return figures

    def named_passages(self) -> list[str]:
        """Ids of all passages that the recorded searches found, without repeats."""
        records = newest(_read_answers(self.path)).values()
        searches = (s for record in records for s in record.get("trace", {}).get("searches", ()))
        return list(dict.fromkeys(passage for search in searches for passage in search["ids"]))

    def close(self) -> None:
        """Releases the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def check_place(path: Path) -> None:
    """Raises InputError if a run directory cannot be made: the path or a parent is a file."""
    for place in (path, *path.parents):
        if place.is_file():
            raise InputError(f"{place} is a file, not a run directory: give another one.")


def read_run(path: str | Path) -> RunRecords:
    """Reads a run directory, finished or not; InputError if it is none, or a file is corrupt."""
    path = Path(path)
    if not (path / "config.json").is_file():
        why = "it holds no config.json" if path.is_dir() else "there is no such directory"
        raise InputError(f"{path} is not a run directory: {why}.")
    head = _read_config(path / "config.json")
    _check_answers(path)
    records = tuple(newest(_read_answers(path, torn_ok=True)).values())
    timings = newest(jsonl.read(path / "timings.jsonl", fields=_TIMING, torn_ok=True))
    finished = (path / "metrics.json").is_file()
    parts = head["config"], head["environments"], records, timings, finished
    return RunRecords(path, *parts, read_judgements(path))


def _read_answers(path: Path, *, torn_ok: bool = False) -> list[dict[str, Any]]:
    """The lines of answers.jsonl, each an answer or a failed question; InputError for others."""
    file = path / "answers.jsonl"
    lines = jsonl.read(file, fields={"question": str, "gold_answers": list}, torn_ok=torn_ok)
    for number, line in enumerate(lines, 1):
        if "error" in line:
            continue
        for name, of in _ANSWERED.items():
            if not isinstance(line.get(name), of):
                raise InputError(f"{file}:{number}: an answer without its {name}; remove the line")
    return lines


def read_passages(path: str | Path) -> dict[str, dict[str, str]]:
    """The passages that a run directory keeps for its report, by id; empty if there are none."""
    fields = {"title": str, "text": str}
    lines = jsonl.read(Path(path) / "passages.jsonl", key="id", fields=fields)
    return {line["id"]: line for line in lines}


def failure(path: str | Path) -> str:
    """The error that stopped the last process that worked there, from log.jsonl; "" without one."""
    file = Path(path) / "log.jsonl"
    last = jsonl.read(file, key="level", fields={"message": str}, torn_ok=True)[-1:]
    return next((line["message"] for line in last if line["level"] == "error"), "")


def summary(run: RunRecords, *, asked: int) -> dict[str, Any]:
    """Contents of metrics.json: counts, means with 95 % intervals, total costs, and alarms.

    Seconds that are not known are null; other means are left out.
    """
    columns = metrics.score(run.records, run.timings)
    errors = sum("error" in record for record in run.records)
    classes = precision.class_accuracy(run.records)
    return {
        "questions": asked,
        "answered": len(run.records) - errors,
        "errors": errors,
        "missing": asked - len(run.records),
        "means": {
            name: mean._asdict() if mean.n else None
            for name, mean in (
                intervals(columns, counts=metrics.COUNTS) | precision.intervals(run.records)
            ).items()
            if mean.n or name == "seconds"
        },
        **({"classes": {n: mean._asdict() for n, mean in classes.items()}} if classes else {}),
        "totals": {n: None if math.isnan(v) else v for n, v in metrics.totals(columns).items()},
        "alarms": {"questions": alarms.count(run.records), "raised": alarms.raised(run.records)},
    }


def newest(lines: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last line of each question, in the order in which questions first appeared."""
    return {line["question_id"]: line for line in lines}


def differences(recorded: Any, given: Any, prefix: str = "") -> list[str]:
    """One line for each setting that differs between two configs, by dotted name."""
    if isinstance(recorded, dict) and isinstance(given, dict):
        missing = object()
        return [
            line
            for key in sorted(recorded.keys() | given.keys())
            for line in differences(
                recorded.get(key, missing), given.get(key, missing), f"{prefix}.{key}".strip(".")
            )
        ]
    if recorded == given and type(recorded) is type(given):
        return []
    texts = [
        json.dumps(v) if isinstance(v, (str, int, float, list, dict, type(None))) else "absent"
        for v in (recorded, given)
    ]
    return [f"{prefix}: {texts[0]} recorded, {texts[1]} now"]


def check_config(path: Path, recorded: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """InputError, with all differences, for a run of other settings; the cache may have moved."""
    changed = [x for x in differences(recorded, given) if not re.match(r"(.+\.)?cache: ", x)]
    if changed and _names_modules(recorded):
        raise InputError(
            f"{path} was written by an earlier version of jaxrag, whose runs and trainings cannot "
            f"be continued; jaxrag report and jaxrag status still read it. {_UNFIT}"
        )
    if changed:
        listed = "\n".join(f"  {line}" for line in changed)
        raise InputError(f"{path} holds a run with other settings:\n{listed}\n{_UNFIT}")


def _names_modules(recorded: Any) -> bool:
    """Whether classes are recorded with their modules, such as "gates.UncertaintyGate"."""
    if isinstance(recorded, list):
        return any(map(_names_modules, recorded))
    if not isinstance(recorded, Mapping):
        return False
    name = recorded.get("is")
    match = isinstance(name, str) and re.fullmatch(r"[a-z_0-9]+\.[A-Z]\w+", name)
    return bool(match) or any(map(_names_modules, recorded.values()))


def _write_or_check_config(path: Path, config: dict[str, Any], environment: dict[str, Any]) -> None:
    """Writes config.json, or checks the existing one and adds a new environment."""
    file = path / "config.json"
    environments = []
    if file.is_file():
        head = _read_config(file)
        check_config(path, head["config"], config)
        environments = head["environments"]
    elif (path / "answers.jsonl").exists():
        raise InputError(f"{path} holds answers.jsonl but no config.json. {_UNFIT}")
    lasting = [{k: v for k, v in e.items() if k != "started"} for e in [*environments, environment]]
    if not environments or lasting[-1] != lasting[-2]:
        environments = [*environments, environment]
        head = {"config": config, "environments": environments}
        write_text(file, json.dumps(head, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def _read_config(file: Path) -> dict[str, Any]:
    try:
        head = parse_json(read_whole(file))
        if isinstance(head["config"], dict) and isinstance(head["environments"], list):
            return head
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is not the config.json of a run ({error}). {_UNFIT}") from error
    raise InputError(f"{file} is not the config.json of a run. {_UNFIT}")


def _check_answers(path: Path) -> None:
    """Refuses a finished run whose answers have changed; older runs have no hash of them."""
    metrics = path / "metrics.json"
    try:
        recorded = parse_json(read_whole(metrics)) if metrics.is_file() else None
    except (OSError, ValueError):
        return  # unfinished, or metrics.json is damaged: it is written again, from the answers
    digest = recorded.get(_ANSWERS_HASH) if isinstance(recorded, dict) else None
    answers = path / "answers.jsonl"
    if answers.is_file():
        check_size(answers)
    if digest is not None and (not answers.is_file() or digest_file(answers) != digest):
        raise InputError(
            f"{answers} has changed since the run finished: its hash is not that in metrics.json. "
            "Restore it; or delete it and metrics.json, and run again: results that are in the "
            "store are reused. To keep its lines as they are, delete metrics.json alone."
        )


def describe_environment() -> dict[str, Any]:
    """Software, devices and start of this process as plain JSON, without paths or user names."""
    devices = [f"{device.platform}:{device.device_kind}" for device in jax.devices()]
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **dict(_installed_versions(("jaxrag",))),
        "commit": git_commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "devices": {kind: devices.count(kind) for kind in sorted(set(devices))},
        "packages": dict(_installed_versions(PACKAGES)),
    }


def _installed_versions(packages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Name and version of each package that is installed."""
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def git_commit() -> str | None:
    """Commit of the checkout that jaxrag runs from, "+changes" if edited; None without one."""
    home = Path(__file__).parents[2]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(home), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout

    try:
        if not git("ls-files", "jaxrag/__init__.py"):
            return None  # installed inside some other project's checkout
        commit = git("rev-parse", "HEAD").strip()
        return commit + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None
