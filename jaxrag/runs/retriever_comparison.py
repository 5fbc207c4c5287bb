"""Compares retrievers on the same questions: recall@k, MRR, nDCG, answers in the passages found.

Relevance judgements suffice, graded ones too. Without, the measure is whether a gold answer occurs
in the passages found (the "top-k accuracy" of Karpukhin et al. 2020).
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.table import Table

from jaxrag.core import jsonl
from jaxrag.core.checks import check_choices, check_limits, check_range
from jaxrag.core.printable import terminal_text
from jaxrag.core.progress import progress
from jaxrag.core.store import CACHE
from jaxrag.data.dataset import Dataset, DataSettings, lacking
from jaxrag.data.leakage import Leakage, check_evaluation
from jaxrag.evaluation.metrics import holds_answer
from jaxrag.evaluation.ranking_metrics import ndcg, recall_at_k, reciprocal_rank
from jaxrag.evaluation.significance import intervals, paired_difference
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.retrieval.settings import IndexSettings
from jaxrag.runs.job import Outcome, job_directory
from jaxrag.runs.loading import describe_job, load_data, open_index_over
from jaxrag.text.answers import Normalization
from jaxrag.types import InputError, Passage, Question, Ranking

_log = logging.getLogger("jaxrag")

TOGETHER = 32
"""Texts that are searched for at a time."""

TABLE = "retrievers.jsonl"
"""Name of the table in the directory of a comparison."""

MINUS = {"minus_first": "the first retriever's", "minus_question": "the question's own"}
"""Fields of a row with paired differences, and what was subtracted."""

Columns = dict[str, Float[np.ndarray, " q"]]
"""Metrics by name, a value for each question; NaN where a metric is not defined."""


@dataclasses.dataclass(frozen=True)
class RetrieverComparison:
    """Compares retrievers by the relevant passages that they find, or by the answers in them.

    Attributes:
      indexes: the retrievers; the others are compared with the first, question by question.
      data: the questions. Questions with neither relevant passages nor gold answers are skipped,
        which the log counts.
      depths: the k of recall@k, and of answer@k: whether a gold answer occurs in the title or text
        of the first k passages.
      cutoff: ranks that MRR and nDCG look at.
      relevant_from: the least grade that counts as relevant in recall and MRR; TREC's Deep Learning
        tracks count from 2.
      answers: whether answer@k is measured; it reads all passages found.
      normalization: how answer@k compares texts, see `jaxrag.text.answers.Normalization`.
      limit: number of questions of each data set, from the first; 0 is all.
      leakage: "keep" evaluates retrievers on questions that they were trained on, which is
        otherwise refused (see `jaxrag.data.leakage`).
      cache: where data sets and indexes are kept.
    """

    indexes: tuple[IndexSettings, ...]
    data: tuple[DataSettings, ...]
    depths: tuple[int, ...] = (1, 5, 20)
    cutoff: int = 10
    relevant_from: int = 1
    answers: bool = True
    normalization: Normalization = "squad"
    limit: int = 0
    leakage: Leakage = "refuse"
    cache: str = CACHE

    def __post_init__(self) -> None:
        if not self.indexes or not self.data or not self.depths or min(self.depths) < 1:
            raise InputError(
                "A comparison of retrievers needs indexes, data and depths of at least 1; it has "
                f"{len(self.indexes)}, {len(self.data)} and {self.depths}."
            )
        check_choices(self, leakage=Leakage, normalization=Normalization)
        check_limits(cutoff=self.cutoff, relevant_from=self.relevant_from)
        check_range(limit=self.limit)

    def execute(self, workdir: str | Path) -> Outcome:
        """Compares the retrievers; the outcome's path is the file of the table, retrievers.jsonl.

        Each row has means with 95 % intervals and the number of questions, and paired differences
        to the first retriever. ``rankings-N.jsonl`` has the passages found for each question of row
        N, and its metrics. After an interruption the same call adds the missing rows.
        """
        cache = Path(self.cache)
        self._check_training(cache)
        with job_directory(workdir, {"retrievers": describe_job(self)}) as directory:
            file = directory / TABLE
            jsonl.cut_torn_line(file)
            rows = jsonl.read(file, key="index")
            pairs = [(data, index) for data in self.data for index in self.indexes]
            for number in range(len(rows), len(pairs)):
                data, settings = pairs[number]
                dataset = load_data(data, cache)
                index = open_index_over(settings, data, cache)
                lines = self._lines(dataset, settings, index)
                jsonl.write(_rankings(directory, number), lines)
                columns = _columns(lines)
                row: dict[str, Any] = {"data": dataset.name, "index": settings.name}
                row["questions"] = max(map(len, columns.values()))
                row |= {name: list(estimate) for name, estimate in intervals(columns).items()}
                first = number - number % len(self.indexes)
                if number > first:
                    reference = _columns(jsonl.read(_rankings(directory, first)))
                    row["minus_first"] = {
                        name: list(paired_difference(values, reference[name]))
                        for name, values in columns.items()
                    }
                jsonl.append(file, [jsonl.encode("retrievers", row)])
                rows.append(row)
        return Outcome((table(rows),), file)

    def _check_training(self, cache: Path) -> None:
        """Refuses retrievers that were trained on some of the questions."""
        specs = (spec for index in self.indexes for spec in index.checkpoints)
        checkpoints = [("config.indexes", spec) for spec in specs if spec]
        for settings in self.data if checkpoints else ():
            dataset = load_data(settings, cache)
            some = self._questions(dataset)
            check_evaluation(some, checkpoints, name=dataset.label, leakage=self.leakage)

    def _questions(self, dataset: Dataset) -> list[Question]:
        return judged_or_answered(dataset, answers=self.answers)[: self.limit or None]

    def _lines(
        self, dataset: Dataset, settings: IndexSettings, index: Retriever | TextRetriever
    ) -> list[dict[str, Any]]:
        """The passages found for each question, and its metrics; warns of what limits these."""
        questions = self._questions(dataset)
        lines: list[dict[str, Any]] = []
        with progress(len(questions), f"searching {dataset.name}, {settings.name}") as advance:
            for start in range(0, len(questions), TOGETHER):
                some = questions[start : start + TOGETHER]
                rankings = search_for(index, dataset, some, max(*self.depths, self.cutoff))
                for question, ranking in zip(some, rankings, strict=True):
                    lines.append(self._line(question, ranking, dataset))
                advance(len(some))
        if skipped := len(dataset.questions) - len(judged_or_answered(dataset, answers=True)):
            _log.warning(
                "%d of %d questions of %s have neither relevant passages nor open gold answers",
                *(skipped, len(dataset.questions), dataset.label),
            )
        if note := lacking(dataset, questions):
            _log.warning(note)
        if empty := sum(not line["passages"] for line in lines):
            _log.warning(
                "%s found no passage for %d of %d questions", settings.name, empty, len(lines)
            )
        return lines

    def _line(self, question: Question, ranking: Ranking, dataset: Dataset) -> dict[str, Any]:
        passages = dataset.passages.get(ranking.ids)
        names = [passage.id for passage in passages]
        grades = grades_of(dataset, question)
        relevant = {name for name, grade in grades.items() if grade >= self.relevant_from}
        values = {f"recall@{k}": recall_at_k(names, relevant, k=k) for k in self.depths}
        values |= {
            f"mrr@{self.cutoff}": reciprocal_rank(names, relevant, k=self.cutoff),
            f"ndcg@{self.cutoff}": ndcg(names, grades, k=self.cutoff),
        }
        if self.answers:
            rank = answer_rank(question, passages, self.normalization)
            values |= {f"answer@{k}": float(rank <= k) for k in self.depths if rank is not None}
        return {
            "question_id": question.id,
            "passages": names,
            "scores": [score if math.isfinite(score) else None for score in ranking.scores],
            "metrics": {name: value for name, value in values.items() if not math.isnan(value)},
        }


def _rankings(directory: Path, number: int) -> Path:
    return directory / f"rankings-{number}.jsonl"


def read_metric(directory: Path, number: int, metric: str) -> dict[str, float]:
    """A metric of row ``number`` of a comparison, by question id; only questions that have it."""
    lines = jsonl.read(_rankings(directory, number))
    return {
        line["question_id"]: line["metrics"][metric] for line in lines if metric in line["metrics"]
    }


def _columns(lines: Sequence[Mapping[str, Any]]) -> Columns:
    names = dict.fromkeys(name for line in lines for name in line["metrics"])
    return {
        name: np.array([line["metrics"].get(name, math.nan) for line in lines]) for name in names
    }


def search(index: Retriever | TextRetriever, texts: Sequence[str], k: int) -> list[Ranking]:
    """Rankings for texts, by vectors or by the texts themselves."""
    if isinstance(index, TextRetriever):
        return index.search_texts(texts, k)
    return index.search(index.embed(texts), k)


def search_for(
    index: Retriever | TextRetriever, dataset: Dataset, questions: Sequence[Question], k: int
) -> list[Ranking]:
    """The ``k`` best passages of each question, without those that are hidden from it."""
    texts = [question.text for question in questions]
    return visible(search(index, texts, k + most_hidden(dataset)), dataset, questions, k)


def most_hidden(dataset: Dataset) -> int:
    """Most passages that are hidden from a question."""
    return max((len(question.hidden) for question in dataset.questions), default=0)


def visible(
    rankings: Sequence[Ranking], dataset: Dataset, questions: Sequence[Question], k: int
) -> list[Ranking]:
    """The ``k`` best of each question's ranking, without passages that are hidden from it."""
    rows = dataset.passages.rows_of([name for question in questions for name in question.hidden])
    trimmed = []
    for question, ranking in zip(questions, rankings, strict=True):
        hidden = {rows[name] for name in question.hidden if name in rows}
        places = [i for i, row in enumerate(ranking.ids) if row not in hidden][:k]
        ids = tuple(ranking.ids[i] for i in places)
        trimmed.append(Ranking(ids, tuple(ranking.scores[i] for i in places)))
    return trimmed


