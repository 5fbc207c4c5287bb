"""Training SiDR from settings: data, negatives, checkpoints, recall on the way, a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrag.data.dataset import Dataset
from jaxrag.jobs import recall
from jaxrag.jobs.directory import job_directory
from jaxrag.loading import DataSettings, IndexSettings, load_data, open_index_over
from jaxrag.models.sidr_checkpoint import write_towers
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.retrieval.semi_parametric import SidrIndex
from jaxrag.retrieval.sidr import SidrEncoder
from jaxrag.settings.sidr import Sidr
from jaxrag.training import sidr
from jaxrag.training.loop import Watched
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
      watched: questions whose recall is told on the way, over the same corpus or another.
      watched_limit: how many of each.
      depth: passages looked at for negatives.
      distant: see `jaxrag.training.sidr.mine`.
      cache: where data sets and indexes are kept.
    """

    start: Sidr
    data: tuple[DataSettings, ...]
    negatives: IndexSettings
    training: sidr.Training = sidr.Training()
    watched: tuple[DataSettings, ...] = ()
    watched_limit: int = 200
    depth: int = 100
    distant: int = 1
    cache: str = "runs/cache"

    def __post_init__(self) -> None:
        if not self.data:
            raise InputError("Training SiDR wants data: there is none in its settings.")


def execute(job: TrainSidr, workdir: str | Path) -> Path:
    """Trains, or goes on with, a SiDR; returns the directory of the trained checkpoint.

    Raises:
      InputError: data or settings do not fit, ``workdir`` is another job's, or the loss is NaN.
    """
    cache = Path(job.cache)
    datasets = [load_data(settings, cache) for settings in job.data]
    encoder = job.start.encoder()
    record = {"training": recall.describe_all(job), "encoder": encoder.identity}
    record["data"] = [dataset.identity for dataset in datasets]
    with job_directory(workdir, record) as directory:
        examples = _examples(job, datasets, cache)
        watch = Watch.over(job, cache) if job.watched else None
        params = sidr.train(
            examples, datasets[0].passages, encoder, job.training, directory, watch=watch
        )
        if jax.process_index() == 0:
            source = job.start.located()
            write_towers(directory / RETRIEVER, encoder.module, params, begun_with=source)
    return directory / RETRIEVER


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
class Watch:
    """Tells the recall of an encoder on some data sets."""

    sets: tuple[tuple[Dataset, SidrIndex], ...]
    limit: int

    @classmethod
    def over(cls, job: TrainSidr, cache: Path) -> Watch:
        """Opens the indexes of the data sets that a job watches."""
        sets = []
        for settings in job.watched:
            index: Any = open_index_over(job.start, settings, cache)
            sets.append((load_data(settings, cache), index))
        return cls(tuple(sets), job.watched_limit)

    def __call__(self, encoder: SidrEncoder, step: int) -> Watched:
        """Recall@1, 5 and 20 and IR accuracy of each question, by data set."""
        found: dict[str, Any] = {}
        for dataset, index in self.sets:
            here = index.with_encoder(encoder)
            columns = recall.scores(here, dataset, recall.known(dataset, self.limit), (1, 5, 20))
            found |= {f"{dataset.name} {name}": values for name, values in columns.items()}
        return found
