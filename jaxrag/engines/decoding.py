"""From prompts that have been read to answers: the loop around the decoder's steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.engines.prefill import Batch, Job, Prefill
from jaxrag.engines.prompts import prompt_number
from jaxrag.models.decoder import Cache
from jaxrag.models.decoding import STEPS, Progress, Sampling, choose, decode, join


class Decoding:
    """Writes answers, several batches of prompts at once.

    A step of decoding costs little more for more rows, so it has more of them than prefill; again
    always the same number, lest a row's bits depend on how many there are.

    Args:
      prefill: reads the prompts.
      batches: of prefill that are decoded at once.
      ends: tokens that end an answer.
    """

    def __init__(self, prefill: Prefill, *, batches: int, ends: Sequence[int]) -> None:
        self._prefill, self._batches = prefill, batches
        self._ends = np.array(ends, np.int32)

    def groups(self, jobs: Sequence[Job]) -> Iterator[list[Batch]]:
        """Batches of prompts that have been read, as many as are decoded at once."""
        ready = self._prefill.batches(jobs)
        for _, batches in itertools.groupby(ready, key=lambda batch: batch.jobs[0].slots):
            while group := list(itertools.islice(batches, self._batches)):
                yield group

    def run(
        self,
        group: Sequence[Batch],
        count: int,
        *,
        temperature: float,
        seed: int,
        stopped: Callable[[Sequence[int]], bool],
    ) -> Iterator[tuple[int, list[int], list[float]]]:
        """Makes ``count`` tokens for each prompt, fewer once all have ended.

        Args:
          group: batches with room for ``count`` further tokens.
          stopped: whether an answer has ended, from its tokens so far; end tokens aside.

        Returns:
          For each prompt the number of its job, tokens, and their log-probabilities unscaled by
          temperature. They may run on after the answer's end.
        """
        jobs = self._rows([batch.jobs for batch in group], None)
        numbers = self._rows([batch.numbers for batch in group], None)
        sampling = Sampling(
            jnp.float32(temperature),
            jnp.uint32(seed & 0xFFFFFFFF),
            self._prefill.put(np.array([_row_number(job) for job in jobs], np.uint32)),
        )
        tokens, logprobs = self._loop(group, jobs, count, sampling, stopped)
        for i, *made in zip(numbers, tokens.tolist(), logprobs.tolist(), strict=True):
            if i is not None:
                yield i, *made

    def _rows(self, parts: Sequence[Sequence[Any]], filler: Any) -> list[Any]:
        """One entry for each row: those of each batch, filled up."""
        size, rows = self._prefill.rows, []
        for part in parts:
            rows += [*part, *[filler] * (size - len(part))]
        return rows + [filler] * (size * self._batches - len(rows))

    def _join(self, group: Sequence[Batch], slots: int) -> tuple[jax.Array, Cache]:
        """The batches as one: hidden states of the last tokens, and cache."""
        missing = self._batches - len(group)
        hidden = []
        for batch in group:
            last = [len(job.tokens) - 1 - batch.offset for job in batch.jobs]
            last += [0] * (self._prefill.rows - len(last))
            hidden.append(batch.hidden[np.arange(len(last)), np.array(last)])
        hidden += [jnp.zeros_like(hidden[0])] * missing
        empty = [self._prefill.empty(slots) for _ in range(missing)]
        return jnp.concatenate(hidden), join((*(batch.cache for batch in group), *empty))

    def _loop(
        self,
        group: Sequence[Batch],
        jobs: Sequence[Job | None],
        count: int,
        sampling: Sampling,
        stopped: Callable[[Sequence[int]], bool],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and log-probabilities of all rows, [b t]."""
        network, slots = (self._prefill.decoder, self._prefill.params), group[0].jobs[0].slots
        hidden, cache = self._join(group, slots)
        lengths = np.array([len(job.tokens) if job else 0 for job in jobs], np.int32)
        on_device = self._prefill.put(lengths)
        token, logprob = choose(*network, hidden, np.int32(0), sampling)
        tokens, logprobs = np.asarray(token)[:, None], np.asarray(logprob)[:, None]
        finished = np.isin(tokens[:, 0], self._ends) | (lengths == 0)
        while (made := tokens.shape[1]) < count:
            # the device sees end tokens; stop strings are for the host, every few steps
            finished = finished | [stopped(row) for row in tokens.tolist()]
            if finished.all():
                break
            cache, (token, over), *new = decode(
                *network,
                cache,
                Progress(token, self._prefill.put(finished)),
                on_device,
                np.int32(slots - count),
                np.int32(made),
                np.int32(min(STEPS, count - made)),
                self._ends,
                sampling,
            )
            finished = np.asarray(over)
            tokens = np.concatenate([tokens, new[0]], axis=1)
            logprobs = np.concatenate([logprobs, new[1]], axis=1)
        return tokens[:, :count], logprobs[:, :count]


def _row_number(job: Job | None) -> int:
    """What a row's draws depend on besides the seed: its prompt, and so not its place."""
    return prompt_number(job.tokens) if job else 0
