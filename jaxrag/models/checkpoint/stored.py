"""A tensor of a checkpoint that is read when it is needed, whole or in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Index = tuple[slice, ...]


class StoredTensor(NamedTuple):
    """A tensor of a file.

    Attributes:
      read: reads it.
      read_part: reads the part that some slices select; None reads all of it first.
      dtype: its type; None where it is a floating-point number's.
    """

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]
    read_part: Callable[[Index], np.ndarray] | None = None
    dtype: np.dtype | None = None

    def part(self, index: Index) -> np.ndarray:
        """The part that a slice for each axis selects."""
        return self.read()[index] if self.read_part is None else self.read_part(index)

    def rows(self, start: int, stop: int) -> StoredTensor:
        """A range of the tensor's rows, as a tensor that is not read yet."""

        def part(index: Index) -> np.ndarray:
            first, *others = index
            low, high, _ = first.indices(stop - start)
            return self.part((slice(start + low, start + high), *others))

        full_index: Any = (slice(None),) * len(self.shape)
        # of what was read whole, a view would keep all of it in memory
        return StoredTensor(
            (stop - start, *self.shape[1:]),
            lambda: part(full_index).copy(),
            lambda i: part(i).copy(),
            self.dtype,
        )
