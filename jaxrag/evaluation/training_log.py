"""Reads a training's directory: its steps, evaluations and times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.significance import Difference, Interval, interval, paired_difference
from jaxrag.training.loop import METRICS, read_steps
from jaxrag.types import InputError

_PLAIN = frozenset(("loss", "reward"))  # never shares, whatever their values


class TrainingLog(NamedTuple):
    """Contents of a training's directory.

    ``steps`` are the lines of metrics.jsonl; that of step 0 has only evaluations.
    """

    path: Path
    config: dict[str, Any]
    environments: list[dict[str, Any]]
    steps: tuple[dict[str, Any], ...]

    @property
    def label(self) -> str:
        """The training's name in tables."""
        return self.path.name


class Change(NamedTuple):
    """Change of an evaluated metric from the first to the last evaluation, paired by question.

    ``label`` is the training's, or the number of seeds that are averaged.
    """

    label: str
    name: str
    before: Interval
    after: Interval
    difference: Difference


def is_training(path: str | Path) -> bool:
    """Whether a directory is a training's, not a run's."""
    return (Path(path) / METRICS).is_file()


def read_training(path: str | Path) -> TrainingLog:
    """Reads a training's directory, finished or not; InputError if it is none, or is damaged."""
    head, file = read_run(path), Path(path) / METRICS
    if not file.is_file():
        raise InputError(f"{path} is not a training's directory: it holds no {METRICS}")
    steps = read_steps(file)
    if not steps:
        raise InputError(f"{path} has no step yet.")
    return TrainingLog(Path(path), head.config, head.environments, tuple(steps))


def evaluations(training: TrainingLog) -> dict[str, list[tuple[int, Float[np.ndarray, " q"]]]]:
    """For each evaluated metric, the steps and its values for all questions."""
    by_name: dict[str, list[tuple[int, Any]]] = {}
    for line in training.steps:
        for name, values in line.get("each", {}).items():
            by_name.setdefault(name, []).append((line["step"], np.array(values, np.float64)))
    return by_name


def is_share(name: str, trainings: Sequence[TrainingLog]) -> bool:
    """Whether a metric is shown in percent: all its values are between 0 and 1."""
    scores = [values for training in trainings for _, values in evaluations(training).get(name, ())]
    defined = [values[~np.isnan(values)] for values in scores]
    return name not in _PLAIN and all(np.all((some >= 0) & (some <= 1)) for some in defined)


def changes(trainings: Sequence[TrainingLog]) -> list[Change]:
    """First against last evaluation, for each training and for seeds together.

    Trainings whose settings differ only in the seed are averaged question by question: the
    interval is then over questions, for these seeds.
    """
    rows = [change for log in trainings for change in _changes(log.label, [evaluations(log)])]
    for group in alike(trainings):
        if len(group) > 1:
            rows += _changes(f"{len(group)} seeds", [evaluations(log) for log in group])
    return rows


def alike(trainings: Sequence[TrainingLog]) -> list[list[TrainingLog]]:
    """Groups of trainings whose settings differ only in the seed."""
    groups: dict[str, list[TrainingLog]] = {}
    for training in trainings:
        plain = json.loads(json.dumps(training.config))
        plain.get("training", {}).get("training", {}).pop("seed", None)
        groups.setdefault(json.dumps(plain, sort_keys=True), []).append(training)
    return list(groups.values())


def _changes(label: str, trainings: Sequence[Mapping[str, Any]]) -> list[Change]:
    lines = []
    for name in trainings[0]:
        if all(len(evaluated.get(name, ())) > 1 for evaluated in trainings):
            before = np.mean([evaluated[name][0][1] for evaluated in trainings], axis=0)
            after = np.mean([evaluated[name][-1][1] for evaluated in trainings], axis=0)
            difference = paired_difference(after, before)
            lines.append(Change(label, name, interval(before), interval(after), difference))
    return lines
