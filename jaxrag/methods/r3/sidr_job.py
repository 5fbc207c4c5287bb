"""Training SiDR from settings: data, negatives, checkpoints, recall on the way, a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.methods.r3 import sidr_training as sidr
from jaxrag.models.bert.sidr_checkpoint import write_towers
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.retrieval.settings import IndexSettings
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.semi_parametric import SidrIndex
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs import recall
from jaxrag.runs.job import Outcome, job_directory, trained
from jaxrag.runs.loading import load_data, open_index_over
from jaxrag.training.loop import Evaluation
from jaxrag.types import InputError

RETRIEVER = "retriever"
"""What the trained checkpoint is called in the directory of a job."""


@dataclasses.dataclass(frozen=True)
class TrainSidr:
    """What SiDR is trained on and from.

    Attributes:
      start: the checkpoint to begin with, lengths, and the search whose recall is told on the way.
      data: questions to train on, all over one corpus.
      negatives: the retriever that finds hard negatives, such as BM25.
      training: how.
      evaluation_data: questions whose recall is told on the way, over the same corpus or another.
      evaluation_limit: how many of each.
      depth: passages looked at for negatives.
      distant: see `jaxrag.methods.r3.sidr_training.mine`.
      cache: where data sets and indexes are kept.
    """

    start: Sidr
    data: tuple[DataSettings, ...]
    negatives: IndexSettings
    training: sidr.Training = sidr.Training()
    evaluation_data: tuple[DataSettings, ...] = ()
    evaluation_limit: int = 200
    depth: int = 100
    distant: int = 1
    cache: str = "runs/cache"

    def __post_init__(self) -> None:
        if not self.data:
            raise InputError("Training SiDR wants data: there is none in its settings.")

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains a SiDR, or continues its training; the path is that of the checkpoint.

        Raises:
          InputError: data or settings do not fit, ``workdir`` is another job's, or the loss is NaN.
        """
        cache = Path(self.cache)
        datasets = [load_data(settings, cache) for settings in self.data]
        encoder = self.start.encoder()
        record = {"training": recall.describe_all(self), "encoder": encoder.identity}
        record["data"] = [dataset.identity for dataset in datasets]
        with job_directory(workdir, record) as directory:
            examples = _examples(self, datasets, cache)
            evaluate = RecallEvaluation.over(self, cache) if self.evaluation_data else None
            params = sidr.train(
                examples, datasets[0].passages, encoder, self.training, directory, evaluate=evaluate
            )
            if jax.process_index() == 0:
                source = self.start.located()
                write_towers(directory / RETRIEVER, encoder.module, params, begun_with=source)
        return trained(directory / RETRIEVER)


def _examples(job: TrainSidr, datasets: Sequence[Dataset], cache: Path) -> list[sidr.Example]:
    if len({dataset.passages.identity for dataset in datasets}) > 1:
        names = ", ".join(dataset.name for dataset in datasets)
        raise InputError(f"The data sets {names} are over different corpora; give them one.")
    retriever = open_index_over(job.negatives, job.data[0], cache)
    if not isinstance(retriever, TextRetriever):
        raise InputError(f"Negatives come from a retriever of texts; {job.negatives.name} is none.")
    examples = []
    for dataset in datasets:
        passages = dataset.passages
        gold = {q: [passages.row_of(i) for i in ids] for q, ids in dataset.gold.items()}
        examples += sidr.mine(
            dataset.questions, gold, passages, retriever, depth=job.depth, distant=job.distant
        )
    return examples


@dataclasses.dataclass(frozen=True)
class RecallEvaluation:
    """Tells the recall of an encoder on some data sets."""

    sets: tuple[tuple[Dataset, SidrIndex], ...]
    limit: int

    @classmethod
    def over(cls, job: TrainSidr, cache: Path) -> RecallEvaluation:
        """Opens the indexes of the evaluation data."""
        sets = []
        for settings in job.evaluation_data:
            index: Any = open_index_over(job.start, settings, cache)
            sets.append((load_data(settings, cache), index))
        return cls(tuple(sets), job.evaluation_limit)

    def __call__(self, encoder: SidrEncoder, step: int) -> Evaluation:
        """Recall@1, 5 and 20 and IR accuracy of each question, by data set."""
        found: dict[str, Any] = {}
        for dataset, index in self.sets:
            here = index.with_encoder(encoder)
            columns = recall.scores(here, dataset, recall.known(dataset, self.limit), (1, 5, 20))
            found |= {f"{dataset.name} {name}": values for name, values in columns.items()}
        return found
