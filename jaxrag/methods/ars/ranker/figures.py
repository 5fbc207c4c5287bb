"""How well rankers put the rewrites of questions in order: figures, references and their table."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.core import jsonl
from jaxrag.evaluation.significance import Difference, Interval, intervals, paired_difference
from jaxrag.functional.ranking import Gain, kendall_tau, ndcg, pairwise_accuracy
from jaxrag.methods.ars.ranker.data import Example
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.types import InputError

TABLE = "ranker.jsonl"
"""What the table is called in the directory of a job."""

FIGURES = ("pairwise_accuracy", "kendall_tau", "ndcg")
ORDERS = 100
"""Random orders of each question, over which chance is the mean."""

Scores = Sequence[Float[np.ndarray, " r"]]
"""Of each question, one score for each rewrite."""
Columns = dict[str, Float[np.ndarray, " q"]]
"""By name, a value of each question; NaN where it has none."""


class Ndcg(NamedTuple):
    """How nDCG is taken, see `jaxrag.functional.ranking.ndcg`; ``k`` 0 looks at all rewrites."""

    k: int
    gain: Gain


def scores(ranker: CrossEncoderReranker, examples: Sequence[Example]) -> Scores:
    """The ranker's score of each rewrite of each question."""
    questions = [one.question for one in examples for _ in one.rewrites]
    found = ranker.score(questions, [text for one in examples for text in one.rewrites])
    return _by_question(found, examples)


def cosines(encoder: Encoder, examples: Sequence[Example]) -> Scores:
    """Cosine of each rewrite and its question, by an encoder of unit vectors."""
    questions = encoder.embed([one.question for one in examples])
    rewrites = encoder.embed([text for one in examples for text in one.rewrites])
    pairs = zip(_by_question(rewrites, examples), questions, strict=True)
    return [vectors @ question for vectors, question in pairs]


def random_orders(examples: Sequence[Example], *, seed: int) -> list[Float[np.ndarray, "o r"]]:
    """`ORDERS` random scores of each question, which depend on its id and the seed alone."""

    def orders(example: Example) -> Float[np.ndarray, "o r"]:
        told = hashlib.sha256(f"{seed}\0{example.question_id}".encode()).digest()
        random = np.random.default_rng(int.from_bytes(told[:8], "big"))
        every = np.tile(np.arange(len(example.rewrites), dtype=np.float64), (ORDERS, 1))
        return random.permuted(every, axis=1)

    return [orders(example) for example in examples]


def _by_question(
    values: Float[np.ndarray, "n ..."], examples: Sequence[Example]
) -> list[Float[np.ndarray, "r ..."]]:
    return np.split(values, np.cumsum([len(one.rewrites) for one in examples])[:-1])


def figures(found: Mapping[str, Any], examples: Sequence[Example], how: Ndcg) -> Columns:
    """Figures of every question by "name figure", or "figure" for the name "".

    Args:
      found: by name `Scores`; or several of them, [o r] for each question, whose mean counts.
      examples: the questions with their labels.
      how: see `Ndcg`.
    """
    columns = {}
    for name, values in found.items():
        rows = [
            np.mean([_figures(one, example, how) for one in np.atleast_2d(some)], axis=0)
            for some, example in zip(values, examples, strict=True)
        ]
        for figure, column in zip(FIGURES, np.array(rows).T, strict=True):
            columns[f"{name} {figure}".strip()] = column
    return columns


def _figures(
    values: Float[np.ndarray, " r"], example: Example, how: Ndcg
) -> tuple[float, float, float]:
    labels = np.array(example.labels)
    return (
        pairwise_accuracy(values, labels),
        kendall_tau(values, labels),
        ndcg(values, labels, k=how.k or None, gain=how.gain),
    )


def table(label: str, columns: Columns) -> list[dict[str, Any]]:
    """A row for each ranker: [mean, low, high, n] of each figure, against one kind of labels.

    The row of a reference has in "trained_minus" [mean, low, high, n, p] of the ranker "trained"
    minus the reference, question by question.
    """
    found, rows = intervals(columns), []
    for name in dict.fromkeys(column.rpartition(" ")[0] for column in columns):
        mine = {figure: columns[f"{name} {figure}"] for figure in FIGURES}
        row: dict[str, Any] = {"ranker": name, "labels": label}
        row["questions"] = len(mine[FIGURES[0]])
        row |= {figure: _plain(found[f"{name} {figure}"]) for figure in FIGURES}
        if name != "trained":
            row["trained_minus"] = {
                figure: _plain(paired_difference(columns[f"trained {figure}"], values))
                for figure, values in mine.items()
            }
        rows.append(row)
    return rows


def _plain(found: Interval | Difference) -> list[float | int | None]:
    """As JSON has it: null where no question defines a figure."""
    return [None if math.isnan(value) else value for value in found]


def read_table(directory: str | Path) -> list[dict[str, Any]]:
    """The rows of the table in the directory of a job.

    Raises:
      InputError: there is none, or it is damaged.
    """
    rows = jsonl.read(Path(directory) / TABLE, key="ranker")
    if not rows:
        raise InputError(f"{directory} holds no {TABLE}: train a ranker there first.")
    return rows
