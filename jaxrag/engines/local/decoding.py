"""From prompts to answers: rows of the decoder that are refilled as answers end."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from jaxrag.engines.local.answer_rows import AnswerDraw, AnswerRows, DecodingRequest, Finished
from jaxrag.engines.local.prefill import Prefill, group_equal
from jaxrag.models.decoder.cache import Cache


class Decoding:
    """Writes answers in a fixed number of rows (continuous batching; Yu et al., 2022, Orca).

    Rows whose answers have ended are given to the next prompts, as soon as those are read. A prompt
    is read once for all answers that are drawn from it. Once no more than ``tail`` answers remain,
    they go on in as many rows, which CPUs are faster with.

    Args:
      prefill: reads the prompts.
      rows: answers that are written at once, a multiple of the rows of prefill.
      tail: at most ``rows``; fewer only where a row's bits do not depend on how many there are
        (see `jaxrag.engines.local.shape_invariance`).
      end_tokens: what ends an answer.
      cache_bytes: caches may take that much; longer ones have fewer rows, by halves.
    """

    def __init__(
        self,
        prefill: Prefill,
        *,
        rows: int,
        tail: int,
        end_tokens: Sequence[int],
        cache_bytes: int,
    ) -> None:
        self._prefill, self._rows, self._tail = prefill, rows, tail
        self._cache_bytes, self._end_tokens = cache_bytes, frozenset(end_tokens)
        self._free: tuple[int, dict[int, Cache]] = (0, {})  # of the last answers, by rows

    def run(self, draws: Sequence[AnswerDraw], request: DecodingRequest) -> Iterator[Finished]:
        """Writes each answer; the first to end comes first."""
        same = group_equal(draw.job for draw in draws)
        numbers = list(same.values())
        for slots, reading in self._prefill.readings(list(same)):
            caches = self._free[1] if self._free[0] == slots else {}
            self._free = (0, {})  # caches of other slots are let go of before new ones are made
            answers = AnswerRows(
                self._prefill,
                functools.partial(self._prefill.empty, slots=slots),
                caches,
                request,
                self._end_tokens,
                sizes=self.sizes(slots),
            )
            yield from answers.run(draws, numbers, reading)
            self._free = (slots, answers.caches)

    def sizes(self, slots: int) -> tuple[int, ...]:
        """How many rows there may be, ascending: for the last answers, and for all."""
        return tuple(sorted({min(self._tail, self.rows(slots)), self.rows(slots)}))

    def rows(self, slots: int) -> int:
        """How many answers with so many slots are written at once; nothing else decides it."""
        config, rows = self._prefill.decoder.config, self._rows
        width = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
        each = width * slots * np.dtype(self._prefill.decoder.dtype).itemsize
        while rows * each > self._cache_bytes and rows % (2 * self._prefill.rows) == 0:
            rows //= 2
        return rows