def known(dataset: Dataset, limit: int = 0) -> list[Question]:
    """The questions of a data set whose relevant passages are known; InputError if none is."""
    questions = [question for question in dataset.questions if dataset.gold.get(question.id)]
    if not questions:
        raise InputError(f"No question of {dataset.name} has known gold passages.")
    return questions[: limit or None]


def judged_or_answered(dataset: Dataset, *, answers: bool) -> list[Question]:
    """Questions with a relevant passage or, if ``answers``, an open answer; InputError for none."""
    questions = [
        question
        for question in dataset.questions
        if dataset.gold.get(question.id) or (answers and holds_answer(question, None) is not None)
    ]
    if not questions:
        raise InputError(
            f"No question of {dataset.name} has known relevant passages"
            f"{' or an open gold answer' if answers else ''}, so retrievers cannot be compared "
            "on it."
        )
    return questions


def grades_of(dataset: Dataset, question: Question) -> Mapping[str, int]:
    """Grade of each judged passage of a question; 1 of gold passages that are not graded."""
    judged = dict.fromkeys(dataset.gold.get(question.id, ()), 1)
    return dataset.grades.get(question.id, judged)


def answer_rank(
    question: Question, found: Sequence[Passage], normalization: Normalization = "squad"
) -> float | None:
    """Rank from 1 of the first passage with a gold answer, or infinity; None as `holds_answer`."""
    if holds_answer(question, None) is None:
        return None
    ranked = enumerate(found, 1)
    ranks = (rank for rank, passage in ranked if holds_answer(question, passage, normalization))
    return next(ranks, math.inf)


