"""Training data of ARS-RAG's ranker: the file of labelled rewrites, and batches of it.

``labels.jsonl`` has a line per question: ``question_id``, ``question``, ``rewrites`` (N texts) and
the number of relevant passages of each rewrite, y_i (docs/methods, "ARS-RAG: rewrites and
labels"): by the model's word (``labels``), by its log-probabilities (``labels_logprob``, or null)
and by the gold passages (``labels_gold``, or null). Other fields are ignored.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxrag.core.jsonl_input import InputLine, read_input
from jaxrag.functional.ranking import Ties
from jaxrag.retrieval import buckets
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.training.loop import Data
from jaxrag.training.trainer import shuffled_batches
from jaxrag.types import InputError

FILE = "labels.jsonl"

Label = Literal["model", "logprob", "gold"]
"""How passages were judged: by the model's word, its log-probabilities, or the gold passages."""

FIELDS: dict[str, str] = {"model": "labels", "logprob": "labels_logprob", "gold": "labels_gold"}


class RankingExample(NamedTuple):
    """A question with two or more rewrites and their labels y_i, counts of relevant passages."""

    question_id: str
    question: str
    rewrites: tuple[str, ...]
    labels: tuple[int, ...]


Unit = Literal["pairs", "questions"]
"""What a batch consists of."""

Labels = Mapping[str, RankingExample]
"""A question with its labels of each kind, see `Label`."""


def read_labels(path: Path, *, label: str) -> list[Labels]:
    """All questions of a file, each with the kind ``label``, which is trained on.

    InputError if a line is invalid, the file is empty, or no question has rewrites of different
    labels.
    """
    questions: list[Labels] = []
    lines: dict[str, int] = {}
    for line in read_input(path):
        question = _labelled(line, label)
        name = question[label].question_id
        if name in lines:
            raise line.error("question_id", f"is {name!r}, as in line {lines[name]}")
        lines[name] = line.number
        questions.append(question)
    if not questions:
        raise InputError(f"{path} is empty: there is no question to train a ranker on.")
    check_varied([question[label] for question in questions], f"{path}, field {FIELDS[label]!r}")
    return questions


def check_varied(examples: Sequence[RankingExample], where: str) -> None:
    """InputError, naming ``where``: no question has rewrites of different labels."""
    if not any(len({*example.labels}) > 1 for example in examples):
        raise InputError(
            f"{where}: in none of the {len(examples)} questions do two rewrites differ in their "
            "labels, so there is no order to learn. Label more questions, or take other labels "
            f"(label is one of {', '.join(FIELDS)})."
        )


def _labelled(line: InputLine, label: str) -> Labels:
    rewrites = line.strings("rewrites")
    if len(rewrites) < 2:
        raise line.error("rewrites", "has 1 item; two or more are ranked")
    head = line.string("question_id"), line.string("question"), rewrites
    return {
        kind: RankingExample(*head, _counts(line, field, len(rewrites)))
        for kind, field in FIELDS.items()
        if kind == label or line.fields.get(field) is not None
    }


def _counts(line: InputLine, field: str, rewrites: int) -> tuple[int, ...]:
    """A field with a non-negative whole number for each rewrite."""
    if field not in line.fields:
        raise line.error(field, f"is missing; the line has {', '.join(line.fields)}")
    values = line.fields[field]
    if values is None:
        raise line.error(
            field, "is null: the rewrites were not judged this way; choose another label"
        )
    if not isinstance(values, list) or len(values) != rewrites:
        size = f"{len(values)} items" if isinstance(values, list) else "no list"
        raise line.error(field, f"has {size}; there are {rewrites} rewrites, one number for each")
    for number, value in enumerate(values, 1):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise line.error(field, f"item {number} is {value!r}; a whole number from 0 is needed")
    return tuple(values)


class RankerBatch(NamedTuple):
    """A batch of questions with their rewrites; NumPy arrays.

    Attributes:
      ids, segments: token and segment ids of each pair (question, rewrite), right-padded.
      lengths: tokens of each pair; 0 for padding.
      where: False for padding; questions may have different numbers of rewrites.
    """

    ids: Int[Any, "q r t"]
    segments: Int[Any, "q r t"]
    lengths: Int[Any, "q r"]
    labels: Float[Any, "q r"]
    where: Bool[Any, "q r"]


class Tokenised(NamedTuple):
    """An example with tokenised pairs."""

    pairs: tuple[buckets.Tokens, ...]
    labels: tuple[int, ...]


