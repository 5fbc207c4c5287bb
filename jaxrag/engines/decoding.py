"""From prompts to answers: rows of the decoder that are refilled as answers end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import jax.numpy as jnp
import numpy as np

from jaxrag.engines.prefill import Batch, Job, Plan, Prefill
from jaxrag.engines.prompts import prompt_number
from jaxrag.models.decoder import Cache
from jaxrag.models.decoding import STEPS, Limits, Rows, Sampling, choose, decode, place


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

    Rows whose answers have ended are given to the next prompts, a batch of prefill at a time. There
    are always the same number of rows, lest a row's bits depend on how many are in use.

    Args:
      prefill: reads the prompts.
      rows: answers that are written at once, a multiple of the rows of prefill.
      end_tokens: what ends an answer.
      cache_bytes: caches may take that much; longer ones have fewer rows, by halves.
    """

    def __init__(
        self, prefill: Prefill, *, rows: int, end_tokens: Sequence[int], cache_bytes: int
    ) -> None:
        self._prefill, self._rows, self._cache_bytes = prefill, rows, cache_bytes
        self._end_tokens = frozenset(end_tokens)
        self._free: tuple[int, Cache] | None = None  # of the last answers, for the next ones

    def run(self, jobs: Sequence[Job], request: Request) -> Iterator[Finished]:
        """Answers each prompt; the first to end comes first."""
        for slots, plans in self._prefill.plan(jobs).items():
            free, self._free = self._free, None
            size = self.rows(slots)
            cache = free[1] if free and free[0] == slots else self._prefill.empty(size, slots)
            answers = _Class(self._prefill, cache, request, self._end_tokens, size=size)
            yield from answers.run(jobs, plans)
            self._free = (slots, answers.cache)

    def rows(self, slots: int) -> int:
        """How many answers with so many slots are written at once; nothing else decides it."""
        config, rows = self._prefill.decoder.config, self._rows
        width = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
        each = width * slots * np.dtype(self._prefill.decoder.dtype).itemsize
        while rows * each > self._cache_bytes and rows % (2 * self._prefill.rows) == 0:
            rows //= 2
        return rows


class _Class:
    """Answers whose caches have the same number of slots."""

    def __init__(
        self,
        prefill: Prefill,
        cache: Cache,
        request: Request,
        end_tokens: frozenset[int],
        *,
        size: int,
    ) -> None:
        self.cache = cache
        self._prefill, self._request, self._end_tokens = prefill, request, end_tokens
        self._answers: list[_Answer | None] = [None] * size
        self._token, self._position, self._made = np.zeros((3, size), np.int32)
        self._numbers = np.zeros(size, np.uint32)  # what a row's draws depend on, not on its place

    def run(self, jobs: Sequence[Job], plans: Sequence[Plan]) -> Iterator[Finished]:
        waiting = list(reversed(plans))
        while True:
            while waiting and len(self._unused()) >= len(waiting[-1].numbers):
                self._enter(self._prefill.run(jobs, waiting.pop()))
                yield from self._leave()
            if all(answer is None for answer in self._answers):
                if waiting:
                    continue
                return
            self._step(len(waiting[-1].numbers) if waiting else len(self._answers))
            yield from self._leave()

    def _unused(self) -> list[int]:
        return [row for row, answer in enumerate(self._answers) if answer is None]

    def _sampling(self, numbers: np.ndarray) -> Sampling:
        request = self._request
        return Sampling(
            jnp.float32(request.temperature),
            jnp.uint32(request.seed & 0xFFFFFFFF),
            self._prefill.put(numbers),
        )

    def _enter(self, batch: Batch) -> None:
        """Gives unused rows to prompts that have been read, each with its first new token."""
        size = self._prefill.rows
        last, numbers = np.zeros(size, np.int32), np.zeros(size, np.uint32)
        for i, job in enumerate(batch.jobs):
            last[i], numbers[i] = len(job.tokens) - 1 - batch.offset, prompt_number(job.tokens)
        token, logprob = choose(
            self._prefill.decoder,
            self._prefill.params,
            batch.hidden[np.arange(size), last],
            np.zeros(size, np.int32),
            self._sampling(numbers),
        )
        rows = np.zeros(size, np.int32)
        rows[: len(batch.jobs)] = self._unused()[: len(batch.jobs)]
        self.cache = place(self.cache, batch.cache, rows, np.int32(len(batch.jobs)))
        tokens, logprobs = np.asarray(token), np.asarray(logprob)
        for i, (job, number) in enumerate(zip(batch.jobs, batch.numbers, strict=True)):
            row = rows[i]
            self._answers[row] = _Answer(number, [int(tokens[i])], [float(logprobs[i])])
            self._token[row], self._position[row], self._made[row] = tokens[i], len(job.tokens), 1
            self._numbers[row] = numbers[i]

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
        self.cache, after, tokens, logprobs = decode(
            self._prefill.decoder,
            self._prefill.params,
            self.cache,
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