def scores(
    index: Retriever | TextRetriever,
    dataset: Dataset,
    questions: Sequence[Question],
    depths: Sequence[int],
) -> Columns:
    """The `ir_accuracy` of each question, and "recall@k", its share of gold in the first k."""
    rankings: list[Ranking] = []
    for first in range(0, len(questions), TOGETHER):
        some = questions[first : first + TOGETHER]
        rankings += search_for(index, dataset, some, max(depths))
    return scores_of(rankings, dataset, questions, depths)


def scores_of(
    rankings: Sequence[Ranking],
    dataset: Dataset,
    questions: Sequence[Question],
    depths: Sequence[int],
) -> Columns:
    """The metrics of `scores`, from a ranking for each question."""
    names = [name for question in questions for name in dataset.gold[question.id]]
    # a passage that the corpus lacks keeps its name, which no ranking has
    row_of: dict[str, int | str] = dict(zip(names, names, strict=True))
    row_of |= dataset.passages.rows_of(names)
    columns: dict[str, list[float]] = {f"recall@{k}": [] for k in depths}
    best = iter(dataset.passages.get([r.ids[0] for r in rankings if r.ids]))
    first = [next(best) if r.ids else None for r in rankings]
    for question, ranking in zip(questions, rankings, strict=True):
        gold = frozenset(row_of[passage] for passage in dataset.gold[question.id])
        for k in depths:
            columns[f"recall@{k}"].append(recall_at_k(ranking.ids, gold, k=k))
    arrays = {name: np.array(values) for name, values in columns.items()}
    return arrays | {"ir_accuracy": ir_accuracy(questions, first)}


def ir_accuracy(
    questions: Sequence[Question], first: Sequence[Passage | None]
) -> Float[np.ndarray, " q"]:
    """1 where the first passage contains a gold answer; NaN where `holds_answer` is undefined."""
    holds = map(holds_answer, questions, first)
    return np.array([math.nan if value is None else float(value) for value in holds])


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """A table for the terminal: percent with intervals; what all rows share is in the title."""
    labels = {"data": "data", "questions": "questions", "index": "retriever", "queries": "queries"}
    labels = {name: label for name, label in labels.items() if name in rows[0]}
    every = dict.fromkeys(name for row in rows for name in row)
    columns = [name for name in every if name not in (*labels, *MINUS)]
    same = [name for name in labels if all(row[name] == rows[0][name] for row in rows[1:])]
    title = ", ".join(f"{labels.pop(name)}: {rows[0][name]}" for name in same)
    less = next((name for row in rows for name in MINUS if name in row), None)
    caption = "percent, 95 % intervals" + (f"; Δ: minus {MINUS[less]}" if less else "")
    titled = terminal_text(title) if title else None
    shown = Table(*labels.values(), *columns, title=titled, caption=caption)
    for row in rows:
        cells = [_cell(row, name, row.get(less or "", {}).get(name)) for name in columns]
        shown.add_row(*(terminal_text(str(row[name])) for name in labels), *cells)
    return shown


def _cell(row: Mapping[str, Any], name: str, less: Sequence[float] | None) -> str:
    if name not in row:
        return "–"
    cell = "{:.1f} [{:.1f}, {:.1f}]".format(*_percent(row[name]))
    count = row[name][3:]
    if count and count[0] < row["questions"]:
        cell += f"\nn = {count[0]:,}"
    if less is not None:
        cell += "\nΔ {:+.1f} [{:+.1f}, {:+.1f}]".format(*_percent(less))
    return cell


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values[:3]]
