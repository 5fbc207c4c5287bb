"""Training of RRR's rewriter by PPO: its queries are rewarded by passages found and answers read.

A rewriter that was warmed up on another model's queries writes queries for a question; search and a
frozen reader follow, as in trainable RRR.

The directory of the job holds metrics.jsonl with a line for each step, every text with its queries
and rewards in rollouts.jsonl, the checkpoints, the trained rewriter in ``optimizer``, and metrics
of the held-out questions in curves.jsonl and ppo.jsonl (`jaxrag.methods.errr.ppo.figures`).

Source: Ma et al. (2023); docs/methods, "ERRR: PPO".
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

from jaxrag.core.checks import check_choices, check_limits, check_range
from jaxrag.core.store import Store, store_path
from jaxrag.data.dataset import DataSettings
from jaxrag.data.leakage import Leakage, dataset_without_leaks, evaluated_sets, write_trained_on
from jaxrag.engines.language_model import LanguageModel
from jaxrag.methods.errr import queries, rrr
from jaxrag.methods.errr.ppo.figures import evaluation_of, over_seeds
from jaxrag.methods.errr.ppo.rewards import Rewards, Worth, usable
from jaxrag.models.processes import is_first
from jaxrag.runs.job import Outcome, job_directory, trained
from jaxrag.runs.loading import check_model, describe_job, load_data, load_model
from jaxrag.runs.parts import open_index
from jaxrag.runs.run import Run
from jaxrag.steps.tools import LanguageModelTool, RerankerTool, RetrieverTool, Tools
from jaxrag.training.loop import Evaluation
from jaxrag.training.ppo import training as ppo
from jaxrag.training.ppo.rollouts import PPOExample
from jaxrag.training.ppo.step import PPOTraining
from jaxrag.training.student.checkpoint import OPTIMIZER, load_student, write_student
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class TrainRrr:
    """Trains RRR's rewriter.

    Attributes:
      run: reader, index and training questions; its method is `jaxrag.methods.errr.rrr`, whose
        rewriter, a `queries.Trained`, gives its input and the most queries.
      evaluation_data: held-out questions, over the same passages.
      checkpoint: the initial rewriter: a directory of a T5 or of a decoder, such as
        `jaxrag.methods.errr.student` writes.
      max_source, max_target: most tokens of its input and output.
      evaluation_limit: how many of the held-out questions, from the first; 0 is all.
      dtype: "float32" or "bfloat16"; "" is the first on CPUs, the second on accelerators.
      leakage: see `jaxrag.data.leakage`.
      seeds: number of trainings, with consecutive seeds from ``training.seed``. Each of several has
        a directory of its own; curves and table are over all.
    """

    run: Run
    evaluation_data: DataSettings
    checkpoint: str = ""
    training: PPOTraining = PPOTraining(evaluate_every=5)
    worth: Worth = Worth()
    max_source: int = 96
    max_target: int = 50
    evaluation_limit: int = 0
    dtype: str = ""
    leakage: Leakage = "refuse"
    seeds: int = 1

    def __post_init__(self) -> None:
        check_choices(self, leakage=Leakage)
        _ = self.rewriter  # refuses another method, or a writer without training
        check_range(evaluation_limit=self.evaluation_limit)
        check_limits(seeds=self.seeds)
        if self.training.evaluate_every < 1:
            raise InputError(
                f"training.evaluate_every is {self.training.evaluate_every}: curves and table show "
                "evaluations, so give the steps between two evaluations."
            )

    @property
    def method(self) -> rrr.Config:
        """The run's method; InputError where it is another than RRR."""
        if not isinstance(self.run.method, rrr.Config):
            raise InputError(f"run.method is {self.run.method.name}; PPO trains that of rrr.")
        return self.run.method

    @property
    def rewriter(self) -> queries.Trained:
        """The rewriter to train; InputError where the reader itself writes the queries."""
        rewriter = self.method.rewriter
        if not isinstance(rewriter, queries.Trained):
            raise InputError(
                f"run.method.rewriter is {type(rewriter).__name__}, which has nothing to train: "
                "give queries.Trained."
            )
        return rewriter

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains a rewriter, or resumes its training.

        The path is that of its checkpoint, or of the directory of all seeds. InputError if data,
        checkpoint or settings do not fit, ``workdir`` is another job's, a question cannot be
        answered, or the loss is NaN.
        """
        return trained(over_seeds(self, workdir, _once))


def _once(job: TrainRrr, workdir: Path) -> Path:
    if not job.checkpoint:
        raise InputError(
            "checkpoint is empty: give --config.checkpoint=DIRECTORY, such as the "
            "one that distillation leaves (configs/errr.py:train_optimizer@SIZE)."
        )
    cache, run = Path(job.run.cache), job.run
    dataset, evaluation_data = load_data(run.data, cache), load_data(job.evaluation_data, cache)
    if evaluation_data.passages.identity != dataset.passages.identity:
        raise InputError(
            f"data is {dataset.name} and evaluation_data is {evaluation_data.name}: they have "
            "different passages. Give both the same corpus."
        )
    evaluated = evaluated_sets((evaluation_data,), (run.data,), cache)
    dataset = dataset_without_leaks(dataset, evaluated, job.leakage)
    check_model(run.model, cache)
    index, model = open_index(run, cache), load_model(run.model, cache)
    lengths = {"max_source": job.max_source, "max_target": job.max_target}
    student = load_student(job.checkpoint, **lengths, dtype=job.dtype or None)
    record = {"training": describe_job(job), "student": student.identity}
    record |= {"language_model": model.identity, "index": index.identity}
    record["data"] = [dataset.identity, evaluation_data.identity]
    tools = Tools(llm=LanguageModelTool(model), retriever=RetrieverTool(index))
    if job.worth.rerank:
        if run.reranker is None:
            raise InputError(
                "worth.rerank rewards a reranker's scores, but the run has none: set run.reranker."
            )
        reranker = RerankerTool(run.reranker.load(lambda: model, cache))
        tools = dataclasses.replace(tools, reranker=reranker)
        record["reranker"] = reranker.identity
    with (
        job_directory(workdir, record) as directory,
        contextlib.closing(Store(store_path(run.store, run.cache))) as store,
    ):
        trained_on = usable(dataset, job.worth, run.limit)
        held_out = usable(evaluation_data, job.worth, job.evaluation_limit)
        gold = {**evaluation_data.gold, **dataset.gold}
        reward = Rewards(job.method, run.live, job.worth, gold, tools, store)
        examples, held_examples = (
            [PPOExample(question, job.rewriter.reads.text(question.text)) for question in some]
            for some in (trained_on, held_out)
        )
        of_policy = evaluation_of(held_examples, reward, tokens=job.max_target)
        of_questions = reward.of_questions(held_out)

        def evaluate(model: LanguageModel, step: int) -> Evaluation:
            return {**of_policy(model, step), **of_questions}

        params = ppo.train(examples, student, reward, job.training, directory, evaluate=evaluate)
        path = directory / OPTIMIZER
        if is_first():
            write_student(path, student, params)
            texts = (question.text for question in trained_on)
            write_trained_on(path, texts, begun_with=job.checkpoint)
        return path
