"""Decoding by continuous batching: rows of the cache go to the next prompt as answers end."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrag.engines.local.prefill import (
    Prefill,
    PrefilledRow,
    PrefillGroup,
    PrefillJob,
    PrefillStep,
    group_equal,
)
from jaxrag.engines.prompts import prompt_number
from jaxrag.models.cache import Cache, place, take
from jaxrag.models.decoder.decoding import STEPS, DecodingLimits, DecodingRows, decode, next_token
from jaxrag.models.sampling import Repetition, TokenSampling


class AnswerDraw(NamedTuple):
    """A requested answer, or the rest of one.

    Attributes:
      job: its prompt, and the tokens ``begun``, the answer's first if they are known.
      seed: of its samples.
      count: limit of new tokens, with those begun.
    """

    job: PrefillJob
    seed: int
    count: int
    begun: tuple[int, ...] = ()

    @property
    def prompt(self) -> tuple[int, ...]:
        """Tokens of the prompt."""
        return self.job.tokens[: len(self.job.tokens) - len(self.begun)]


MISSED_STEPS = 128
"""Decoding steps with too many rows after which the program for fewer rows is compiled.

They lose about as much time as that compilation takes.
"""


@dataclasses.dataclass(frozen=True)
class DecodingRequest:
    """Options of a call.

    Attributes:
      ends: mask [v] of end tokens, and of tokens after which ``stopped`` may be true.
      stopped: whether an answer has met a stop string, from its prompt and its tokens so far.
    """

    temperature: float
    ends: np.ndarray
    stopped: Callable[[Sequence[int], Sequence[int]], bool]
    repetition_penalty: float = 1.0


@dataclasses.dataclass
class _Answer:
    """An answer in progress, in one row; ``logprobs`` are of the tokens not begun."""

    number: int
    prompt: tuple[int, ...]
    count: int
    tokens: list[int]
    logprobs: list[float]


class RowCounts:
    """Chooses the batch size of decoding; each size is a compiled program.

    Sizes in use are preferred. A smaller size is compiled only after `MISSED_STEPS` steps that it
    would have made faster. Sizes are ascending.
    """

    def __init__(self, allowed: Sequence[int]) -> None:
        self._allowed, self._used, self._missed = tuple(allowed), set[int](), 0

    def choose(self, answers: int) -> int:
        """The number of rows for so many answers."""
        enough = [rows for rows in self._allowed if rows >= answers] or [self._allowed[-1]]
        used = [rows for rows in enough if rows in self._used]
        best = used[0] if used and self._missed < MISSED_STEPS else enough[0]
        self._used.add(best)
        return best

    def record(self, rows: int, answers: int, steps: int) -> None:
        """Records decoding steps of ``answers`` in a batch of ``rows``."""
        if any(answers <= fewer < rows for fewer in self._allowed):
            self._missed += steps


Finished = tuple[int, list[int], list[float]]
"""Index of an answer, its tokens, and log-probabilities of those that were not begun.

