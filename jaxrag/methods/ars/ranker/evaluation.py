"""How well a ranker orders the rewrites of held-out questions, and two references."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxrag.evaluation.significance import intervals, paired_difference, plain
from jaxrag.functional.ranking import kendall_tau, ndcg, pairwise_accuracy
from jaxrag.methods.ars.ranker.data import RankingExample
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.retrieval.rerank import CrossEncoderReranker

METRICS = {"pairwise_accuracy": pairwise_accuracy, "kendall_tau": kendall_tau, "ndcg": ndcg}
ORDERS = 100
"""Random orders of each question, whose mean is chance."""

Scores = Sequence[Float[np.ndarray, " r"]]
"""For each question, a score of each rewrite."""
Columns = dict[str, Float[np.ndarray, " q"]]
"""Values of each question by name; NaN where undefined."""


def scores(ranker: CrossEncoderReranker, examples: Sequence[RankingExample]) -> Scores:
    """The ranker's scores."""
    questions = [example.question for example in examples for _ in example.rewrites]
    values = ranker.score(questions, [text for example in examples for text in example.rewrites])
    return _split_questions(values, examples)


def cosines(encoder: Encoder, examples: Sequence[RankingExample]) -> Scores:
    """Cosine of each rewrite and its question, by an encoder of unit vectors."""
    questions = encoder.embed([example.question for example in examples])
    rewrites = encoder.embed([text for example in examples for text in example.rewrites])
    pairs = zip(_split_questions(rewrites, examples), questions, strict=True)
    return [vectors @ question for vectors, question in pairs]


def random_orders(
    examples: Sequence[RankingExample], *, seed: int
) -> list[Float[np.ndarray, "o r"]]:
    """`ORDERS` random scores of each question, which depend on its id and the seed alone."""

    def orders(example: RankingExample) -> Float[np.ndarray, "o r"]:
        hashed = hashlib.sha256(f"{seed}\0{example.question_id}".encode()).digest()
        random = np.random.default_rng(int.from_bytes(hashed[:8], "big"))
        every = np.tile(np.arange(len(example.rewrites), dtype=np.float64), (ORDERS, 1))
        return random.permuted(every, axis=1)

    return [orders(example) for example in examples]


def _split_questions(
    values: Float[np.ndarray, "n ..."], examples: Sequence[RankingExample]
) -> list[Float[np.ndarray, "r ..."]]:
    return np.split(values, np.cumsum([len(example.rewrites) for example in examples])[:-1])


def metrics(found: Mapping[str, Any], examples: Sequence[RankingExample]) -> Columns:
    """The metrics of every question by "name metric", or "metric" for the name "".

    ``found`` are, by name, `Scores`; or several of each question, [o r], whose mean metric counts.
    """
    columns = {}
    for name, values in found.items():
        pairs = [
            (np.atleast_2d(some), np.array(example.labels))
            for some, example in zip(values, examples, strict=True)
        ]
        for metric, function in METRICS.items():
            column = [np.mean([function(row, labels) for row in rows]) for rows, labels in pairs]
            columns[f"{name} {metric}".strip()] = np.array(column)
    return columns


def table(label: str, columns: Columns) -> list[dict[str, Any]]:
    """A row for each ranker: [mean, low, high, n] of each metric, against one kind of labels.

    The row of a reference has in "trained_minus" [mean, low, high, n, p] of the paired difference
    of "trained" and the reference.
    """
    means, rows = intervals(columns), []
    for name in dict.fromkeys(column.rpartition(" ")[0] for column in columns):
        row: dict[str, Any] = {"ranker": name, "labels": label}
        row["questions"] = len(columns[f"{name} ndcg"])
        row |= {metric: plain(means[f"{name} {metric}"]) for metric in METRICS}
        if name != "trained":
            row["trained_minus"] = {
                metric: plain(
                    paired_difference(columns[f"trained {metric}"], columns[f"{name} {metric}"])
                )
                for metric in METRICS
            }
        rows.append(row)
    return rows
