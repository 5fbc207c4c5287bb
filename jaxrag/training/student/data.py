"""What a student is fine-tuned on: pairs of an input and a target, tokenised and in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import grain
import jax
import numpy as np
from jaxtyping import Int

from jaxrag.training.loop import Data
from jaxrag.training.query_optimizer_settings import Training
from jaxrag.training.students import Pairs, Student, encode
from jaxrag.types import InputError

_WIDTH = 8  # widths are multiples of it


class Pair(NamedTuple):
    """An input and what is to be written for it, with the id of their question."""

    question_id: str
    input: str
    target: str


class Batch(NamedTuple):
    """Pairs as the network reads them; NumPy arrays.

    Attributes:
      pairs: their tokens.
      place: number of the pair in the batch, and
      step: number of the step, of which dropout draws.
    """

    pairs: Pairs
    place: Int[Any, " b"]
    step: Int[Any, " b"]


def tokenised(pairs: Sequence[Pair], student: Student) -> Pairs:
    """All pairs, as wide as the longest of them: so a training has one shape."""
    found = encode(student, [one.input for one in pairs], [one.target for one in pairs])

    def wide(lengths: np.ndarray, limit: int) -> int:
        return min(-(-int(lengths.max()) // _WIDTH) * _WIDTH, limit)

    s = wide(found.source_length, student.max_source)
    t = wide(found.target_length, student.max_target)
    return found._replace(source=found.source[:, :s], target=found.target[:, :t])


def make_batch(pairs: Pairs) -> Batch:
    """A batch of step 0."""
    place = np.arange(len(pairs.source), dtype=np.int32)
    return Batch(pairs, place, np.zeros_like(place))


def batches(pairs: Pairs, settings: Training) -> Data:
    """Batches without end in an order that the seed decides, each pair once an epoch.

    Every process makes the same whole batches, of which its devices take their rows.

    Raises:
      InputError: there are fewer pairs than a batch has.
    """
    count = len(pairs.source)
    if count < settings.batch:
        raise InputError(
            f"There are {count} pairs to train on, fewer than a batch of {settings.batch}: lower "
            "batch (and piece), or make more pairs."
        )

    def collate(rows: Sequence[int]) -> Batch:
        some = jax.tree.map(lambda array: array[np.asarray(rows)], pairs)
        return make_batch(some)

    dataset = grain.MapDataset.range(count).seed(settings.seed).shuffle().repeat()
    dataset = dataset.batch(settings.batch, batch_fn=collate)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))
