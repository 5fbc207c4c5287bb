"""Prefill: prompts through the decoder, shared prefixes computed once.

Each row may be at a position of its own and takes the next prompt as soon as it has read one. It
keeps the prefix that both share; prefixes of many prompts, such as a method's demonstrations, are
computed once and copied. The number of chunks in a call is fixed, because the summation order of a
matrix product may change with its shape; so results are bit-identical to those of whole prompts.

On one CPU device calls are packed: their chunks are of any rows, several of a row if need be, so
that none idles. Elsewhere a call has one chunk of each row, which may be on different devices.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import logging
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxrag.models.cache import Cache, copy_in, copy_out, empty_cache
from jaxrag.models.decoder.decoding import extend
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.sharding import cache_sharding, divisible_sharding
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")
_SLOTS = 128  # caches have a multiple of this many slots
_PACKED_SLOTS = 512  # those of packed calls, which read only slots in use
_ROW, _MOST_ROWS = 1024, 256  # slots that rows are chosen for, and most rows
_PREFILL_ROWS, _CHUNK = 16, 128  # on accelerators
_PACKED = 256  # tokens of a packed call
UNIT = 256
"""Prefill caches have a multiple of this many slots; each number is a compiled program."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Shapes of the local engine's programs.

    Attributes:
      prefill_rows: prompts read at once.
      decode_rows: answers decoded at once, a multiple of ``prefill_rows``.
      chunk: tokens of a chunk.
      cache_bytes: memory for keys and values of the answers being decoded.
    """

    prefill_rows: int
    decode_rows: int
    chunk: int
    cache_bytes: int

    @classmethod
    def choose(cls, prefill: int, decode: int, chunk: int, cache: int, *, usual: Sizes) -> Sizes:
        """The given sizes, and ``usual`` ones for those that are 0; ``prefill`` divides ``decode``.

        InputError if they are out of range or no multiples.
        """
        decode = decode or usual.decode_rows
        prefill = prefill or math.gcd(usual.prefill_rows, decode)
        sizes = cls(prefill, decode, chunk or usual.chunk, cache or usual.cache_bytes)
        if min(dataclasses.astuple(sizes)) < 1 or sizes.decode_rows % sizes.prefill_rows:
            raise InputError(
                f"prefill_rows is {sizes.prefill_rows}, decode_rows {sizes.decode_rows}, chunk "
                f"{sizes.chunk} and cache_bytes {sizes.cache_bytes}: all must be at least 1, and "
                "decode_rows a multiple of prefill_rows."
            )
        return sizes

    @classmethod
    def fixed(cls, weights: int = 0, *, packed: bool = False) -> Sizes:
        """Sizes for the kind of device, where its free memory is not known.

        A step reads all bytes of the ``weights``; so with more of them more rows are worth while:
        on a CPU the cache has as many bytes, rounded down to a power of two, and 1 GiB at least.
        """
        if jax.default_backend() == "cpu":
            cache = max(1 << 30, 1 << weights.bit_length() >> 1)
            return cls(8, 32, 16 if packed else 32, cache)
        return cls(_PREFILL_ROWS, 128, _CHUNK, 1 << 33)

    @classmethod
    def fitting(cls, free: int, slot: int) -> Sizes:
        """Sizes for accelerators with ``free`` bytes beside the parameters, on all of them.

        A third is for the cache, as a call that decodes may hold a copy of it in another layout and
        prompts are read into a cache of their own. Rows are as many as it holds with 1,024 slots of
        ``slot`` bytes, at most 256. All are powers of two, so that small differences of what is
        free change nothing.
        """
        cache = 1 << max(free // 3, 1 << 20).bit_length() - 1
        room = max(cache // (_ROW * slot), 1)
        rows = min(1 << room.bit_length() - 1, _MOST_ROWS)
        return cls(min(_PREFILL_ROWS, rows), rows, _CHUNK, cache)

    @property
    def packed_chunks(self) -> int:
        """Chunks of a packed call."""
        return max(self.prefill_rows, _PACKED // self.chunk)

    def slots(self, length: int, new: int, *, packed: bool = False) -> int:
        """Cache slots for ``length`` tokens and ``new`` ones, determined by these alone.

        Longer caches come in coarser sizes, since each size is a program to compile.
        """
        needed = max(-(-length // self.chunk) * self.chunk, length + new)
        return padded_length(needed, _PACKED_SLOTS if packed else _SLOTS)

    def smaller(self) -> Sizes | None:
        """Half the answers at once, then half the prompts; None if neither can be halved."""
        if self.decode_rows % (2 * self.prefill_rows) == 0:
            return dataclasses.replace(self, decode_rows=self.decode_rows // 2)
        if self.prefill_rows % 2 == 0:
            half = self.prefill_rows // 2
            return dataclasses.replace(self, prefill_rows=half, decode_rows=half)
        return None


def padded_length(length: int, least: int) -> int:
    """The next multiple of a quarter of the next power of 2; at least of ``least``."""
    unit = max(least, (1 << (length - 1).bit_length()) // 4)
    return -(-length // unit) * unit


class PrefillJob(NamedTuple):
    """A sequence to run; those that run together have the same ``slots`` and ``long``.

    Attributes:
      tokens: its ids.
      wanted: the first position whose hidden state is needed.
      slots: of its cache.
      long: whether the decoder's rotation of long texts applies (`DecoderConfig.is_long`).
    """

    tokens: tuple[int, ...]
    wanted: int
    slots: int
    long: bool = False


def group_equal(jobs: Iterable[PrefillJob]) -> dict[PrefillJob, list[int]]:
    """The distinct jobs, each with its indices in ``jobs``."""
    places: dict[PrefillJob, list[int]] = {}
    for place, job in enumerate(jobs):
        places.setdefault(job, []).append(place)
    return places


class PrefilledRow(NamedTuple):
    """Part of a job that one step has read.

    Attributes:
      number, row: index of the job, and its row of the cache.
      first: index of its first chunk among those of the step.
      start, end: position of the step's first token, and that after its last.
      done: whether the job has been read to its end.
    """

    number: int
    row: int
    first: int
    start: int
    end: int
    done: bool


class PrefillStep(NamedTuple):
    """One call of the network.

    Attributes:
      rows: the rows that advanced.
      hidden: hidden states of chunks of t tokens, [b t d].
      cache: keys and values of all rows, valid until the next step is prepared.
    """

    rows: Sequence[PrefilledRow]
    hidden: jax.Array
    cache: Cache

    def index(self, read: PrefilledRow, position: int) -> tuple[int, int]:
        """Where ``hidden`` has the state of a token of a row: chunk, and token in the chunk."""
        chunk, token = divmod(position - read.start, self.hidden.shape[1])
        return read.first + chunk, token


_Kind = tuple[int, bool]  # slots and `long` of jobs that run together


class _Key(NamedTuple):
    """Determines the bits of a chunk: the tokens up to its end, and how they are read.

    Attributes:
      slots: of the cache; 0 in packed calls, where they change no bit.
      chunks, digest: number of chunks up to its end, and hash of their tokens.
    """

    slots: int
    long: bool
    chunks: int
    digest: bytes


class DecoderNetwork(NamedTuple):
    """A decoder with its parameters and devices.

    Attributes:
      mesh: devices that ``params`` are sharded over; None for a single device.
      shared_bytes: memory for shared prefixes kept between calls; 0 shares nothing.
    """

    decoder: Decoder
    params: dict[str, Any]
    mesh: Mesh | None
    shared_bytes: int


@dataclasses.dataclass
class _PrefillRows:
    """A prefill cache and the tokens that it holds for each row."""

    slots: int
    long: bool
    cache: Cache
    held: list[tuple[int, ...]]


class Prefill:
    """Runs sequences in ``rows`` rows, in chunks of ``chunk`` tokens.

    ``packed``: chunks of a packed call; 0 is a chunk of each row.
    """

    def __init__(self, network: DecoderNetwork, *, rows: int, chunk: int, packed: int = 0) -> None:
        self.decoder, self.params, self._mesh, self._shared_bytes = network
        self.rows, self.chunk, self.packed = rows, chunk, packed
        self._blocks: OrderedDict[_Key, jax.Array] = OrderedDict()
        self._compiled: set[int] = set()
        self.free: _PrefillRows | None = None  # reused by the next call

    def put(self, array: np.ndarray) -> jax.Array:
        """Moves an array with one entry per row to the devices."""
        if self._mesh is None:
            return jnp.asarray(array)
        return jax.device_put(array, divisible_sharding(P("data"), array.shape, self._mesh))

    def readings(self, jobs: Sequence[PrefillJob]) -> Iterator[tuple[int, PrefillGroup]]:
        """The jobs by number of slots; each group must be read to its end before the next."""
        stored = self._share(jobs) if self._shared_bytes else [0] * len(jobs)
        for (slots, _), numbers in _by_kind(jobs):
            yield slots, PrefillGroup(self, jobs, numbers, stored)

    def take(self, slots: int, long: bool) -> _PrefillRows:
        """Rows for sequences of ``slots`` slots: those in ``free`` if they fit, else new ones."""
        slots = _up(slots)
        rows, self.free = self.free, None
        if rows is not None and (rows.slots, rows.long) == (slots, long):
            return rows
        if slots not in self._compiled:
            self._compiled.add(slots)
            _log.info("first texts of up to %d tokens: compiling", slots)
        return _PrefillRows(slots, long, self.empty(self.rows, slots), [()] * self.rows)

    def empty(self, rows: int, slots: int) -> Cache:
        """An empty cache."""
        config, stacked, dtype = self.decoder.config, self.decoder.stacked, self.decoder.dtype
        device = self._mesh and cache_sharding(config, rows, self._mesh, stacked=stacked)
        return empty_cache(config, rows, slots, dtype, stacked=stacked, device=device)

    def kept(self, rows: _PrefillRows, row: int, tokens: tuple[int, ...], most: int) -> int:
        """Number of leading chunks of the tokens, at most ``most``, that a row holds."""
        if not self._shared_bytes:
            return 0
        held, chunks = rows.held[row], 0
        while chunks < most and len(held) >= (chunks + 1) * self.chunk:
            part = slice(chunks * self.chunk, (chunks + 1) * self.chunk)
            if held[part] != tokens[part]:
                break
            chunks += 1
        return chunks

    def fill(self, rows: _PrefillRows, row: int, job: PrefillJob, chunks: range) -> None:
        """Copies chunks of a stored prefix into a row."""
        keys = self._keys(job, chunks.stop)
        for i in chunks:
            start = np.int32(i * self.chunk)
            rows.cache = copy_in(rows.cache, self._blocks[keys[i]], np.int32(row), start)

    def _keys(self, job: PrefillJob, count: int) -> list[_Key]:
        """Keys of the first ``count`` chunks of a job."""
        slots = 0 if self.packed else _up(job.slots)
        tokens, keys = np.array(job.tokens, np.int32), list[_Key]()
        digest = hashlib.blake2b(digest_size=16)
        for i in range(count):
            digest.update(tokens[i * self.chunk : (i + 1) * self.chunk].tobytes())
            keys.append(_Key(slots, job.long, i + 1, digest.digest()))
        return keys

    def _share(self, jobs: Sequence[PrefillJob]) -> list[int]:
        """Computes and stores prefixes that are worth it (`_worth`).

        Returns the number of leading chunks of each job that are stored.
        """
        total = sum(block.nbytes for block in self._blocks.values())
        while total > self._shared_bytes:  # the least recently used go
            total -= self._blocks.popitem(last=False)[1].nbytes
        leading = self._worth(jobs)
        missing = {
            prefix[-1]: job._replace(tokens=job.tokens[:length], wanted=length - 1)
            for prefix, job in zip(leading, jobs, strict=True)
            if not all(map(self._blocks.__contains__, prefix))
            for length in [len(prefix) * self.chunk]
        }
        inner = {key for prefix in leading for key in prefix[:-1]}
        self._make([source for key, source in missing.items() if key not in inner])
        for key in itertools.chain.from_iterable(map(reversed, leading)):
            self._blocks.move_to_end(key)  # the first chunk last: it is useful alone
        return [len(prefix) for prefix in leading]

    def _worth(self, jobs: Sequence[PrefillJob]) -> list[Sequence[_Key]]:
        """The leading chunks of each job that are stored already, or are worth storing.

        A prefix is worth storing if more jobs than rows share it. In packed calls two jobs are
        enough, if the prefixes fit the memory and storing them saves calls.
        """
        keys = [self._keys(job, job.wanted // self.chunk) for job in jobs]
        counts = Counter(itertools.chain.from_iterable(keys))

        def leading(least: float) -> list[Sequence[_Key]]:
            def worth(key: _Key) -> bool:
                return counts[key] >= least or key in self._blocks

            return [list(itertools.takewhile(worth, prefix)) for prefix in keys]

        many = leading(self.rows + 1)
        if not self.packed:
            return many
        options = [leading(math.inf), many, leading(2)]
        chunks = set(itertools.chain.from_iterable(options[-1]))
        slot = (
            2 * math.prod(self.decoder.config.cache_shape) * np.dtype(self.decoder.dtype).itemsize
        )
        if len(chunks) * self.chunk * slot > self._shared_bytes:
            options.pop()
        return min(options, key=lambda option: self._calls(jobs, option))

    def _calls(self, jobs: Sequence[PrefillJob], leading: Sequence[Sequence[_Key]]) -> int:
        """Packed calls for these jobs if their leading chunks are stored first."""
        missing = set(itertools.chain.from_iterable(leading)) - self._blocks.keys()
        chunks = sum(
            -(-len(job.tokens) // self.chunk) - len(prefix)
            for job, prefix in zip(jobs, leading, strict=True)
        )
        return -(-len(missing) // self.packed) + -(-chunks // self.packed)

    def _make(self, sources: list[PrefillJob]) -> None:
        """Runs prefixes and stores each of their chunks; first those that several share."""
        stored = self._share(sources) if sources else []
        for _, numbers in _by_kind(sources):
            reading = PrefillGroup(self, sources, numbers, stored)
            while not reading.over:
                step = reading.step()
                for read in (read for read in step.rows if read.done):
                    job, row = sources[read.number], np.int32(read.row)
                    for i, key in enumerate(self._keys(job, len(job.tokens) // self.chunk)):
                        if key not in self._blocks:
                            start = np.int32(i * self.chunk)
                            block = copy_out(step.cache, row, start, length=self.chunk)
                            self._blocks[key] = block


def _by_kind(jobs: Sequence[PrefillJob]) -> Iterator[tuple[_Kind, list[int]]]:
    """Indices of the jobs by kind; of each kind, common prefixes side by side."""

    def kind(i: int) -> _Kind:
        return jobs[i].slots, jobs[i].long

    order = sorted(range(len(jobs)), key=lambda i: (kind(i), jobs[i].tokens))
    yield from ((group, list(numbers)) for group, numbers in itertools.groupby(order, key=kind))


class PrefillGroup:
    """Sequences with the same number of slots and rotation, read in the rows of `Prefill`.

    Args:
      jobs: all sequences of the call.
      numbers: indices of the sequences of this group, in this order; common prefixes side by side.
      given: number of stored leading chunks of each job.
    """

    def __init__(
        self,
        prefill: Prefill,
        jobs: Sequence[PrefillJob],
        numbers: Sequence[int],
        given: Sequence[int],
    ) -> None:
        self.numbers = tuple(numbers)
        self._prefill, self._jobs, self._given = prefill, jobs, given
        first = jobs[numbers[0]]
        self.decoder = prefill.decoder.for_long_texts() if first.long else prefill.decoder
        self._rows = prefill.take(first.slots, first.long)
        self._waiting = deque(numbers)
        self._at: dict[int, tuple[int, int]] = {}  # row: index of its job, next position

    @property
    def over(self) -> bool:
        """Whether all sequences of the group have been read."""
        return not self._at and not self._waiting

    def prepare(self) -> list[int]:
        """Assigns free rows to waiting sequences, preferring the row with the longest prefix.

        Returns the indices of the sequences that the next step will finish.
        """
        prefill = self._prefill
        free = [row for row in range(prefill.rows) if row not in self._at]
        while free and self._waiting:
            number = self._waiting.popleft()
            job, stored = self._jobs[number], self._given[number]
            most = job.wanted // prefill.chunk
            shared = {row: prefill.kept(self._rows, row, job.tokens, most) for row in free}
            row = max(free, key=shared.__getitem__)
            free.remove(row)
            prefill.fill(self._rows, row, job, range(shared[row], stored))
            self._at[row] = number, max(shared[row], stored) * prefill.chunk
        return [read.number for read in self._next() if read.done]

    def _next(self) -> list[PrefilledRow]:
        """What the next step reads: a chunk of each row, or as many as there are, oldest first."""
        prefill, reads, at = self._prefill, list[PrefilledRow](), 0
        for row, (number, start) in self._at.items():
            length = len(self._jobs[number].tokens)
            first, most = (at, prefill.packed - at) if prefill.packed else (row, 1)
            if not most:
                break
            end = min(start + most * prefill.chunk, length)
            reads.append(PrefilledRow(number, row, first, start, end, done=end == length))
            at += self._count(reads[-1])
        return reads

    def _count(self, read: PrefilledRow) -> int:
        """Chunks that a step reads of a row."""
        return -(-(read.end - read.start) // self._prefill.chunk)

    def step(self) -> PrefillStep:
        """Runs the next chunks."""
        self.prepare()
        reads, prefill, rows = self._next(), self._prefill, self._rows
        tokens, starts, of_row = self._chunks(reads)
        used = max(read.start + self._count(read) * prefill.chunk for read in reads)
        hidden, rows.cache = extend(
            self.decoder,
            prefill.params,
            rows.cache,
            prefill.put(tokens),
            prefill.put(starts),
            jnp.int32(used),
            prefill.put(of_row) if prefill.packed else None,
        )
        if not prefill.packed:  # idle rows write to their last slots
            rows.held = [held[: rows.slots - prefill.chunk] for held in rows.held]
        for number, row, _, _, end, done in reads:
            rows.held[row], self._at[row] = self._jobs[number].tokens[:end], (number, end)
            if done:
                del self._at[row]
        if self.over:
            prefill.free = rows
        return PrefillStep(reads, hidden, rows.cache)

    def _chunks(self, reads: Sequence[PrefilledRow]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens [b t] of the chunks, positions [b] of their first ones, and their rows [b].

        Idle chunks of a packed call repeat its last one. Others are at the end of their row.
        """
        chunk, packed = self._prefill.chunk, self._prefill.packed
        count = packed or self._prefill.rows
        tokens = np.zeros((count, chunk), np.int32)
        starts = np.full(count, self._rows.slots - chunk, np.int32)
        of_row = np.arange(count, dtype=np.int32)
        last = 0
        for number, row, first, start, end, _ in reads:
            for last, at in enumerate(range(start, end, chunk), first):
                part = self._jobs[number].tokens[at : min(at + chunk, end)]
                tokens[last, : len(part)], starts[last], of_row[last] = part, at, row
        if packed:
            for array in (tokens, starts, of_row):
                array[last + 1 :] = array[last]
        return tokens, starts, of_row


def _up(slots: int) -> int:
    """The next multiple of `UNIT`."""
    return -(-slots // UNIT) * UNIT
