"""Batches of prompts through the decoder, beginnings that prompts share computed once.

A row's keys and values at a chunk depend on nothing but the tokens up to it (see
:mod:`jaxrag.models.decoding`), so chunks of a beginning that many prompts share, such as the
demonstrations of a method, are computed for one and copied to the others. All batches have the same
number of rows, because the order in which a matrix product sums may change with its size; so the
bits are those of computing everything, and who shared with whom leaves no trace in the results.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxrag.models.decoder import Cache, Decoder, empty_cache
from jaxrag.models.decoding import copy_in, copy_out, extend
from jaxrag.models.sharding import fitted

_log = logging.getLogger("jaxrag")
_REACH = 256  # a chunk reads slots up to a multiple of this, each with its own program


class Job(NamedTuple):
    """A sequence to run.

    Attributes:
      tokens: its ids.
      wanted: the first position whose hidden state is needed.
      slots: of its cache; sequences of one batch have the same number.
    """

    tokens: tuple[int, ...]
    wanted: int
    slots: int


class Batch(NamedTuple):
    """Sequences that were run.

    Attributes:
      jobs: the sequences, in the first rows; rows after them are fillers.
      numbers: where each stood among the jobs given.
      cache: keys and values.
      hidden: hidden states of positions ``offset`` and following, [b t d].
      offset: see ``hidden``.
    """

    jobs: Sequence[Job]
    numbers: Sequence[int]
    cache: Cache
    hidden: jax.Array
    offset: int


_Key = tuple[int, tuple[int, ...]]  # slots and all tokens up to a chunk's end


def in_batches(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """Consecutive parts of ``size`` items, the last as many as are left."""
    return [items[start : start + size] for start in range(0, len(items), size)]


class Prefill:
    """Runs sequences in batches of fixed shapes.

    Args:
      decoder, params: the network.
      rows: of each batch.
      chunk: tokens of a row in one call.
      shared_bytes: how much of shared beginnings is kept from call to call; 0 shares nothing.
      mesh: devices that ``params`` lie on.
    """

    def __init__(
        self,
        decoder: Decoder,
        params: dict[str, Any],
        *,
        rows: int,
        chunk: int,
        shared_bytes: int,
        mesh: Mesh | None,
    ) -> None:
        self.decoder, self.params = decoder, params
        self.rows, self._chunk, self._mesh = rows, chunk, mesh
        self._shared_bytes = shared_bytes
        self._blocks: OrderedDict[_Key, jax.Array] = OrderedDict()
        self._compiled: set[int] = set()

    def put(self, array: np.ndarray) -> jax.Array:
        """An array with one row for each of the batch, where the batch lies."""
        if self._mesh is None:
            return jnp.asarray(array)
        return jax.device_put(array, fitted(P("data"), array.shape, self._mesh))

    def batches(self, jobs: Sequence[Job]) -> Iterator[Batch]:
        """Runs all jobs; those of like length together."""
        shared = self._share(jobs) if self._shared_bytes else [0] * len(jobs)

        def order(i: int) -> tuple[int, int, int]:
            return jobs[i].slots, shared[i], len(jobs[i].tokens)

        for _, group in itertools.groupby(
            sorted(range(len(jobs)), key=order), key=lambda i: jobs[i].slots
        ):
            for numbers in in_batches(list(group), self.rows):
                yield self._run(
                    [jobs[i] for i in numbers], numbers, min(shared[i] for i in numbers)
                )

    def _run(self, jobs: Sequence[Job], numbers: Sequence[int], given: int) -> Batch:
        """Runs one batch whose first ``given`` chunks are at hand."""
        chunks = -(-max(len(job.tokens) for job in jobs) // self._chunk)
        tokens = np.zeros((self.rows, chunks * self._chunk), np.int32)
        for row, job in enumerate(jobs):
            tokens[row, : len(job.tokens)] = job.tokens
        cache = self._fill(self.empty(jobs[0].slots), jobs, given)
        kept = min(job.wanted for job in jobs) // self._chunk
        hidden = []
        for i in range(given, chunks):
            start, end = i * self._chunk, (i + 1) * self._chunk
            part = self.put(tokens[:, start:end])
            reach = min(-(-end // _REACH) * _REACH, jobs[0].slots)
            states, cache = extend(
                self.decoder, self.params, cache, part, np.int32(start), reach=reach
            )
            if i >= kept:
                hidden.append(states)
        states = jnp.concatenate(hidden, axis=1)
        return Batch(jobs, numbers, cache, states, kept * self._chunk)

    def empty(self, slots: int) -> Cache:
        """A cache for one batch with nothing in it."""
        if slots not in self._compiled:
            self._compiled.add(slots)
            _log.info("first batch of texts up to %d tokens: compiling", slots)
        config, dtype = self.decoder.config, self.decoder.dtype
        if self._mesh is None:
            return empty_cache(config, self.rows, slots, dtype)
        shape = (self.rows, config.num_key_value_heads)
        device = fitted(P("data", "model"), shape, self._mesh)
        return empty_cache(config, self.rows, slots, dtype, device=device)

    def _fill(self, cache: Cache, jobs: Sequence[Job], given: int) -> Cache:
        for i in range(given):
            blocks = [self._blocks[key] for key in (self._key(job, i) for job in jobs)]
            blocks += blocks[:1] * (self.rows - len(jobs))
            cache = copy_in(cache, tuple(blocks), np.int32(i * self._chunk))
        return cache

    def _key(self, job: Job, chunk: int) -> _Key:
        return job.slots, job.tokens[: (chunk + 1) * self._chunk]

    def _share(self, jobs: Sequence[Job]) -> list[int]:
        """For each job, how many of its first chunks are at hand, once those worth it are made."""
        self._forget()
        keys = [[self._key(job, i) for i in range(job.wanted // self._chunk)] for job in jobs]
        counts = Counter(itertools.chain.from_iterable(keys))
        worth = {key for key, n in counts.items() if key in self._blocks or n > self.rows}
        leading = [list(itertools.takewhile(worth.__contains__, row)) for row in keys]
        missing = {row[-1] for row in leading if not all(map(self._blocks.__contains__, row))}
        inner = {key for row in leading for key in row[:-1]}
        sources = [Job(tokens, len(tokens) - 1, slots) for slots, tokens in sorted(missing - inner)]
        self._make(sources)
        for key in itertools.chain.from_iterable(map(reversed, leading)):
            self._blocks.move_to_end(key)  # the first chunk last: it is of use without the others
        return [len(row) for row in leading]

    def _make(self, sources: list[Job]) -> None:
        """Runs beginnings and keeps each of their chunks."""
        for _, group in itertools.groupby(sources, key=lambda job: job.slots):
            for part in in_batches(list(group), self.rows):
                cache = self._run(part, (), 0).cache
                for row, job in enumerate(part):
                    self._keep(cache, row, job)

    def _keep(self, cache: Cache, row: int, job: Job) -> None:
        for i in range(len(job.tokens) // self._chunk):
            key, start = self._key(job, i), np.int32(i * self._chunk)
            if key not in self._blocks:
                self._blocks[key] = copy_out(cache, np.int32(row), start, length=self._chunk)

    def _forget(self) -> None:
        """Drops the beginnings that were not used for longest, down to the allowed memory."""
        held = sum(block.nbytes for block in self._blocks.values())
        while held > self._shared_bytes:
            held -= self._blocks.popitem(last=False)[1].nbytes