def tokenised(examples: Sequence[RankingExample], ranker: CrossEncoderReranker) -> list[Tokenised]:
    """Tokenises every pair (question, rewrite)."""
    pairs = [(example.question, rewrite) for example in examples for rewrite in example.rewrites]
    tokens = iter(buckets.tokenize(ranker.tokenizer, pairs, limit=ranker.max_length))
    return [
        Tokenised(tuple(next(tokens) for _ in example.rewrites), example.labels)
        for example in examples
    ]


def make_batch(some: Sequence[Tokenised], *, rewrites: int, limit: int, pad_id: int) -> RankerBatch:
    """A batch, padded to the bucket of its longest pair and to ``rewrites`` of each question."""
    longest = max(len(pair.ids) for example in some for pair in example.pairs)
    shape = (len(some), rewrites)
    wide = (*shape, buckets.bucket_width(longest, limit=limit))
    ids, segments = np.full(wide, pad_id, np.int32), np.zeros(wide, np.int32)
    lengths, labels = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    for row, example in enumerate(some):
        labels[row, : len(example.labels)] = example.labels
        for column, pair in enumerate(example.pairs):
            lengths[row, column] = length = len(pair.ids)
            ids[row, column, :length], segments[row, column, :length] = pair
    return RankerBatch(ids, segments, lengths, labels, lengths > 0)


def number_of(examples: Sequence[RankingExample], unit: Unit, ties: Ties) -> int:
    """Number of units that an epoch has, see `batches`."""
    if unit == "questions":
        return len(examples)
    pairs = (itertools.combinations(example.labels, 2) for example in examples)
    return sum(ties == "half" or a != b for some in pairs for a, b in some)


def in_pairs(some: Sequence[Tokenised], ties: Ties) -> list[Tokenised]:
    """Every unordered pair of rewrites of a question as an example of its own.

    The loss is the same for (i, j) and (j, i). Pairs of equal labels are left out where ``ties``
    does not learn from them.
    """
    return [
        Tokenised((example.pairs[i], example.pairs[j]), (example.labels[i], example.labels[j]))
        for example in some
        for i, j in itertools.combinations(range(len(example.labels)), 2)
        if ties == "half" or example.labels[i] != example.labels[j]
    ]


def batches(
    examples: Sequence[RankingExample],
    ranker: CrossEncoderReranker,
    size: int,
    *,
    seed: int,
    unit: Unit = "questions",
    ties: Ties = "half",
) -> Data:
    """Endless batches of ``size`` units, see `shuffled_batches`; InputError for fewer units.

    Units are "questions", each with all its rewrites, or "pairs" of rewrites of one question;
    ``ties`` says whether pairs of equal labels are units.
    """
    units = tokenised(examples, ranker)
    if unit == "pairs":
        units = in_pairs(units, ties)
    most = max((len(example.labels) for example in units), default=0)
    pad_id = ranker.module.config.pad_token_id

    def collate(some: Sequence[Tokenised]) -> RankerBatch:
        return make_batch(some, rewrites=most, limit=ranker.max_length, pad_id=pad_id)

    return shuffled_batches(units, size, seed=seed, name=unit, collate=collate)


def without_pair(batch: RankerBatch, ties: Ties) -> int:
    """Number of questions in a batch without a pair to learn from, whose loss is 0."""
    if ties == "half":
        return int((batch.where.sum(axis=1) < 2).sum())
    highest = np.where(batch.where, batch.labels, -np.inf).max(axis=1)
    lowest = np.where(batch.where, batch.labels, np.inf).min(axis=1)
    return int((highest <= lowest).sum())


def split(
    examples: Sequence[RankingExample], held_out: float, *, seed: int = 0
) -> tuple[list[RankingExample], list[RankingExample]]:
    """Training and held-out questions, each in the given order; none is held out at 0.

    A hash of seed and id decides, so that adding questions moves few between the parts. InputError
    where a part would be empty.
    """
    if not held_out:
        return [*examples], []
    count = round(held_out * len(examples))
    if not 0 < count < len(examples):
        raise InputError(
            f"held_out is {held_out} of {len(examples)} questions, that is {count}: at least 1 "
            "must be held out and at least 1 trained on."
        )

    def rank(example: RankingExample) -> str:
        return hashlib.sha256(f"{seed}\0{example.question_id}".encode()).hexdigest()

    out = {example.question_id for example in sorted(examples, key=rank)[:count]}
    return (
        [example for example in examples if example.question_id not in out],
        [example for example in examples if example.question_id in out],
    )
