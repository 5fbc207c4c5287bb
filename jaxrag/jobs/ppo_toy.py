"""PPO on a small task, from random weights: whether it raises the reward, for several seeds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxrag.jobs import recall
from jaxrag.jobs.directory import job_directory
from jaxrag.jobs.ppo_figures import check_seeds, over_seeds, watch_of
from jaxrag.training import ppo, ppo_toy
from jaxrag.training.ppo_settings import KlControl, Training
from jaxrag.training.students import write_student
from jaxrag.types import InputError

POLICY = "optimizer"
"""What the trained policy is called in the directory of a job."""

LEARNS = Training(
    steps=40,
    rollouts=128,
    batch=32,
    passes=4,
    discount=1.0,
    learning_rate=5e-4,
    value_learning_rate=1e-2,
    clip_norm=1.0,
    kl=KlControl(0.01, 1.0),
    save_every=20,
    watch_every=2,
)
"""What this task is learned with on 2 cores in a few minutes."""


@dataclasses.dataclass(frozen=True)
class TrainToy:
    """PPO on `jaxrag.training.ppo_toy`.

    Attributes:
      training: how; its seed is that of the questions and of the weights, too.
      questions, held_out: how many to train on, and how many others to watch.
      warmup: steps of learning by examples before it.
      seeds: how many times, from ``training.seed``; of more than one each has a directory of its
        own, and curves and table are of all.
    """

    training: Training = LEARNS
    questions: int = 512
    held_out: int = 200
    warmup: int = 300
    seeds: int = 1

    def __post_init__(self) -> None:
        if min(self.questions, self.held_out, self.warmup) < 1:
            raise InputError(
                f"questions is {self.questions}, held_out {self.held_out} and warmup "
                f"{self.warmup}; each is to be at least 1."
            )
        check_seeds(self.seeds, self.training.watch_every)


def execute(job: TrainToy, workdir: str | Path) -> Path:
    """Trains, or goes on; returns the directory of the trained policy, or of all seeds.

    Raises:
      InputError: ``workdir`` is another job's, or the loss is NaN.
    """
    return over_seeds(job, workdir, _once)


def _once(job: TrainToy, workdir: Path) -> Path:
    with job_directory(workdir, {"training": recall.describe_all(job)}) as directory:
        seed, count = job.training.seed, job.questions
        student = ppo_toy.warmed_up(directory / "tokenizer", seed=seed, steps=job.warmup)
        drawn = ppo_toy.examples(count + job.held_out, seed=seed + 2)
        watch = watch_of(drawn[count:], ppo_toy.reward, tokens=student.max_target)
        params = ppo.train(
            drawn[:count], student, ppo_toy.reward, job.training, directory, watch=watch
        )
        return write_student(directory / POLICY, student, params)
