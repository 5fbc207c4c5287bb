"""The jobs that train SiDR, DPR and R3: data, training, evaluations on the way, a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax
import numpy as np

from jaxrag.core.checks import check_choices, check_limits, check_range
from jaxrag.core.progress import progress
from jaxrag.core.store import CACHE, Store, store_path
from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.data.leakage import (
    Leakage,
    check_evaluation,
    dataset_without_leaks,
    evaluated_sets,
    write_trained_on,
)
from jaxrag.engines.language_model import ModelSettings
from jaxrag.evaluation.metrics import question_scores
from jaxrag.methods.r3 import r3, supervised_training, training
from jaxrag.methods.r3.contrastive import Evaluate, TowersEncoder, train_towers
from jaxrag.methods.r3.environment import Environment, make_pools
from jaxrag.methods.r3.search import BetaSearch, LateSearch, StepIndex, VectorSearch
from jaxrag.methods.r3.settings import R3Training, SupervisedTraining, Update
from jaxrag.models.bert.towers import Towers
from jaxrag.models.processes import is_first, shared
from jaxrag.retrieval.dense.dpr import Dpr
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.retrieval.settings import IndexSettings
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.semi_parametric import SidrIndex
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs import retriever_comparison as comparison
from jaxrag.runs.job import Outcome, job_directory, trained
from jaxrag.runs.loading import check_model, describe_job, load_data, load_model, open_index_over
from jaxrag.runs.run import Run
from jaxrag.runs.shares import share_directory
from jaxrag.steps.episode import answer_question
from jaxrag.steps.tools import LanguageModelTool, RetrieverTool, Tools
from jaxrag.training.loop import Evaluation
from jaxrag.types import Answer, InputError, Question

RETRIEVER, POOLS = "retriever", "pools.jsonl"
"""Names of the trained checkpoint and of the pools in the directory of a job."""

_FOUND = 20  # passages that DPR retrieves in R3's training, as many as late search reranks

TrainingSearch = Literal["late", "beta", "reindexed"]


@dataclasses.dataclass(frozen=True)
class _Supervised:
    """Trains a retriever by gold passages; see `TrainSidr` and `TrainDpr`.

    Attributes:
      data: training questions, all over one corpus.
      negatives: the retriever of hard negatives, such as BM25.
      evaluation_data: questions whose recall is evaluated, over the same corpus or another.
      evaluation_limit: how many of each.
      evaluated_later: further data that the retriever, or what it is the start of, is evaluated on;
        ``leakage`` counts their questions, too.
      depth: passages retrieved for negatives.
      distant: see `jaxrag.methods.r3.supervised_training.mine`.
      leakage: what happens to training questions that are among the evaluated ones, or in the split
        that papers evaluate, see `jaxrag.data.leakage`.
    """

    retriever_name: ClassVar[str]
    """What is trained, for the progress line."""

    start: Any
    data: tuple[DataSettings, ...]
    negatives: IndexSettings
    training: SupervisedTraining = SupervisedTraining()
    evaluation_data: tuple[DataSettings, ...] = ()
    evaluation_limit: int = 200
    evaluated_later: tuple[DataSettings, ...] = ()
    depth: int = 100
    distant: int = 1
    leakage: Leakage = "refuse"
    cache: str = CACHE

    def __post_init__(self) -> None:
        check_choices(self, leakage=Leakage)
        if not self.data:
            raise InputError("data is empty: give training questions.")

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains a retriever, or resumes its training; the path is that of the checkpoint.
        InputError if data or settings do not fit, evaluated questions are trained on, ``workdir``
        is another job's, or the loss is NaN.
        """
        cache = Path(self.cache)
        evaluation = [load_data(settings, cache) for settings in self.evaluation_data]
        later = [load_data(settings, cache) for settings in self.evaluated_later]
        evaluated = evaluated_sets([*evaluation, *later], self.data, cache)
        for dataset in evaluation:
            _check_start(self.start, dataset, self.leakage)
        datasets = [
            dataset_without_leaks(load_data(settings, cache), evaluated, self.leakage)
            for settings in self.data
        ]
        encoder = self.start.encoder()
        record = {"training": describe_job(self), "encoder": encoder.identity}
        record["data"] = [dataset.identity for dataset in datasets]
        with job_directory(workdir, record) as directory:
            examples = self._examples(datasets)
            write = _writer(directory, encoder, self.start, [one.question for one in examples])
            params = train_towers(
                encoder,
                supervised_training.batches(examples, datasets[0].passages, encoder, self.training),
                self.training,
                directory,
                questions=len(examples),
                name=f"training {self.retriever_name}",
                evaluate=self._evaluation(),
                keep=write,
            )
            write(params)
        return trained(directory / RETRIEVER)

    def _evaluation(self) -> Evaluate | None:
        return None

    def _examples(self, datasets: Sequence[Dataset]) -> list[supervised_training.Example]:
        if len({dataset.passages.identity for dataset in datasets}) > 1:
            names = ", ".join(dataset.name for dataset in datasets)
            raise InputError(f"The data sets {names} are over different corpora; give them one.")
        retriever = open_index_over(self.negatives, self.data[0], Path(self.cache))
        if not isinstance(retriever, TextRetriever):
            raise InputError(
                f"negatives is {self.negatives.name}, which does not rank texts: give another "
                "retriever, such as Bm25."
            )
        examples = []
        for dataset in datasets:
            passages = dataset.passages
            gold = {q: [*passages.rows_of(ids).values()] for q, ids in dataset.gold.items()}
            examples += supervised_training.mine(
                dataset.questions, gold, passages, retriever, depth=self.depth, distant=self.distant
            )
        return examples


