"""From prompts to answers: rows of the decoder that are refilled as answers end."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import jax.numpy as jnp
import numpy as np

from jaxrag.engines.prefill import Job, Prefill, Reading, Step
from jaxrag.engines.prompts import prompt_number
from jaxrag.models.cache import Cache, place, take
from jaxrag.models.decoding import STEPS, Limits, Rows, Sampling, choose, decode


@dataclasses.dataclass(frozen=True)
class Request:
    """What is wanted of all prompts of a call.

    Attributes:
      count: most new tokens.
      temperature, seed: how tokens are chosen; 0 is greedy.
      ends: tokens that end an answer, or at which `stopped` may become true, [v].
      stopped: whether an answer has ended, from its tokens so far; end tokens aside.
    """

    count: int
    temperature: float
    seed: int
    ends: np.ndarray
    stopped: Callable[[Sequence[int]], bool]


@dataclasses.dataclass
class _Answer:
    """An answer that is being written, in one row."""

    job: int
    tokens: list[int]
    logprobs: list[float]


Finished = tuple[int, list[int], list[float]]
"""The number of a job, the tokens made and their log-probabilities; they may run on after the
answer's end."""


class Decoding:
    """Writes answers in a fixed number of rows (continuous batching; Yu et al., 2022, Orca).

    Rows whose answers have ended are given to the next prompts, as soon as those are read. Once
    no more than ``tail`` answers remain, they go on in as many rows, which CPUs are faster with.

    Args:
      prefill: reads the prompts.
      rows: answers that are written at once, a multiple of the rows of prefill.
      tail: at most ``rows``; fewer only where a row's bits do not depend on how many there are
        (see `jaxrag.engines.trial`).
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

    def run(self, jobs: Sequence[Job], request: Request) -> Iterator[Finished]:
        """Answers each prompt; the first to end comes first."""
        for slots, reading in self._prefill.readings(jobs):
            (held, caches), self._free = self._free, (0, {})
            answers = _Class(
                self._prefill,
                functools.partial(self._prefill.empty, slots=slots),
                caches if held == slots else {},
                request,
                self._end_tokens,
                sizes=self.sizes(slots),
            )
            yield from answers.run(jobs, reading)
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


class _Class:
    """Answers whose caches have the same number of slots.

    Args:
      prefill, end_tokens: as in `Decoding`.
      empty: makes a cache for so many rows.
      caches: those at hand, by rows.
      request: what is wanted.
      sizes: how many rows there may be, ascending.
    """

    def __init__(
        self,
        prefill: Prefill,
        empty: Callable[[int], Cache],
        caches: dict[int, Cache],
        request: Request,
        end_tokens: frozenset[int],
        *,
        sizes: tuple[int, ...],
    ) -> None:
        self.caches, self._empty, self._sizes = caches, empty, sizes
        self._prefill, self._request, self._end_tokens = prefill, request, end_tokens

    def run(self, jobs: Sequence[Job], reading: Reading) -> Iterator[Finished]:
        self._open(reading.count)
        while not reading.over or len(self._unused()) < len(self._answers):
            while not reading.over and len(self._unused()) >= reading.prepare():
                self._enter(jobs, reading.step())
                yield from self._leave()
            left = len(self._answers) - len(self._unused())
            if left:
                if reading.over:
                    self._shrink(left)
                self._step(len(self._answers) if reading.over else reading.prepare())
                yield from self._leave()

    def _size(self, answers: int) -> int:
        """The fewest rows that hold so many answers, or the most there are."""
        return next((size for size in self._sizes if size >= answers), self._sizes[-1])

    def _open(self, answers: int) -> None:
        size = self._size(answers)
        if size not in self.caches:
            self.caches[size] = self._empty(size)
        self._answers: list[_Answer | None] = [None] * size
        self._token, self._position, self._made = np.zeros((3, size), np.int32)
        self._numbers = np.zeros(size, np.uint32)  # what a row's draws depend on, not on its place

    def _shrink(self, left: int) -> None:
        """Goes on in fewer rows, if those suffice for all answers that are ``left``."""
        size, now = self._size(left), len(self._answers)
        if size == now:
            return
        order = sorted(range(now), key=lambda row: self._answers[row] is None)[:size]
        self.caches[size] = take(self.caches[now], np.array(order, np.int32))
        self._answers = [self._answers[row] for row in order]
        self._token, self._position = self._token[order], self._position[order]
        self._made, self._numbers = self._made[order], self._numbers[order]

    def _unused(self) -> list[int]:
        return [row for row, answer in enumerate(self._answers) if answer is None]

    def _sampling(self, numbers: np.ndarray) -> Sampling:
        request = self._request
        return Sampling(
            jnp.float32(request.temperature),
            jnp.uint32(request.seed & 0xFFFFFFFF),
            self._prefill.put(numbers),
        )

    def _enter(self, jobs: Sequence[Job], step: Step) -> None:
        """Gives unused rows to prompts that have been read, each with its first new token."""
        done = [read for read in step.rows if read.done]
        if not done:
            return
        size = self._prefill.rows
        chunk, last, sources, rows = np.zeros((4, size), np.int32)
        numbers = np.zeros(size, np.uint32)
        for read in done:
            tokens = jobs[read.number].tokens
            chunk[read.row] = read.row - step.first
            last[read.row] = len(tokens) - 1 - read.start
            numbers[read.row] = prompt_number(tokens)
        token, logprob = choose(
            self._prefill.decoder,
            self._prefill.params,
            step.hidden[chunk, last],
            np.zeros(size, np.int32),
            self._sampling(numbers),
        )
        sources[: len(done)] = [read.row for read in done]
        rows[: len(done)] = self._unused()[: len(done)]
        cache = self.caches.pop(len(self._answers))
        self.caches[len(self._answers)] = place(
            cache, step.cache, sources, rows, np.int32(len(done))
        )
        tokens, logprobs = np.asarray(token), np.asarray(logprob)
        for row, read in zip(rows.tolist(), done, strict=False):
            first = int(tokens[read.row]), float(logprobs[read.row])
            self._answers[row] = _Answer(read.number, [first[0]], [first[1]])
            self._token[row], self._made[row] = first[0], 1
            self._position[row] = len(jobs[read.number].tokens)
            self._numbers[row] = numbers[read.row]

    def _step(self, wanted: int) -> None:
        """Goes on with all answers, until ``wanted`` rows are unused or for some steps."""
        put = self._prefill.put
        unused = np.array([answer is None for answer in self._answers])
        limits = Limits(
            jnp.int32(self._request.count),
            jnp.int32(STEPS),
            jnp.int32(wanted),
            jnp.asarray(self._request.ends),
        )
        self.caches[len(self._answers)], after, tokens, logprobs = decode(
            self._prefill.decoder,
            self._prefill.params,
            self.caches.pop(len(self._answers)),
            Rows(put(self._token), put(self._position), put(self._made), put(unused)),
            limits,
            self._sampling(self._numbers),
        )
        made = np.asarray(after.made)
        new = (made - self._made).tolist()
        tokens, logprobs = np.asarray(tokens).tolist(), np.asarray(logprobs).tolist()
        for row, answer in enumerate(self._answers):
            if answer is not None:
                answer.tokens += tokens[row][: new[row]]
                answer.logprobs += logprobs[row][: new[row]]
        self._token, self._position = np.array(after.token), np.array(after.position)
        self._made = made.copy()

    def _leave(self) -> Iterator[Finished]:
        for row, answer in enumerate(self._answers):
            if answer is not None and self._over(answer):
                self._answers[row] = None
                yield answer.job, answer.tokens, answer.logprobs

    def _over(self, answer: _Answer) -> bool:
        return (
            len(answer.tokens) >= self._request.count
            or not self._end_tokens.isdisjoint(answer.tokens)
            or self._request.stopped(answer.tokens)
        )
