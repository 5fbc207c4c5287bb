"""Training data of a student: pairs of input and target, tokenised and batched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import grain
import jax
import numpy as np
from jaxtyping import Int

from jaxrag.training.loop import Data
from jaxrag.training.student.settings import StudentTraining
from jaxrag.training.student.students import Student, TokenPairs, encode
from jaxrag.types import InputError

_MULTIPLE = 8  # padded lengths are multiples of it


class TextPair(NamedTuple):
    """An input and its target, with the id of their question."""

    question_id: str
    input: str
    target: str


class StudentBatch(NamedTuple):
    """A batch of tokenised pairs, NumPy arrays.

    Attributes:
      pairs: token ids.
      place: position of each pair in the batch; it and ``step`` seed dropout.
      step: number of the step, repeated for each pair.
    """

    pairs: TokenPairs
    place: Int[Any, " b"]
    step: Int[Any, " b"]


def tokenised(pairs: Sequence[TextPair], student: Student) -> TokenPairs:
    """All pairs, padded to the longest, so that every batch has one shape."""
    found = encode(student, [one.input for one in pairs], [one.target for one in pairs])

    def wide(lengths: np.ndarray, limit: int) -> int:
        return min(-(-int(lengths.max()) // _MULTIPLE) * _MULTIPLE, limit)

    s = wide(found.source_length, student.max_source)
    t = wide(found.target_length, student.max_target)
    return found._replace(source=found.source[:, :s], target=found.target[:, :t])


def make_batch(pairs: TokenPairs) -> StudentBatch:
    """A batch with step number 0; see `jaxrag.training.optimisation.with_step`."""
    place = np.arange(len(pairs.source), dtype=np.int32)
    return StudentBatch(pairs, place, np.zeros_like(place))


def batches(pairs: TokenPairs, settings: StudentTraining) -> Data:
    """Endless shuffled batches, each pair once an epoch.

    Every process makes the same whole batches; its devices take their rows of them.

    Raises:
      InputError: there are fewer pairs than in a batch.
    """
    count = len(pairs.source)
    if count < settings.batch:
        raise InputError(
            f"There are {count} pairs to train on, fewer than a batch of {settings.batch}: lower "
            "batch (and microbatch), or make more pairs."
        )

    def collate(rows: Sequence[int]) -> StudentBatch:
        some = jax.tree.map(lambda array: array[np.asarray(rows)], pairs)
        return make_batch(some)

    dataset = grain.MapDataset.range(count).seed(settings.seed).shuffle().repeat()
    dataset = dataset.batch(settings.batch, batch_fn=collate)
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))
