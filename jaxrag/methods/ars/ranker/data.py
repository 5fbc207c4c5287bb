"""Training data of the ranker: questions with labelled rewrites, tokenised and in batches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import grain
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxrag.functional.ranking import Ties
from jaxrag.methods.ars.ranker.settings import RankerTraining
from jaxrag.retrieval import buckets
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.training.loop import Data
from jaxrag.types import InputError


class RankingExample(NamedTuple):
    """A question with two or more rewrites and their labels y_i, counts of relevant passages."""

    question_id: str
    question: str
    rewrites: tuple[str, ...]
    labels: tuple[int, ...]


class RankerBatch(NamedTuple):
    """A batch of questions with their rewrites; NumPy arrays.

    Attributes:
      ids, segments: token and segment ids of each pair (question, rewrite), right-padded.
      lengths: tokens of each pair; 0 for padding.
      labels: of each rewrite.
      where: False for padding; questions may have different numbers of rewrites.
      place: index of the question in the batch; with ``step`` the source of dropout's randomness.
      step: index of the step.
    """

    ids: Int[Any, "q r t"]
    segments: Int[Any, "q r t"]
    lengths: Int[Any, "q r"]
    labels: Float[Any, "q r"]
    where: Bool[Any, "q r"]
    place: Int[Any, " q"]
    step: Int[Any, " q"]


class Tokenised(NamedTuple):
    """An example with tokenised pairs."""

    pairs: tuple[buckets.Tokens, ...]
    labels: tuple[int, ...]


def tokenised(examples: Sequence[RankingExample], ranker: CrossEncoderReranker) -> list[Tokenised]:
    """Tokenises every pair (question, rewrite)."""
    questions = [one.question for one in examples for _ in one.rewrites]
    rewrites = [rewrite for one in examples for rewrite in one.rewrites]
    tokens = iter(buckets.tokenize(ranker.tokenizer, questions, rewrites, limit=ranker.max_length))
    return [
        Tokenised(tuple(next(tokens) for _ in example.rewrites), example.labels)
        for example in examples
    ]


def make_batch(some: Sequence[Tokenised], *, rewrites: int, limit: int, pad_id: int) -> RankerBatch:
    """A batch of step 0, padded to the bucket of its longest pair.

    Args:
      some: the questions.
      rewrites: to which every question is padded.
      limit: greatest number of tokens.
      pad_id: the padding token.
    """
    longest = max(len(pair.ids) for one in some for pair in one.pairs)
    shape = (len(some), rewrites)
    wide = (*shape, buckets.bucket_width(longest, limit=limit))
    ids, segments = np.full(wide, pad_id, np.int32), np.zeros(wide, np.int32)
    lengths, labels = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    for row, one in enumerate(some):
        labels[row, : len(one.labels)] = one.labels
        for column, pair in enumerate(one.pairs):
            lengths[row, column] = length = len(pair.ids)
            ids[row, column, :length], segments[row, column, :length] = pair
    place = np.arange(len(some), dtype=np.int32)
    return RankerBatch(ids, segments, lengths, labels, lengths > 0, place, np.zeros_like(place))


def batches(
    examples: Sequence[RankingExample], ranker: CrossEncoderReranker, settings: RankerTraining
) -> Data:
    """Infinite batches in an order that the seed determines, each question once an epoch.

    Every process makes the same whole batches, of which its devices take their rows.

    Raises:
      InputError: there are fewer questions than ``settings.batch``.
    """
    if len(examples) < settings.batch:
        raise InputError(
            f"There are {len(examples)} questions to train on, fewer than a batch of "
            f"{settings.batch}: lower batch (and microbatch), or label more questions."
        )
    most = max(len(example.rewrites) for example in examples)
    pad_id = ranker.module.config.pad_token_id

    def collate(some: Sequence[Tokenised]) -> RankerBatch:
        return make_batch(some, rewrites=most, limit=ranker.max_length, pad_id=pad_id)

    dataset = grain.MapDataset.source(tokenised(examples, ranker)).seed(settings.seed).shuffle()
    dataset = dataset.repeat().batch(settings.batch, batch_fn=collate)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))


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
    """Training and held-out questions, each in the given order.

    A hash of seed and id decides, so that adding questions moves few between the parts.

    Raises:
      InputError: one part would be empty.
    """
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