They may extend beyond the answer's end.
"""


class AnswerRows:
    """Decodes answers whose caches, by number of rows, have the same number of slots."""

    def __init__(self, decoding: Decoding, slots: int, request: DecodingRequest) -> None:
        held, caches = decoding.free
        decoding.free = (0, {})  # frees caches of other sizes before new ones are made
        self.caches = caches if held == slots else {}
        self._counts = decoding.counts.setdefault(slots, RowCounts(decoding.sizes(slots)))
        self._prefill, self._end_tokens = decoding.prefill, decoding.end_tokens
        self._slots, self._request = slots, request

    def run(
        self, draws: Sequence[AnswerDraw], numbers: Sequence[Sequence[int]], reading: PrefillGroup
    ) -> Iterator[Finished]:
        """Decodes the answers to the prompts of ``reading``; ``numbers`` has theirs by prompt."""
        self._decoder = reading.decoder
        size = self._counts.choose(sum(len(numbers[i]) for i in reading.numbers))
        if size not in self.caches:
            self.caches[size] = self._prefill.empty(size, self._slots)
        self._answers: list[_Answer | None] = [None] * size
        self._token, self._position, self._made, self._count = np.zeros((4, size), np.int32)
        self._numbers, self._seeds = np.zeros((2, size), np.uint32)
        # answers that wait for a row, their prompts having been read in the last prefill step
        read: deque[tuple[PrefilledRow, int]] = deque()
        step: PrefillStep | None = None
        while read or not reading.over or len(self._unused()) < len(self._answers):
            if not read and reading.over:
                self._shrink()
                rows, unused = len(self._answers), len(self._unused())
                self._counts.record(rows, rows - unused, self._step(rows))
                yield from self._leave()
                continue
            coming = len(read) or sum(len(numbers[i]) for i in reading.prepare())
            # waiting for a row for each prompt would make all rows wait for the longest answer
            wanted = min(coming, self._prefill.rows, max(1, len(self._answers) // 4))
            if wanted > (unused := len(self._unused())):
                self._step(wanted)
            elif step is not None and read:
                entering = min(len(read), unused, self._prefill.rows)
                self._enter(draws, step, [read.popleft() for _ in range(entering)])
            else:
                step = reading.step()
                done = [row for row in step.rows if row.done]
                read.extend((row, number) for row in done for number in numbers[row.number])
            yield from self._leave()

    def _shrink(self) -> None:
        """Moves the remaining answers to fewer rows if they fit."""
        now = len(self._answers)
        size = self._counts.choose(now - len(self._unused()))
        if size == now:
            return
        order = sorted(range(now), key=lambda row: self._answers[row] is None)[:size]
        self.caches[size] = take(self.caches[now], np.array(order, np.int32))
        self._answers = [self._answers[row] for row in order]
        self._token, self._position = self._token[order], self._position[order]
        self._made, self._count = self._made[order], self._count[order]
        self._numbers, self._seeds = self._numbers[order], self._seeds[order]

    def _unused(self) -> list[int]:
        return [row for row, answer in enumerate(self._answers) if answer is None]

    def _sampling(
        self, numbers: np.ndarray, seeds: np.ndarray, texts: Sequence[Sequence[int]]
    ) -> TokenSampling:
        """How the next tokens are chosen; ``texts`` are the tokens of the first rows so far."""
        put, temperature = self._prefill.put, jnp.float32(self._request.temperature)
        penalty, repetition = self._request.repetition_penalty, None
        if penalty != 1:
            seen = np.zeros((len(seeds), len(self._request.ends)), bool)
            for row, text in enumerate(texts):
                seen[row, list(text)] = True
            repetition = Repetition(jnp.float32(penalty), put(seen))
        return TokenSampling(temperature, put(seeds), put(numbers), repetition)

    def _enter(
        self,
        draws: Sequence[AnswerDraw],
        step: PrefillStep,
        read: Sequence[tuple[PrefilledRow, int]],
    ) -> None:
        """Assigns unused rows to answers whose prompts have been read, with their first tokens."""
        size = self._prefill.rows
        chunk, last, begun, sources, rows = np.zeros((5, size), np.int32)
        numbers, seeds = np.zeros((2, size), np.uint32)
        for i, (prefilled, number) in enumerate(read):
            draw = draws[number]
            chunk[i], last[i] = step.index(prefilled, len(draw.job.tokens) - 1)
            numbers[i], seeds[i] = prompt_number(draw.prompt), draw.seed & 0xFFFFFFFF
            begun[i] = len(draw.begun)
        token, logprob = next_token(
            self._prefill.decoder,
            self._prefill.params,
            step.hidden[chunk, last],
            begun,
            self._sampling(numbers, seeds, [draws[number].job.tokens for _, number in read]),
        )
        sources[: len(read)] = [prefilled.row for prefilled, _ in read]
        rows[: len(read)] = self._unused()[: len(read)]
        cache = self.caches.pop(len(self._answers))
        self.caches[len(self._answers)] = place(
            cache, step.cache, sources, rows, np.int32(len(read))
        )
        tokens, logprobs = np.asarray(token), np.asarray(logprob)
        for i, (row, (_, number)) in enumerate(zip(rows.tolist(), read, strict=False)):
            draw, first = draws[number], int(tokens[i])
            made = [*draw.begun, first]
            self._answers[row] = _Answer(
                number, draw.prompt, draw.count, made, [float(logprobs[i])]
            )
            self._token[row], self._made[row], self._count[row] = first, len(made), draw.count
            self._position[row] = len(draw.job.tokens)
            self._numbers[row], self._seeds[row] = numbers[i], seeds[i]

    def _step(self, wanted: int) -> int:
        """Decodes up to `STEPS` tokens of all answers, fewer once ``wanted`` rows are unused.

        Returns their number.
        """
        put = self._prefill.put
        unused = np.array([answer is None for answer in self._answers])
        limits = DecodingLimits(
            put(self._count), jnp.int32(STEPS), jnp.int32(wanted), jnp.asarray(self._request.ends)
        )
        self.caches[len(self._answers)], after, tokens, logprobs = decode(
            self._decoder,
            self._prefill.params,
            self.caches.pop(len(self._answers)),
            DecodingRows(put(self._token), put(self._position), put(self._made), put(unused)),
            limits,
            self._sampling(
                self._numbers,
                self._seeds,
                [(*answer.prompt, *answer.tokens) if answer else () for answer in self._answers],
            ),
            by_blocks=bool(self._prefill.packed),
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
        return max(new)

    def _leave(self) -> Iterator[Finished]:
        for row, answer in enumerate(self._answers):
            if answer is not None and (
                len(answer.tokens) >= answer.count
                or not self._end_tokens.isdisjoint(answer.tokens)
                or self._request.stopped(answer.prompt, answer.tokens)
            ):
                self._answers[row] = None
                yield answer.number, answer.tokens, answer.logprobs


class Decoding:
    """Decodes in a fixed number of rows (continuous batching; Yu et al., 2022, Orca).

    Rows whose answers have ended go to the next prompts. A prompt is read once for all its answers.

    Args:
      prefill: reads the prompts.
      rows: answers decoded at once, a multiple of the rows of prefill.
      tail: rows of the last answers, which is faster on CPUs; fewer than ``rows`` only where a
        row's bits do not depend on their number (`jaxrag.engines.local.shape_invariance`).
      end_tokens: tokens that end an answer.
      cache_bytes: memory of a cache; longer caches have fewer rows, by halves.
    """

    def __init__(
        self, prefill: Prefill, *, rows: int, tail: int, end_tokens: Sequence[int], cache_bytes: int
    ) -> None:
        self.prefill, self._rows, self._tail = prefill, rows, tail
        self._cache_bytes, self.end_tokens = cache_bytes, frozenset(end_tokens)
        self.free: tuple[int, dict[int, Cache]] = (0, {})  # slots, and the caches by rows
        self.counts: dict[int, RowCounts] = {}  # by slots

    def run(self, draws: Sequence[AnswerDraw], request: DecodingRequest) -> Iterator[Finished]:
        """Yields each answer as it ends.

        Where the rotation depends on the text's length, an answer during which its text becomes
        long is decoded in two parts: the whole text is read again for the second.
        """
        parts = [self._short_part(draw) for draw in draws]
        rest, logprobs = {}, []
        for i, tokens, values in self._run(parts, request):
            ended = not self.end_tokens.isdisjoint(tokens)
            ended = ended or request.stopped(draws[i].prompt, tokens)
            if ended or len(tokens) >= draws[i].count:
                yield i, tokens, values
            else:
                rest[i] = self._long_part(draws[i], tokens)
                logprobs.append(values)
        numbers = list(rest)
        for i, tokens, values in self._run(list(rest.values()), request) if rest else ():
            yield numbers[i], tokens, logprobs[i] + values

    def _short_part(self, draw: AnswerDraw) -> AnswerDraw:
        """The answer up to the token with which its text becomes long."""
        config, length = self.prefill.decoder.config, len(draw.job.tokens)
        if draw.job.long or not config.is_long(length + draw.count - 1):
            return draw  # the last token is not read
        return draw._replace(count=config.short_length + 1 - length)

    def _long_part(self, draw: AnswerDraw, tokens: Sequence[int]) -> AnswerDraw:
        """The rest of an answer that has begun with these tokens."""
        text = (*draw.job.tokens, *tokens)
        job = draw.job._replace(tokens=text, wanted=len(text) - 1, long=True)
        return draw._replace(job=job, begun=tuple(tokens))

    def _run(self, draws: Sequence[AnswerDraw], request: DecodingRequest) -> Iterator[Finished]:
        same = group_equal(draw.job for draw in draws)
        numbers = list(same.values())
        for slots, reading in self.prefill.readings(list(same)):
            answers = AnswerRows(self, slots, request)
            yield from answers.run(draws, numbers, reading)
            self.free = (slots, answers.caches)

    def sizes(self, slots: int) -> tuple[int, ...]:
        """Allowed numbers of rows, ascending: for the last answers, and for all."""
        return tuple(sorted({min(self._tail, self.rows(slots)), self.rows(slots)}))

    def rows(self, slots: int) -> int:
        """Answers decoded at once, determined by their number of slots alone."""
        config, rows = self.prefill.decoder.config, self._rows
        width = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
        row_bytes = width * slots * np.dtype(self.prefill.decoder.dtype).itemsize
        while rows * row_bytes > self._cache_bytes and rows % (2 * self.prefill.rows) == 0:
            rows //= 2
        return rows