@dataclasses.dataclass(frozen=True)
class TrainSidr(_Supervised):
    """Trains SiDR.

    Attributes:
      start: the initial checkpoint, lengths of texts, and the search whose recall is evaluated.
    """

    retriever_name = "SiDR"

    start: Sidr

    def _evaluation(self) -> Evaluate | None:
        """Recall@1, 5 and 20 and IR accuracy of each question, by data set."""
        if not self.evaluation_data:
            return None
        cache = Path(self.cache)
        datasets = [load_data(settings, cache) for settings in self.evaluation_data]
        known = [comparison.known(dataset, self.evaluation_limit) for dataset in datasets]
        indexes = [
            open_index_over(self.start, settings, cache) for settings in self.evaluation_data
        ]

        def evaluate(encoder: SidrEncoder, step: int) -> Evaluation:
            metrics: dict[str, Any] = {}
            for dataset, questions, index in zip(datasets, known, indexes, strict=True):
                current: Any = index
                current = current.with_encoder(encoder)
                columns = comparison.scores(current, dataset, questions, (1, 5, 20))
                metrics |= {f"{dataset.name} {name}": values for name, values in columns.items()}
            return metrics

        return evaluate


@dataclasses.dataclass(frozen=True)
class TrainDpr(_Supervised):
    """Trains DPR; the checkpoint is an index's, ``Dpr(DIRECTORY)``.

    Attributes:
      start: the initial checkpoint and the length of texts.
    """

    retriever_name = "DPR"

    start: Dpr
    training: SupervisedTraining = SupervisedTraining(update=Update(form="dpr"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evaluation_data:
            raise InputError(
                "evaluation_data is set: DPR is not evaluated in its training, which would encode "
                "the corpus each time; compare retrievers afterwards (configs/retrieval.py)."
            )


def kept(share: float) -> str:
    """Name of the checkpoint after a share of the training, in the directory of a job."""
    return RETRIEVER if share == 1 else f"{RETRIEVER}-{100 * share:g}"


def _writer(
    directory: Path, encoder: TowersEncoder, start: Sidr | Dpr, questions: Sequence[str]
) -> Callable[..., None]:
    """Writes a checkpoint with the questions that it was trained on, once of several processes."""

    def write(params: Towers, share: float = 1.0) -> None:
        if is_first():
            path = directory / kept(share)
            encoder.write(path, params, begun_with=start.located())
            write_trained_on(path, questions, begun_with=start.checkpoint)

    return write


def _check_start(start: Sidr | Dpr, evaluation_data: Dataset, leakage: Leakage) -> None:
    """Refuses an initial checkpoint that was trained on evaluated questions."""
    checkpoints = [("config.start.checkpoint", start.checkpoint)]
    questions, name = evaluation_data.questions, evaluation_data.label
    check_evaluation(questions, checkpoints, name=name, leakage=leakage)


def _own(directory: Path) -> Path:
    """Where this process writes what it computes alone; of the first one, the job's directory."""
    number = jax.process_index()
    return share_directory(directory, number) if number else directory


@dataclasses.dataclass(frozen=True)
class TrainR3:
    """Trains R3.

    Attributes:
      start: the initial retriever: SiDR, whose search must be "late"; or DPR, whose ``search`` must
        be "reindexed".
      evaluation_data: questions whose accuracy is evaluated, over the same corpus or another.
      method: how questions are answered; training reads one passage at a time.
      search: how passages are retrieved in training: "late", R3's; "beta", without reranking;
        "reindexed", by passage vectors that are recomputed every ``reindex_every`` steps.
      reindex_epochs: the same in epochs, passes over the questions with pools; 0 uses the steps.
      depth: passages of a pool.
      limit, evaluation_limit: how many questions, from the first; 0 is all.
      leakage: as in `TrainSidr`.
      cache: directory of data sets, indexes and the store.
      store: file of the store; "" is one in the cache, "memory" keeps it in memory. Processes on
        several hosts need one each, on a local disk.
    """

    start: Sidr | Dpr
    data: DataSettings
    evaluation_data: DataSettings
    model: ModelSettings
    method: r3.Config = r3.Config()
    training: R3Training = R3Training()
    search: TrainingSearch = "late"
    reindex_every: int = 1000
    reindex_epochs: float = 0.0
    depth: int = 100
    limit: int = 0
    evaluation_limit: int = 0
    leakage: Leakage = "refuse"
    cache: str = CACHE
    store: str = ""

    def __post_init__(self) -> None:
        check_choices(self, search=TrainingSearch, leakage=Leakage)
        if isinstance(self.start, Dpr):
            if self.search != "reindexed":
                raise InputError(
                    f"search is {self.search!r}; DPR has vectors only, so it needs 'reindexed'."
                )
        elif self.start.search != "late":
            raise InputError(f"start.search is {self.start.search!r}; R3 needs 'late'.")
        check_limits(reindex_every=self.reindex_every)
        check_range(reindex_epochs=self.reindex_epochs)
        if self.depth < 2:
            raise InputError(f"depth is {self.depth}; a pool needs at least 2 passages.")

    def execute(self, workdir: str | Path) -> Outcome:
        """Trains a retriever, or resumes its training; the path is that of the checkpoint.

        Of several processes (`jax.distributed`) each has a language model, which reads for its
        share of the questions. InputError if data or settings do not fit, no question can be
        trained on, evaluated questions are trained on, ``workdir`` is another job's, or the loss is
        NaN.
        """
        cache = Path(self.cache)
        evaluation_data = load_data(self.evaluation_data, cache)
        _check_start(self.start, evaluation_data, self.leakage)
        evaluated = evaluated_sets((evaluation_data,), (self.data,), cache)
        dataset = dataset_without_leaks(load_data(self.data, cache), evaluated, self.leakage)
        check_model(self.model, cache)
        index: Any = open_index_over(self.start, self.data, cache)
        test_index: Any = open_index_over(self.start, self.evaluation_data, cache)
        model = load_model(self.model, cache)
        llm = LanguageModelTool(model)
        environment = Environment(Tools(llm=llm), self.method.reader)
        encoder = self.start.encoder() if isinstance(self.start, Dpr) else index.encoder
        record = {"training": describe_job(self), "encoder": encoder.identity}
        record["language_model"] = model.identity
        record["data"] = [dataset.identity, evaluation_data.identity]
        with (
            job_directory(workdir, record) as directory,
            contextlib.closing(Store(store_path(self.store, self.cache))) as store,
        ):
            questions = dataset.questions[: self.limit or None]
            write = _writer(directory, encoder, self.start, [q.text for q in questions])
            rows = self._search(questions, index, environment, store)
            pooled = make_pools(
                questions, rows, dataset.passages, environment, store, directory / POOLS
            )
            indexes = _own(directory) / "indexes"
            searcher = test_searcher = self._searcher(index, encoder, indexes, len(pooled))
            if test_index.passages.identity != index.passages.identity:
                indexes = _own(directory) / "evaluated"
                test_searcher = self._searcher(test_index, encoder, indexes, len(pooled))

            def at_step(encoder: Any, step: int) -> Any:
                if isinstance(self.start, Sidr):
                    return test_index.with_encoder(encoder)
                return StepIndex(test_searcher, encoder, step)

            params = training.train(
                pooled,
                dataset.passages,
                encoder,
                searcher,
                environment,
                store,
                self.training,
                directory,
                evaluate=self._evaluation(evaluation_data, at_step, llm, store),
                keep=write,
            )
            write(params)
        return trained(directory / RETRIEVER)

    def reading(self) -> Run:
        """A run of the method on the training questions: with the models and index of training."""
        return Run(self.method, self.data, self.model, self.start, limit=self.limit)

    def _search(
        self, questions: Sequence[Question], index: Any, environment: Environment, store: Store
    ) -> dict[str, Sequence[int]]:
        """Rows of the passages that the untrained retriever finds for each question, by its id."""
        depth = min(self.depth, len(index.passages))
        deep = index.with_encoder(index.encoder, m=depth) if isinstance(index, SidrIndex) else index
        tool = RetrieverTool(deep)

        def search(some: Sequence[Question]) -> list[list[int]]:
            tasks = ((question.id, partial(tool.search, question.text, depth)) for question in some)
            rows: dict[str, list[int]] = {}
            with progress(len(some), "passages of the pools") as advance:
                for name, ranking in environment.run(store, tasks):
                    rows[name] = [*map(int, ranking.ids)]
                    advance(1)
            return [rows[question.id] for question in some]

        ranked = shared(questions, search)
        return {question.id: rows for question, rows in zip(questions, ranked, strict=True)}

    def steps_between_indexings(self, questions: int) -> int:
        """Steps from one indexing to the next in a training on ``questions`` questions."""
        steps = round(self.reindex_epochs * questions / self.training.batch)
        return max(1, steps) if self.reindex_epochs else self.reindex_every

    def _searcher(self, index: Any, encoder: TowersEncoder, indexes: Path, questions: int) -> Any:
        passages = index.passages
        m = min(self.start.m if isinstance(self.start, Sidr) else _FOUND, len(passages))
        if self.search == "reindexed":
            every = self.steps_between_indexings(questions)
            return VectorSearch(encoder, passages, indexes, every, m)
        assert isinstance(index.index, BagOfTokens)  # since start.search is late
        if self.search == "beta":
            return BetaSearch(index.index, m)
        return LateSearch(index.index, passages, m)

    def _evaluation(
        self, dataset: Dataset, at_step: Callable[..., Any], llm: LanguageModelTool, store: Store
    ) -> Evaluate:
        """Whether the answer is right ("rag_accuracy"), and the first passage that was read holds a
        gold one ("ir_accuracy"). ``at_step`` gives the corpus as the encoder of a step searches it.
        """
        questions = dataset.questions[: self.evaluation_limit or None]

        def evaluate(encoder: Any, step: int) -> Evaluation:
            tools = Tools(llm=llm, retriever=RetrieverTool(at_step(encoder, step)))

            def ask(some: Sequence[Question]) -> list[tuple[float, str]]:
                tasks = ((q.id, partial(answer_question, self.method, q, tools)) for q in some)
                replies = dict(Environment(tools, self.method.reader).run(store, tasks))
                return [
                    (_accuracy(q, replies[q.id]), replies[q.id].trace["selected"]["ids"][0])
                    for q in some
                ]

            answered = shared(questions, ask)
            ir = comparison.ir_accuracy(questions, dataset.passages.find([i for _, i in answered]))
            return {"rag_accuracy": np.array([r for r, _ in answered]), "ir_accuracy": ir}

        return evaluate


def _accuracy(question: Question, answer: Answer) -> float:
    """1 if the answer contains a gold one, or is the gold choice, as runs are graded; else 0."""
    record = {"prediction": answer.text, "gold_answers": question.answers, "trace": answer.trace}
    return question_scores(record, {}).get("contains", 0.0)
