"""Compares retrievers by recall at k, with intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.table import Table

from jaxrag.core import jsonl
from jaxrag.core.progress import progress
from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.evaluation.metrics import holds_answer, recall_at_k
from jaxrag.evaluation.significance import intervals
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.retrieval.settings import IndexSettings
from jaxrag.runs.job import Outcome, job_directory
from jaxrag.runs.loading import describe_job, load_data, open_index_over
from jaxrag.types import InputError, Passage, Question, Ranking

TOGETHER = 32
"""Texts that are searched for at a time."""


@dataclasses.dataclass(frozen=True)
class Recall:
    """Compares retrievers on questions with known gold passages.

    Attributes:
      indexes: the retrievers.
      data: the questions; those without gold passages are skipped.
      depths: the k of recall@k.
      limit: number of questions of each data set, from the first with gold; 0 is all.
      cache: where data sets and indexes are kept.
    """

    indexes: tuple[IndexSettings, ...]
    data: tuple[DataSettings, ...]
    depths: tuple[int, ...] = (1, 5, 20)
    limit: int = 0
    cache: str = "runs/cache"

    def __post_init__(self) -> None:
        if not self.indexes or not self.data or not self.depths or min(self.depths) < 1:
            raise InputError(
                "A comparison of retrievers wants indexes, data and depths of at least 1; it has "
                f"{len(self.indexes)}, {len(self.data)} and {self.depths}."
            )

    def execute(self, workdir: str | Path) -> Outcome:
        """Compares the retrievers; the outcome's path is the file of the table, recall.jsonl.

        Rows are written one by one; after an interruption the same call adds the missing ones.

        Raises:
          InputError: data or an index cannot be loaded, or ``workdir`` belongs to another job.
        """
        cache = Path(self.cache)
        with job_directory(workdir, {"recall": describe_job(self)}) as directory:
            file = directory / "recall.jsonl"
            jsonl.cut_torn_line(file)
            rows = jsonl.read(file, key="index")
            pairs = [(data, index) for data in self.data for index in self.indexes]
            for data, settings in pairs[len(rows) :]:
                row = _row(
                    settings, load_data(data, cache), open_index_over(settings, data, cache), self
                )
                jsonl.append(file, [jsonl.encode("recall", row)])
                rows.append(row)
        return Outcome((table(rows),), file)


def search(index: Retriever | TextRetriever, texts: Sequence[str], k: int) -> list[Ranking]:
    """Rankings for texts, by vectors or by the texts themselves."""
    if isinstance(index, TextRetriever):
        return index.search_texts(texts, k)
    return index.search(index.embed(texts), k)


def known(dataset: Dataset, limit: int = 0) -> list[Question]:
    """The questions of a data set whose gold passages are known.

    Raises:
      InputError: there is none.
    """
    found = [question for question in dataset.questions if dataset.gold.get(question.id)]
    if not found:
        raise InputError(f"No question of {dataset.name} has known gold passages.")
    return found[: limit or None]


def scores(
    index: Retriever | TextRetriever,
    dataset: Dataset,
    questions: Sequence[Question],
    depths: Sequence[int],
    *,
    done: Callable[[int], None] = lambda count: None,
) -> dict[str, Float[np.ndarray, " q"]]:
    """For each question "recall@k", its share of gold passages in the first k, and `ir_accuracy`.

    ``done`` is called with the number of questions searched for since its last call.
    """
    rankings: list[Ranking] = []
    for first in range(0, len(questions), TOGETHER):
        some = questions[first : first + TOGETHER]
        rankings += search(index, [question.text for question in some], max(depths))
        done(len(some))
    return scores_of(rankings, dataset, questions, depths)


def scores_of(
    rankings: Sequence[Ranking],
    dataset: Dataset,
    questions: Sequence[Question],
    depths: Sequence[int],
) -> dict[str, Float[np.ndarray, " q"]]:
    """The metrics of `scores`, from a ranking for each question."""
    row_of = {i: dataset.passages.row_of(i) for q in questions for i in dataset.gold[q.id]}
    columns: dict[str, list[float]] = {f"recall@{k}": [] for k in depths}
    best = iter(dataset.passages.get([one.ids[0] for one in rankings if one.ids]))
    first = [next(best) if one.ids else None for one in rankings]
    for question, ranking in zip(questions, rankings, strict=True):
        gold = frozenset(row_of[passage] for passage in dataset.gold[question.id])
        for k in depths:
            columns[f"recall@{k}"].append(recall_at_k(ranking.ids, gold, k=k))
    found = {name: np.array(values) for name, values in columns.items()}
    return found | {"ir_accuracy": ir_accuracy(questions, first)}


def ir_accuracy(
    questions: Sequence[Question], first: Sequence[Passage | None]
) -> Float[np.ndarray, " q"]:
    """1 where the first passage contains a gold answer; NaN where `holds_answer` is undefined."""
    holds = map(holds_answer, questions, first)
    return np.array([math.nan if one is None else float(one) for one in holds])


def _row(
    settings: IndexSettings, dataset: Dataset, index: Retriever | TextRetriever, job: Recall
) -> dict[str, Any]:
    questions = known(dataset, job.limit)
    with progress(len(questions), f"searching {dataset.name}, {settings.name}") as advance:
        found = intervals(scores(index, dataset, questions, job.depths, done=advance))
    row = {"data": dataset.name, "index": settings.name, "questions": len(questions)}
    return row | {name: list(one[:3]) for name, one in found.items()}


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """A table for the terminal: means in percent, intervals, paired differences.

    Columns with the same value in all rows are shown in the title.
    """
    labels = {"data": "data", "questions": "questions", "index": "retriever", "queries": "queries"}
    labels = {name: label for name, label in labels.items() if name in rows[0]}
    columns = [name for name in rows[0] if name not in (*labels, "minus_question")]
    same = [name for name in labels if all(row[name] == rows[0][name] for row in rows[1:])]
    title = ", ".join(f"{labels.pop(name)}: {rows[0][name]}" for name in same)
    compared = any("minus_question" in row for row in rows)
    caption = "percent, 95 % intervals" + "; Δ: minus the question's own" * compared
    shown = Table(*labels.values(), *columns, title=title or None, caption=caption)
    for row in rows:
        cells = ["{:.1f} [{:.1f}, {:.1f}]".format(*_percent(row[name])) for name in columns]
        for place, name in enumerate(columns if "minus_question" in row else ()):
            less = _percent(row["minus_question"][name])
            cells[place] += "\nΔ {:+.1f} [{:+.1f}, {:+.1f}]".format(*less)
        shown.add_row(*(str(row[name]) for name in labels), *cells)
    return shown


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values[:3]]
