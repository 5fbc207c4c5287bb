"""Training RRR's rewriter by PPO: the reader's answers, and what is found, reward its queries.

Ma et al. (2023); METHODS section 4.4. A rewriter that was warmed up on another model's queries
writes queries for a question; the rest of the run is trainable RRR as it stands: search, and a
reader that is not trained. All that the reader and the index are asked goes through the scheduler
and the store, so a step that is repeated pays nothing twice.

The directory of the job holds metrics.jsonl with a line for each step, every text with its queries
and rewards in rollouts.jsonl, the checkpoints, the trained rewriter in ``optimizer``, and the
figures of the questions held out in curves.jsonl and ppo.jsonl (`jaxrag.jobs.ppo_figures`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from jaxrag.data.dataset import Dataset
from jaxrag.engines.store import Store
from jaxrag.jobs import recall
from jaxrag.jobs.directory import job_directory
from jaxrag.jobs.ppo_figures import check_seeds, over_seeds, watch_of
from jaxrag.jobs.ppo_rewards import Rewards, Worth, usable
from jaxrag.loading import DataSettings, load_data, load_model
from jaxrag.methods import queries, rrr
from jaxrag.methods.language_model_tool import LanguageModelTool
from jaxrag.methods.search_tools import RetrieverTool
from jaxrag.methods.tools import Tools
from jaxrag.run import Run, open_index, store_path
from jaxrag.training import ppo
from jaxrag.training.loop import Watched
from jaxrag.training.ppo_rollouts import Example
from jaxrag.training.ppo_settings import Training
from jaxrag.training.students import Student, load_student, write_student
from jaxrag.types import InputError

OPTIMIZER = "optimizer"
"""What the trained rewriter is called in the directory of a job."""


@dataclasses.dataclass(frozen=True)
class TrainRrr:
    """What a rewriter is trained on and from.

    Attributes:
      run: reader, index and the questions to train on; its method is `jaxrag.methods.rrr`, whose
        rewriter, a `queries.Trained`, says what is read and how queries are read out.
      watched: questions held out, over the same passages.
      checkpoint: the rewriter to begin with: a directory of a T5 or of a decoder, such as
        `jaxrag.jobs.query_optimizer` leaves.
      training: how.
      worth: the reward.
      max_source, max_target: most tokens of what it reads and writes.
      watched_limit: how many of the questions held out, from the first; 0 is all.
      dtype: "float32" or "bfloat16"; "" is the first on CPUs, the second on accelerators.
      seeds: how many times it is trained, from ``training.seed``; of more than one each has a
        directory of its own, and curves and table are of all.
    """

    run: Run
    watched: DataSettings
    checkpoint: str = ""
    training: Training = Training(watch_every=5)
    worth: Worth = Worth()
    max_source: int = 96
    max_target: int = 50
    watched_limit: int = 0
    dtype: str = ""
    seeds: int = 1

    def __post_init__(self) -> None:
        method = self.run.method
        if not (isinstance(method, rrr.Config) and isinstance(method.rewriter, queries.Trained)):
            raise InputError(
                "run.method is to be rrr.Config with a rewriter that is queries.Trained: that is "
                "what PPO trains."
            )
        if self.watched_limit < 0:
            raise InputError(f"watched_limit is {self.watched_limit}; 0 (all) or more is needed.")
        check_seeds(self.seeds, self.training.watch_every)


def execute(job: TrainRrr, workdir: str | Path) -> Path:
    """Trains, or goes on with, a rewriter; returns its directory, or that of all seeds.

    Raises:
      InputError: data, checkpoint or settings do not fit, ``workdir`` is another job's, a question
        cannot be answered, or the loss is NaN.
    """
    return over_seeds(job, workdir, _once)


def _once(job: TrainRrr, workdir: Path) -> Path:
    if not job.checkpoint:
        raise InputError(
            "No rewriter to begin with is named: give --config.checkpoint=DIRECTORY, such as the "
            "one that distillation leaves (configs/train_query_optimizer.py)."
        )
    cache, run = Path(job.run.cache), job.run
    dataset, watched = load_data(run.data, cache), load_data(job.watched, cache)
    if watched.passages.identity != dataset.passages.identity:
        raise InputError(
            f"{dataset.name}, to train on, and {watched.name}, to watch, are over different "
            "passages: give both the same corpus."
        )
    model, index = load_model(run.model, cache), open_index(run, cache)
    student = load_student(
        job.checkpoint,
        max_source=job.max_source,
        max_target=job.max_target,
        dtype=job.dtype or None,
    )
    record = {"training": recall.describe_all(job), "student": student.identity}
    record |= {"language_model": model.identity, "index": index.identity}
    record["data"] = [dataset.identity, watched.identity]
    tools = Tools(llm=LanguageModelTool(model), retriever=RetrieverTool(index))
    with job_directory(workdir, record) as directory:
        store = Store(store_path(run))
        try:
            params = _train(job, dataset, watched, student, tools, store, directory)
        finally:
            store.close()
        return write_student(directory / OPTIMIZER, student, params)


def _train(
    job: TrainRrr,
    dataset: Dataset,
    watched: Dataset,
    student: Student,
    tools: Tools,
    store: Store,
    directory: Path,
) -> ppo.Params:
    known = usable(dataset, job.worth, job.run.limit)
    held = usable(watched, job.worth, job.watched_limit)
    rewriter: queries.Trained = job.run.method.rewriter
    gold = {**watched.gold, **dataset.gold}
    reward = Rewards(job.run, job.worth, dataset, gold, tools, store)
    examples, others = (
        [Example(question, rewriter.input(question.text)) for question in some]
        for some in (known, held)
    )
    own = watch_of(others, reward, tokens=job.max_target)
    itself = reward.of_questions(held)

    def watch(model: Any, step: int) -> Watched:
        return {**own(model, step), **itself}

    return ppo.train(examples, student, reward, job.training, directory, watch=watch)
