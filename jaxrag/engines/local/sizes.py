"""The fixed shapes that the local engine computes in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax

from jaxrag.types import InputError

_SLOTS = 128  # caches have a multiple of this many slots
UNIT = 256
"""Caches of prefill have a multiple of this many; each number is a program."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Shapes of the local engine's programs.

    Attributes:
      prefill_rows: prompts that are read at once.
      decode_rows: answers that are written at once, a multiple of that.
      chunk: tokens of each prompt in one step of prefill.
      cache_bytes: most memory for keys and values of the answers that are being written.
    """

    prefill_rows: int
    decode_rows: int
    chunk: int
    cache_bytes: int

    @classmethod
    def choose(
        cls, prefill: int | None, decode: int | None, chunk: int | None, cache: int | None
    ) -> Sizes:
        """Those given; the others by the device's kind.

        Raises:
          InputError: they do not go together.
        """
        if jax.default_backend() == "cpu":
            sizes = cls(prefill or 8, decode or 32, chunk or 32, cache or 1 << 30)
        else:
            sizes = cls(prefill or 16, decode or 128, chunk or 128, cache or 1 << 33)
        if min(dataclasses.astuple(sizes)) < 1 or sizes.decode_rows % sizes.prefill_rows:
            raise InputError(
                f"prefill_rows is {sizes.prefill_rows}, decode_rows {sizes.decode_rows}, chunk "
                f"{sizes.chunk} and cache_bytes {sizes.cache_bytes}: all are to be at least 1, and "
                "decode_rows a multiple of prefill_rows."
            )
        return sizes

    @property
    def wide(self) -> int:
        """Tokens of one prompt for about the work of a step of prefill; a multiple of the chunk."""
        return min(self.prefill_rows * self.chunk, UNIT) // self.chunk * self.chunk

    def slots(self, length: int, new: int) -> int:
        """A cache for ``length`` tokens and ``new`` ones, by a rule that looks at this row only.

        Longer ones come in coarser sizes, since each is another program to compile.
        """
        needed = max(-(-length // self.chunk) * self.chunk, length + new)
        unit = max(_SLOTS, (1 << (needed - 1).bit_length()) // 4)
        return -(-needed // unit) * unit

    def classes(self, longest: int, new: int) -> Iterator[tuple[int, int]]:
        """For each cache that prompts up to ``longest`` tokens need: longest prompt, and slots."""
        length, last = 1, self.slots(longest, new)
        while length <= longest:
            slots = self.slots(length, new)
            while length < longest and self.slots(length + 1, new) == slots:
                length += 1
            yield length, slots
            if slots == last:
                return
            length += 1

    def smaller(self) -> Sizes | None:
        """With half the answers at once, then half the prompts; None where nothing is left."""
        if self.decode_rows % (2 * self.prefill_rows) == 0:
            return dataclasses.replace(self, decode_rows=self.decode_rows // 2)
        if self.prefill_rows % 2 == 0:
            half = self.prefill_rows // 2
            return dataclasses.replace(self, prefill_rows=half, decode_rows=half)
        return None
