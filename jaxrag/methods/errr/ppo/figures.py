"""Curves and table of trainings by PPO: metrics of held-out questions, with intervals.

With several seeds, the value of a question is its mean over them, so that intervals are over
questions, for these seeds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.core import jsonl
from jaxrag.engines.language_model import LanguageModel
from jaxrag.evaluation.significance import interval, plain
from jaxrag.evaluation.training_log import changes, evaluations, read_training
from jaxrag.models.processes import is_first
from jaxrag.training.loop import Evaluation
from jaxrag.training.ppo.rollouts import PPOExample, Reward

CURVES, TABLE = "curves.jsonl", "ppo.jsonl"
"""Names of curves and table in the directory of a job."""


def evaluation_of(
    held: Sequence[PPOExample], reward: Reward, *, tokens: int
) -> Callable[[LanguageModel, int], Evaluation]:
    """An evaluation of a policy's greedy texts for held-out questions: rewards and metrics.

    ``tokens`` is the limit of new tokens of a text.
    """

    def evaluate(model: LanguageModel, step: int) -> Evaluation:
        texts = model.generate([example.source for example in held], max_new_tokens=tokens)
        rewards, records = reward([example.question for example in held], texts)
        return columns(rewards, records)

    return evaluate


def columns(rewards: Sequence[float], records: Sequence[Any]) -> dict[str, Any]:
    """Rewards, and the numbers of their records by name; NaN where a record lacks one."""
    numbers = [
        {name: float(value) for name, value in record.items() if isinstance(value, int | float)}
        for record in records
    ]
    names = dict.fromkeys(name for record in numbers for name in record)
    metrics = {name: np.array([record.get(name, np.nan) for record in numbers]) for name in names}
    return {"reward": np.asarray(rewards, np.float64)} | metrics


def over_seeds(job: Any, workdir: str | Path, execute: Callable[[Any, Path], Path]) -> Path:
    """Executes a job for each of its seeds, and writes curves and table of all of them.

    ``job`` has ``seeds``, how many, and ``training.seed``, the first. ``execute`` makes of the job
    of one seed and a directory the path of the trained model. That of a single seed is returned;
    several have subdirectories of ``workdir``, which is then returned.
    """
    if job.seeds == 1:
        trained = execute(job, Path(workdir))
        write(Path(workdir), [Path(workdir)])
        return trained
    parts = []
    for number in range(job.seeds):
        seed = job.training.seed + number
        training = dataclasses.replace(job.training, seed=seed)
        parts.append(Path(workdir) / f"seed-{seed}")
        execute(dataclasses.replace(job, seeds=1, training=training), parts[-1])
    write(Path(workdir), parts)
    return Path(workdir)


def write(directory: Path, trainings: Sequence[Path]) -> None:
    """Curves and table of trainings that differ in the seed alone.

    A line of the curves has "figure", "step" and [mean, low, high, n]; a row of the table "figure",
    the same "before" and "after" training, "seeds", and the "difference", [mean, low, high, n, p].
    """
    if not is_first():
        return
    records = [read_training(path) for path in trainings]
    curves = [evaluations(record) for record in records]
    lines = []
    for name, points in curves[0].items():
        for place, (step, _) in enumerate(points):
            mean = np.mean([curve[name][place][1] for curve in curves], axis=0)
            lines.append({"figure": name, "step": step, "mean": plain(interval(mean))})
    every = changes(records)
    rows = [
        {"figure": change.name, "seeds": len(records), "before": plain(change.before),
         "after": plain(change.after), "difference": plain(change.difference)}
        for change in every[-len(curves[0]):]
    ]  # fmt: skip
    jsonl.write(directory / CURVES, lines)
    jsonl.write(directory / TABLE, rows)
