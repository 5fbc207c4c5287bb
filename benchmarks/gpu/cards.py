"""NVIDIA GPUs that programs are timed on.

Figures are those of the maker's datasheets, of the SXM forms: dense bfloat16 operations, bytes of
memory and of NVLink a second, bytes of memory.
"""

from __future__ import annotations

import dataclasses

from benchmarks.tpu.chips import Chip, Place, Slice
from jaxrag.types import InputError

CARDS = {
    "A100": Chip(312e12, 2039e9, 600e9, int(80e9)),
    "H100": Chip(989e12, 3350e9, 900e9, int(80e9)),
    "H200": Chip(989e12, 4800e9, 900e9, int(141e9)),
}


@dataclasses.dataclass(frozen=True)
class Card(Slice):
    """One GPU, in the place of a slice of TPUs; ``topology`` is its kind."""

    @property
    def chip(self) -> Chip:
        """Its figures."""
        return CARDS[self.topology]

    @property
    def name(self) -> str:
        """For tables."""
        return self.topology

    def place(self) -> Place:
        """JAX's default device."""
        return Place()


def card(kind: str) -> Card:
    """The card that JAX calls ``kind``, such as "NVIDIA H100 80GB HBM3".

    Raises:
      InputError: its figures are not known.
    """
    for name in CARDS:
        if name in kind:
            return Card(name)
    raise InputError(f"No figures of {kind!r}: add it to CARDS in {__name__}.")
