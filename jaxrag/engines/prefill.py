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
from collections.abc import Sequence
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
_REACH = 256  # caches have, and chunks read, a multiple of this many slots; each a program


class Job(NamedTuple):
    """A sequence to run.

    Attributes:
      tokens: its ids.
      wanted: the first position whose hidden state is needed.
      slots: that are wanted of its cache; sequences of one batch have the same number.
    """

    tokens: tuple[int, ...]
    wanted: int
    slots: int


class Plan(NamedTuple):
    """A batch that is to be run: ``numbers`` of jobs, whose first ``given`` chunks are at hand."""

    numbers: Sequence[int]
    given: int


class Batch(NamedTuple):
    """Sequences that were run.

    Attributes:
      jobs: the sequences, in the first rows; rows after them are fillers.
      numbers: where each stood among the jobs given.
      cache: keys and values, at least the slots wanted; the next batch overwrites them.
      hidden: hidden states of positions ``offset`` and following, [b t d].
      offset: see ``hidden``.
    """

    jobs: Sequence[Job]
    numbers: Sequence[int]
    cache: Cache
    hidden: jax.Array
    offset: int


_Key = tuple[int, tuple[int, ...]]  # the cache's slots and all tokens up to a chunk's end


def _up(slots: int) -> int:
    """The next multiple of `_REACH`."""
    return -(-slots // _REACH) * _REACH


def in_batches(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """Consecutive parts of ``size`` items, the last as many as are left."""
    return [items[start : start + size] for start in range(0, len(items), size)]


class Network(NamedTuple):
    """A decoder as it runs.

    Attributes:
      decoder, params: the network.
      mesh: devices that ``params`` lie on; None is one device.
      shared_bytes: how much of shared beginnings is kept from call to call; 0 shares nothing.
    """

    decoder: Decoder
    params: dict[str, Any]
    mesh: Mesh | None
    shared_bytes: int


class Prefill:
    """Runs sequences in batches of fixed shapes: ``rows`` at once, ``chunk`` tokens in one call."""

    def __init__(self, network: Network, *, rows: int, chunk: int) -> None:
        self.decoder, self.params, self._mesh, self._shared_bytes = network
        self.rows, self._chunk = rows, chunk
        self._blocks: OrderedDict[_Key, jax.Array] = OrderedDict()
        self._compiled: set[int] = set()
        self._free: tuple[int, Cache] | None = None  # the last batch's cache, for the next

    def put(self, array: np.ndarray) -> jax.Array:
        """An array with one row for each of the batch, where the batch lies."""
        if self._mesh is None:
            return jnp.asarray(array)
        return jax.device_put(array, fitted(P("data"), array.shape, self._mesh))

    def plan(self, jobs: Sequence[Job]) -> dict[int, list[Plan]]:
        """All batches that the jobs make, by slots; sequences of like length go together.

        What many of them share is computed here. Run the plans before the next one is made.
        """
        shared = self._share(jobs) if self._shared_bytes else [0] * len(jobs)

        def order(i: int) -> tuple[int, int, int]:
            return jobs[i].slots, shared[i], len(jobs[i].tokens)

        classes = itertools.groupby(
            sorted(range(len(jobs)), key=order), key=lambda i: jobs[i].slots
        )
        return {
            slots: [
                Plan(numbers, min(shared[i] for i in numbers))
                for numbers in in_batches(list(group), self.rows)
            ]
            for slots, group in classes
        }

    def run(self, jobs: Sequence[Job], plan: Plan) -> Batch:
        """Runs one batch of the jobs that the plan was made for."""
        numbers, given = plan
        jobs = [jobs[i] for i in numbers]
        chunks = -(-max(len(job.tokens) for job in jobs) // self._chunk)
        tokens = np.zeros((self.rows, chunks * self._chunk), np.int32)
        for row, job in enumerate(jobs):
            tokens[row, : len(job.tokens)] = job.tokens
        slots = _up(jobs[0].slots)
        cache = self._fill(self._take(slots), jobs, given)
        kept = min(job.wanted for job in jobs) // self._chunk
        hidden = []
        for i in range(given, chunks):
            start, end = i * self._chunk, (i + 1) * self._chunk
            part = self.put(tokens[:, start:end])
            states, cache = extend(
                self.decoder, self.params, cache, part, np.int32(start), reach=_up(end)
            )
            if i >= kept:
                hidden.append(states)
        self._free = (slots, cache)
        return Batch(jobs, numbers, cache, jnp.concatenate(hidden, axis=1), kept * self._chunk)

    def _take(self, slots: int) -> Cache:
        """A cache for one batch; what an earlier one left in it is hidden from all that matters."""
        if self._free and self._free[0] == slots:
            cache, self._free = self._free[1], None
            return cache
        self._free = None
        if slots not in self._compiled:
            self._compiled.add(slots)
            _log.info("first batch of texts up to %d tokens: compiling", slots)
        return self.empty(self.rows, slots)

    def empty(self, rows: int, slots: int) -> Cache:
        """A cache with nothing in it."""
        config, stacked, device = self.decoder.config, self.decoder.stacked, None
        if self._mesh is not None:
            spec, shape = P("data", "model"), (rows, config.num_key_value_heads)
            if stacked:
                spec, shape = P(None, *spec), (config.num_hidden_layers, *shape)
            device = fitted(spec, shape, self._mesh)
        dtype = self.decoder.dtype
        return empty_cache(config, rows, slots, dtype, stacked=stacked, device=device)

    def _fill(self, cache: Cache, jobs: Sequence[Job], given: int) -> Cache:
        for i in range(given):
            blocks = [self._blocks[key] for key in (self._key(job, i) for job in jobs)]
            blocks += blocks[:1] * (self.rows - len(jobs))
            cache = copy_in(cache, tuple(blocks), np.int32(i * self._chunk))
        return cache

    def _key(self, job: Job, chunk: int) -> _Key:
        return _up(job.slots), job.tokens[: (chunk + 1) * self._chunk]

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
            batch = list(group)
            for numbers in in_batches(range(len(batch)), self.rows):
                made = self.run(batch, Plan(numbers, 0))
                for row, job in enumerate(made.jobs):
                    self._keep(made.cache, row, job)

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
