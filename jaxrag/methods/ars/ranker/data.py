"""What a ranker is trained on: questions with labelled rewrites, tokenised and in batches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import grain
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxrag.functional.ranking import Ties
from jaxrag.methods.ars.ranker.settings import Training
from jaxrag.retrieval import buckets
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.training.loop import Data
from jaxrag.types import InputError


class Example(NamedTuple):
    """A question with its rewrites.

    Attributes:
      question_id: of its data set.
      question: its text.
      rewrites: of it, two or more.
      labels: y_i of each, how many of the passages that it found are relevant.
    """

    question_id: str
    question: str
    rewrites: tuple[str, ...]
    labels: tuple[int, ...]


class Batch(NamedTuple):
    """Questions with their rewrites, as the network reads them; NumPy arrays.

    Attributes:
      ids, segments: of each pair (question, rewrite), right-padded.
      lengths: tokens of each pair; 0 fills up.
      labels: of each rewrite.
      where: which rewrites there are; questions may have different numbers.
      place: number of the question in the batch, and
      step: number of the step, of which dropout draws.
    """

    ids: Int[Any, "q r t"]
    segments: Int[Any, "q r t"]
    lengths: Int[Any, "q r"]
    labels: Float[Any, "q r"]
    where: Bool[Any, "q r"]
    place: Int[Any, " q"]
    step: Int[Any, " q"]


class Tokenised(NamedTuple):
    """An example whose pairs are tokens."""

    pairs: tuple[buckets.Tokens, ...]
    labels: tuple[int, ...]


def tokenised(examples: Sequence[Example], ranker: CrossEncoderReranker) -> list[Tokenised]:
    """Every pair (question, rewrite) as the ranker's tokens, once for a whole training."""
    questions = [one.question for one in examples for _ in one.rewrites]
    rewrites = [rewrite for one in examples for rewrite in one.rewrites]
    tokens = iter(buckets.tokenize(ranker.tokenizer, questions, rewrites, limit=ranker.max_length))
    return [
        Tokenised(tuple(next(tokens) for _ in example.rewrites), example.labels)
        for example in examples
    ]


def make_batch(some: Sequence[Tokenised], *, rewrites: int, limit: int, pad_id: int) -> Batch:
    """A batch of step 0, as wide as the bucket of its longest pair.

    Args:
      some: its questions.
      rewrites: how many places each has for them.
      limit: greatest width.
      pad_id: fills up.
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
    return Batch(ids, segments, lengths, labels, lengths > 0, place, np.zeros_like(place))


def batches(examples: Sequence[Example], ranker: CrossEncoderReranker, settings: Training) -> Data:
    """Batches without end in an order that the seed decides, each question once an epoch.

    Every process makes the same whole batches, of which its devices take their rows.

    Raises:
      InputError: there are fewer questions than a batch has.
    """
    if len(examples) < settings.batch:
        raise InputError(
            f"There are {len(examples)} questions to train on, fewer than a batch of "
            f"{settings.batch}: lower batch (and microbatch), or label more questions."
        )
    most = max(len(example.rewrites) for example in examples)
    pad_id = ranker.module.config.pad_token_id

    def collate(some: Sequence[Tokenised]) -> Batch:
        return make_batch(some, rewrites=most, limit=ranker.max_length, pad_id=pad_id)

    dataset = grain.MapDataset.source(tokenised(examples, ranker)).seed(settings.seed).shuffle()
    dataset = dataset.repeat().batch(settings.batch, batch_fn=collate)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))


def without_pair(batch: Batch, ties: Ties) -> int:
    """How many of a batch's questions have no pair to learn from, and so a loss of 0."""
    if ties == "half":
        return int((batch.where.sum(axis=1) < 2).sum())
    highest = np.where(batch.where, batch.labels, -np.inf).max(axis=1)
    lowest = np.where(batch.where, batch.labels, np.inf).min(axis=1)
    return int((highest <= lowest).sum())


def split(
    examples: Sequence[Example], held_out: float, *, seed: int = 0
) -> tuple[list[Example], list[Example]]:
    """Questions to train on, and those held out, each in the given order.

    Which are held out goes by a hash of seed and id, so that more questions move few of them.

    Raises:
      InputError: the share leaves nothing on one side.
    """
    count = round(held_out * len(examples))
    if not 0 < count < len(examples):
        raise InputError(
            f"held_out is {held_out} of {len(examples)} questions, that is {count}: at least 1 is "
            "to be held out and 1 to be left."
        )

    def rank(example: Example) -> str:
        return hashlib.sha256(f"{seed}\0{example.question_id}".encode()).hexdigest()

    out = {example.question_id for example in sorted(examples, key=rank)[:count]}
    return (
        [example for example in examples if example.question_id not in out],
        [example for example in examples if example.question_id in out],
    )
