"""Training R3 from settings: pools, training with a language model, accuracy on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxrag.core.store import Store
from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.engines.language_model import ModelSettings
from jaxrag.methods.r3 import r3 as method
from jaxrag.methods.r3 import training as r3
from jaxrag.methods.r3.batches import Searcher
from jaxrag.methods.r3.judge import Judge, Prepared, prepare
from jaxrag.methods.r3.search import BetaSearch, LateSearch, VectorSearch
from jaxrag.methods.r3.settings import Training
from jaxrag.methods.r3.sidr_job import RETRIEVER
from jaxrag.models.bert.sidr_checkpoint import write_towers
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.semi_parametric import SidrIndex
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs import recall
from jaxrag.runs.job import Outcome, job_directory, trained
from jaxrag.runs.loading import load_data, load_model, open_index_over
from jaxrag.steps.tools import LanguageModelTool, RetrieverTool, Tools
from jaxrag.text.answers import contains
from jaxrag.training.loop import Evaluation
from jaxrag.types import Answer, InputError, Question

POOLS = "pools.jsonl"


@dataclasses.dataclass(frozen=True)
class TrainR3:
    """What R3 is trained on and from.

    Attributes:
      start: the retriever to begin with; its search must be "late".
      data: questions to train on.
      evaluation_data: questions whose accuracy is told on the way, over the same corpus or another.
      model: the language model.
      method: how questions are answered, in training from one passage.
      training: how.
      search: how passages are found in training: "late", R3's; "beta", without re-ranking;
        "reindexed", by vectors that are made anew every ``reindex_every`` steps.
      depth: passages of a pool.
      limit, evaluation_limit: how many questions, from the first; 0 is all.
      cache: where data sets, indexes and the store are kept.
    """

    start: Sidr
    data: DataSettings
    evaluation_data: DataSettings
    model: ModelSettings
    method: method.Config = method.Config()
    training: Training = Training()
    search: Literal["late", "beta", "reindexed"] = "late"
    reindex_every: int = 1000
    depth: int = 100
    limit: int = 0
    evaluation_limit: int = 0
    cache: str = "runs/cache"

    def __post_init__(self) -> None:
        if self.start.search != "late":
            raise InputError(f"start.search is {self.start.search!r}; R3 begins with 'late'.")
        if self.search not in ("late", "beta", "reindexed"):
            raise InputError(f"search is {self.search!r}; there are late, beta and reindexed.")
        if self.depth < 2 or self.reindex_every < 1:
            raise InputError(
                f"depth is {self.depth} and reindex_every {self.reindex_every}: a pool has at "
                "least 2 passages, and at least 1 step lies between two indexings."
            )

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains a retriever, or continues its training; the path is that of the checkpoint.

        Raises:
          InputError: data or settings do not fit, no question can be trained on, ``workdir`` is
            another job's, or the loss is NaN.
        """
        cache = Path(self.cache)
        dataset, evaluation_data = (
            load_data(self.data, cache),
            load_data(self.evaluation_data, cache),
        )
        model = load_model(self.model, cache)
        judge = Judge(
            Tools(llm=LanguageModelTool(model)), self.method.reader, self.method.closed_tokens
        )
        index: Any = open_index_over(self.start, self.data, cache)
        test_index: Any = open_index_over(self.start, self.evaluation_data, cache)
        record = {"training": recall.describe_all(self), "encoder": index.encoder.identity}
        record |= {
            "language_model": model.identity,
            "data": [dataset.identity, evaluation_data.identity],
        }
        with job_directory(workdir, record) as directory:
            store = Store(cache / "store.sqlite")
            try:
                prepared = _pools(self, dataset, index, judge, store, directory / POOLS)
                params = r3.train(
                    prepared,
                    dataset.passages,
                    index.encoder,
                    _searcher(self, index, directory),
                    judge,
                    store,
                    self.training,
                    directory,
                    evaluate=AccuracyEvaluation(
                        self, evaluation_data, test_index, judge.tools.llm, store
                    ),
                )
            finally:
                store.close()
            source = self.start.located()
            write_towers(directory / RETRIEVER, index.encoder.module, params, begun_with=source)
        return trained(directory / RETRIEVER)


def _pools(
    job: TrainR3, dataset: Dataset, index: SidrIndex, judge: Judge, store: Store, path: Path
) -> list[Prepared]:
    """The offline stage, over what the retriever finds before its training."""
    questions = dataset.questions[: job.limit or None]
    depth = min(job.depth, len(dataset.passages))
    deep = index.with_encoder(index.encoder, m=depth)
    rankings = deep.search_texts([question.text for question in questions], depth)
    pairs = zip(questions, rankings, strict=True)
    found = {question.id: ranking.ids for question, ranking in pairs}
    return prepare(questions, found, dataset.passages, judge, store, path)


def _searcher(job: TrainR3, index: SidrIndex, directory: Path) -> Searcher:
    tokens, m = index.index, min(job.start.m, len(index.passages))
    assert isinstance(tokens, BagOfTokens)  # since start.search is late
    if job.search == "beta":
        return BetaSearch(tokens, m)
    if job.search == "late":
        return LateSearch(tokens, index.passages, m)
    return VectorSearch(index.encoder, index.passages, directory / "indexes", job.reindex_every, m)


@dataclasses.dataclass(frozen=True)
class AccuracyEvaluation:
    """Tells how well questions are answered with an encoder; the store knows what was asked."""

    job: TrainR3
    dataset: Dataset
    index: SidrIndex
    llm: LanguageModelTool
    store: Store

    def __call__(self, encoder: SidrEncoder, step: int) -> Evaluation:
        """Of each question "rag_accuracy", whether the answer holds a gold answer, and
        "ir_accuracy", whether the first passage does."""
        tools = Tools(llm=self.llm, retriever=RetrieverTool(self.index.with_encoder(encoder)))
        questions = self.dataset.questions[: self.job.evaluation_limit or None]
        judge = Judge(tools, self.job.method.reader)
        answers = dict(judge.run(self.store, ((q.id, self._task(q, tools)) for q in questions)))
        first = self.dataset.passages.find([_first(answers[q.id]) for q in questions])
        return {
            "rag_accuracy": np.array([contains(answers[q.id].text, q.answers) for q in questions]),
            "ir_accuracy": recall.ir_accuracy(questions, first),
        }

    def _task(self, question: Question, tools: Tools) -> Callable[[], Coroutine[Any, Any, Answer]]:
        return lambda: self.job.method.answer(question, tools)


def _first(answer: Answer) -> str:
    """The id of the first passage that was read."""
    return answer.trace["selected"]["ids"][0]
