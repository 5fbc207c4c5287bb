"""Sources of an encoder-decoder in batches of fixed shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt

from jaxrag.engines.prompts import prompt_number

SOURCE, ANSWER = 32, 16
"""The least tokens that sources and answers are padded to; each number is a program."""


def padded_length(length: int, least: int) -> int:
    """How many tokens one of ``length`` is padded to, by a rule that looks at it alone.

    Longer ones come in coarser sizes: multiples of a quarter of the power of two above.
    """
    unit = max(least, (1 << (length - 1).bit_length()) // 4)
    return -(-length // unit) * unit


class SourceBatch(NamedTuple):
    """Rows for one program; those beyond ``jobs`` hold nothing.

    Attributes:
      jobs: which jobs the first rows are.
      tokens, where: sources padded on the right, and which of their tokens are there.
      numbers: what each row's draws depend on besides the seed.
      targets: answers padded on the right, where they are given; otherwise empty.
    """

    jobs: tuple[int, ...]
    tokens: Int[np.ndarray, "b s"]
    where: Bool[np.ndarray, "b s"]
    numbers: UInt[np.ndarray, " b"]
    targets: Int[np.ndarray, "b t"]


def source_batches(
    sources: Sequence[Sequence[int]], rows: int, *, targets: Sequence[Sequence[int]] | None = None
) -> Iterator[SourceBatch]:
    """All sources, each among others of its width (and its answer's); the longest first.

    What a row holds depends on its own source and answer only.

    Args:
      sources: tokens of each.
      rows: of a batch.
      targets: an answer to each, where they are given.
    """
    answers = targets if targets is not None else [()] * len(sources)
    shapes = [
        (padded_length(len(source), SOURCE), padded_length(len(answer), ANSWER) if answer else 0)
        for source, answer in zip(sources, answers, strict=True)
    ]
    for shape in sorted(set(shapes), reverse=True):
        of_shape = [i for i, other in enumerate(shapes) if other == shape]
        for first in range(0, len(of_shape), rows):
            yield _batch(of_shape[first : first + rows], sources, answers, shape, rows)


def _batch(
    jobs: Sequence[int],
    sources: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    shape: tuple[int, int],
    rows: int,
) -> SourceBatch:
    (wide, long), numbers = shape, np.zeros(rows, np.uint32)
    tokens, where = np.zeros((rows, wide), np.int32), np.zeros((rows, wide), np.bool_)
    targets = np.zeros((rows, long), np.int32)
    for row, job in enumerate(jobs):
        source, answer = sources[job], answers[job]
        tokens[row, : len(source)], where[row, : len(source)] = source, True
        targets[row, : len(answer)], numbers[row] = answer, prompt_number(source)
    return SourceBatch(tuple(jobs), tokens, where, numbers, targets)
