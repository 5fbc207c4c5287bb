"""Recall of gold passages by queries: the questions themselves, a teacher's, and a student's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.core import jsonl
from jaxrag.core.checks import check_choices, check_limits
from jaxrag.core.hashing import digest_file
from jaxrag.core.progress import progress
from jaxrag.core.store import CACHE
from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.data.leakage import Leakage, check_evaluation
from jaxrag.evaluation.significance import intervals, paired_difference
from jaxrag.methods.errr.parsed_queries import parse_queries
from jaxrag.methods.errr.student import HELD_OUT
from jaxrag.retrieval.settings import IndexSettings
from jaxrag.runs import retriever_comparison as comparison
from jaxrag.runs.job import Outcome, job_directory, locate_file
from jaxrag.runs.loading import describe_job, load_data, open_index_over
from jaxrag.steps.candidates import Merge, merged
from jaxrag.steps.episode import Pool
from jaxrag.types import InputError, Question, Ranking

TABLE = "query_recall.jsonl"
"""Name of the table in the directory of a job."""

QUESTION = "question"
WRITERS = {"teacher": "target", "student": "output"}
"""Writers of queries, and their field in a line of the file."""


@dataclasses.dataclass(frozen=True)
class QueryRecall:
    """Whose queries are compared, and how they are searched for.

    Attributes:
      written: what a student wrote for pairs held out, beside its teacher: held_out.jsonl of
        `jaxrag.methods.errr.student`, or its directory.
      data: holds the pairs' questions; those without gold passages are left out.
      depths: the k of recall@k. Each query finds the greatest k, and of several queries'
        results, merged, the first k count: no writer gets more passages than another.
      merge: how, see `jaxrag.steps.candidates`.
      most: queries of a question that are searched for.
      leakage: "keep" evaluates a retriever on questions that it was trained on, which is otherwise
        refused (see `jaxrag.data.leakage`).
    """

    written: str
    index: IndexSettings
    data: DataSettings
    depths: tuple[int, ...] = (1, 5)
    merge: Merge = "fusion"
    most: int = 5
    leakage: Leakage = "refuse"
    cache: str = CACHE

    def __post_init__(self) -> None:
        check_choices(self, leakage=Leakage, merge=Merge)
        check_limits(most=self.most, depths=min(self.depths, default=0))

    def execute(self, workdir: str | Path) -> Outcome:
        """Compares the queries; the path is that of the rows of the table, query_recall.jsonl.
        InputError if the file is missing, damaged or not of these questions; or the retriever was
        trained on some of them.
        """
        command = "jaxrag run with configs/errr.py:train_optimizer@SIZE"
        file = locate_file(self.written, HELD_OUT, field="written", made=command)
        lines = {line["question_id"]: line for line in jsonl.read(file)}
        cache = Path(self.cache)
        dataset = load_data(self.data, cache)
        questions = [question for question in comparison.known(dataset) if question.id in lines]
        if not questions:
            raise InputError(
                f"{file} and {dataset.name} have no question in common with known gold passages: "
                "give the data that the pairs were made of, with the part to train on."
            )
        checkpoints = [("config.index", spec) for spec in self.index.checkpoints]
        check_evaluation(questions, checkpoints, name=dataset.label, leakage=self.leakage)
        record = {"query_recall": describe_job(self), "written": digest_file(file)}
        with job_directory(workdir, record) as directory:
            rows = _rows(self, questions, lines, dataset)
            jsonl.write(directory / TABLE, rows)
        return Outcome((comparison.table(rows),), directory / TABLE)


def _rows(
    job: QueryRecall,
    questions: Sequence[Question],
    lines: Mapping[str, Mapping[str, Any]],
    dataset: Dataset,
) -> list[dict[str, Any]]:
    """A row for each writer; "minus_question" is the paired difference to the questions' own."""
    index = open_index_over(job.index, job.data, Path(job.cache))
    texts: dict[str, list[tuple[str, ...]]] = {QUESTION: [(q.text,) for q in questions]}
    for name, field in WRITERS.items():
        texts[name] = [_read(lines[q.id], field, q.text, job.most) for q in questions]
    columns: dict[str, dict[str, Float[np.ndarray, " q"]]] = {}
    count = sum(len(some) for several in texts.values() for some in several)
    deepest = max(job.depths)
    with progress(count, f"searching {dataset.name} for queries") as advance:
        for name, several in texts.items():
            rankings = _search(
                job, index, several, deepest + comparison.most_hidden(dataset), advance
            )
            rankings = comparison.visible(rankings, dataset, questions, deepest)
            columns[name] = comparison.scores_of(rankings, dataset, questions, job.depths)
    rows = []
    for name, scores in columns.items():
        row: dict[str, Any] = {"data": dataset.name, "index": job.index.name, "queries": name}
        row["questions"] = len(questions)
        row |= {figure: list(estimate[:3]) for figure, estimate in intervals(scores).items()}
        if name != QUESTION:
            row["minus_question"] = {
                figure: list(paired_difference(values, columns[QUESTION][figure]))
                for figure, values in scores.items()
            }
        rows.append(row)
    return rows


def _read(line: Mapping[str, Any], field: str, question: str, most: int) -> tuple[str, ...]:
    """The queries in a text, or the question if there are none, as in a run."""
    if not isinstance(line.get(field), str):
        raise InputError(
            f"The line of question {line['question_id']!r} has {field} {line.get(field)!r}; a text "
            f"is wanted, as {HELD_OUT} of a training has it."
        )
    cut = field == "output" and not line.get("ended", 1.0)
    return parse_queries(line[field], question, limit=most, truncated=cut).texts


def _search(
    job: QueryRecall, index: Any, texts: Sequence[Sequence[str]], k: int, advance: Any
) -> list[Ranking]:
    """One ranking per question, merged from the rankings of its queries."""
    every = [text for some in texts for text in some]
    rankings: list[Ranking] = []
    for first in range(0, len(every), comparison.TOGETHER):
        some = every[first : first + comparison.TOGETHER]
        rankings += comparison.search(index, some, k)
        advance(len(some))
    parts = (Pool(ranking.ids, ranking.scores) for ranking in rankings)
    pools = [merged([next(parts) for _ in some], job.merge) for some in texts]
    return [Ranking(pool.rows, pool.scores) for pool in pools]
