"""Prefill: prompts through the decoder, shared prefixes computed once.

A row's keys and values of a chunk depend only on the tokens up to its end (see
`jaxrag.models.decoder.decoding`). So each row may be at a position of its own and takes the
next prompt as soon as it has read one. It keeps the prefix that both share, and prefixes of many
prompts, such as a method's demonstrations, are computed once and copied. The number of rows is
fixed, because the summation order of a matrix product may change with its shape; so results are
bit-identical to computing every prompt whole. Where few prompts are left, one is read at a time
with as many tokens as all rows have otherwise, if a test has shown that this changes no bit
(`jaxrag.engines.local.shape_invariance`).
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.models.cache import Cache, copy_in, copy_out, empty_cache
from jaxrag.models.decoder.decoding import extend, extend_row
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.sharding import cache_sharding, divisible_sharding, get, put
from jaxrag.types import InputError

_SLOTS = 128  # caches have a multiple of this many slots
_ROW, _MOST_ROWS = 1024, 256  # slots that rows are chosen for, and most rows
_PREFILL_ROWS, _CHUNK = 16, 128  # on accelerators
UNIT = 256
"""Prefill caches have a multiple of this many slots; each number is a compiled program."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Shapes of the local engine's programs.

    Attributes:
      prefill_rows: prompts read at once.
      decode_rows: answers decoded at once, a multiple of ``prefill_rows``.
      chunk: tokens of each prompt per prefill step.
      cache_bytes: memory for keys and values of the answers being decoded.
    """

    prefill_rows: int
    decode_rows: int
    chunk: int
    cache_bytes: int

    @classmethod
    def choose(
        cls,
        prefill: int | None,
        decode: int | None,
        chunk: int | None,
        cache: int | None,
        *,
        usual: Sizes | None = None,
    ) -> Sizes:
        """The given sizes, and ``usual`` ones for the rest; ``prefill`` divides ``decode``.

        ``usual`` None has those of `fixed`.

        Raises:
          InputError: they are out of range or no multiples.
        """
        usual = usual or cls.fixed()
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
    def fixed(cls) -> Sizes:
        """Sizes for the kind of device, where its free memory is not known."""
        if jax.default_backend() == "cpu":
            return cls(8, 32, 32, 1 << 30)
        return cls(_PREFILL_ROWS, 128, _CHUNK, 1 << 33)

    @classmethod
    def fitting(cls, free: int, slot: int) -> Sizes:
        """Sizes for accelerators with so many free bytes, on all devices together.

        A third is for the cache, as a call that decodes may hold a copy of it in another layout
        and prompts are read into a cache of their own. Rows are as many as it holds with 1,024
        slots, at most 256. All are powers of two: stored results depend on them, and should not
        on small differences of what is free.

        Args:
          free: bytes beside the parameters.
          slot: bytes of the keys and values of a token.
        """
        cache = 1 << max(free // 3, 1 << 20).bit_length() - 1
        held = max(cache // (_ROW * slot), 1)
        rows = min(1 << held.bit_length() - 1, _MOST_ROWS)
        return cls(min(_PREFILL_ROWS, rows), rows, _CHUNK, cache)

    @property
    def wide(self) -> int:
        """Tokens of one prompt that take about as long as a prefill step; a multiple of chunk."""
        return min(self.prefill_rows * self.chunk, UNIT) // self.chunk * self.chunk

    def slots(self, length: int, new: int) -> int:
        """Cache slots for ``length`` tokens and ``new`` ones, determined by these alone.

        Longer caches come in coarser sizes, since each size is a program to compile.
        """
        needed = max(-(-length // self.chunk) * self.chunk, length + new)
        unit = max(_SLOTS, (1 << (needed - 1).bit_length()) // 4)
        return -(-needed // unit) * unit

    def smaller(self) -> Sizes | None:
        """Half the answers at once, then half the prompts; None if neither can be halved."""
        if self.decode_rows % (2 * self.prefill_rows) == 0:
            return dataclasses.replace(self, decode_rows=self.decode_rows // 2)
        if self.prefill_rows % 2 == 0:
            half = self.prefill_rows // 2
            return dataclasses.replace(self, prefill_rows=half, decode_rows=half)
        return None


_log = logging.getLogger("jaxrag")


class PrefillJob(NamedTuple):
    """A sequence to run.

    Attributes:
      tokens: its ids.
      wanted: the first position whose hidden state is needed.
      slots: of its cache; sequences that run together have the same number.
      long: whether the decoder's rotation of long texts applies (`DecoderConfig.is_long`);
        sequences that run together have the same.
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
      number: index of the job.
      row: row of the cache.
      start: position of the step's first token.
      end: position after its last token.
      done: whether the job has been read to its end.
    """

    number: int
    row: int
    start: int
    end: int
    done: bool


class PrefillStep(NamedTuple):
    """One call of the network.

    Attributes:
      rows: the rows that advanced.
      hidden: hidden states of the chunks of rows from ``first`` on, [b t d].
      first: index of the first row in ``hidden``.
      cache: keys and values of all rows, valid until the next step is prepared.
    """

    rows: Sequence[PrefilledRow]
    hidden: jax.Array
    first: int
    cache: Cache


_Kind = tuple[int, bool]  # slots and `long` of jobs that run together
_Key = tuple[_Kind, tuple[int, ...]]  # the kind and all tokens up to a chunk's end


class DecoderNetwork(NamedTuple):
    """A decoder with its parameters and devices.

    Attributes:
      decoder, params: the network.
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
    """Runs sequences in ``rows`` rows, ``chunk`` tokens of each in one call.

    Args:
      network: the decoder.
      rows, chunk: sequences per call, and tokens of each.
      wide: tokens per call of a single sequence, with the same bits (see
        `jaxrag.engines.local.shape_invariance`); ``chunk`` if there are no such calls.
    """

    def __init__(self, network: DecoderNetwork, *, rows: int, chunk: int, wide: int) -> None:
        self.decoder, self.params, self._mesh, self._shared_bytes = network
        self.rows, self.chunk, self.wide = rows, chunk, wide
        self._blocks: OrderedDict[_Key, jax.Array] = OrderedDict()
        self._compiled: set[int] = set()
        self._free: _PrefillRows | None = None  # reused by the next call

    def put(self, array: np.ndarray) -> jax.Array:
        """Moves an array with one entry per row to the devices."""
        if self._mesh is None:
            return jnp.asarray(array)
        return put(array, divisible_sharding(P("data"), array.shape, self._mesh))

    def put_whole(self, array: np.ndarray | np.generic) -> jax.Array:
        """Moves an array that does not belong to rows to the devices, to each as a whole."""
        if self._mesh is None:
            return jnp.asarray(array)
        return put(np.asarray(array), NamedSharding(self._mesh, P()))

    def get(self, array: jax.Array) -> np.ndarray:
        """The values of a program's output."""
        return np.asarray(array) if self._mesh is None else get(array)

    def readings(self, jobs: Sequence[PrefillJob]) -> Iterator[tuple[int, PrefillGroup]]:
        """The jobs by number of slots; each group must be read to its end before the next."""
        given = self._share(jobs) if self._shared_bytes else [0] * len(jobs)
        for (slots, _), numbers in _by_kind(jobs):
            yield slots, PrefillGroup(self, jobs, numbers, given)

    def decoder_for(self, job: PrefillJob) -> Decoder:
        """The decoder with the job's rotation."""
        return self.decoder.for_long_texts() if job.long else self.decoder

    def take(self, slots: int, long: bool) -> _PrefillRows:
        """Rows for sequences of ``slots`` slots; see `give_back`."""
        slots = _up(slots)
        rows, self._free = self._free, None
        if rows is not None and (rows.slots, rows.long) == (slots, long):
            return rows
        if slots not in self._compiled:
            self._compiled.add(slots)
            _log.info("first texts of up to %d tokens: compiling", slots)
        return _PrefillRows(slots, long, self.empty(self.rows, slots), [()] * self.rows)

    def give_back(self, rows: _PrefillRows) -> None:
        """Keeps rows for the next sequences with as many slots."""
        self._free = rows

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
        for i in chunks:
            block, start = self._blocks[self._key(job, i)], np.int32(i * self.chunk)
            rows.cache = copy_in(rows.cache, block, np.int32(row), start)

    def _key(self, job: PrefillJob, chunk: int) -> _Key:
        return (_up(job.slots), job.long), job.tokens[: (chunk + 1) * self.chunk]

    def _share(self, jobs: Sequence[PrefillJob]) -> list[int]:
        """Computes and stores prefixes that are worth it (`_worth`).

        Returns:
          For each job, the number of its leading chunks that are stored.
        """
        self._forget()
        keys = [[self._key(job, i) for i in range(job.wanted // self.chunk)] for job in jobs]
        counts = Counter(itertools.chain.from_iterable(keys))
        leading = self._worth(keys, counts, alone=self.wide > self.chunk)
        if self._bytes(set(itertools.chain.from_iterable(leading))) > self._shared_bytes:
            leading = self._worth(keys, counts, alone=False)
        missing = {row[-1] for row in leading if not all(map(self._blocks.__contains__, row))}
        inner = {key for row in leading for key in row[:-1]}
        self._make([PrefillJob(tokens, len(tokens) - 1, *kind) for kind, tokens in missing - inner])
        for key in itertools.chain.from_iterable(map(reversed, leading)):
            self._blocks.move_to_end(key)  # the first chunk last: it is useful alone
        return [len(row) for row in leading]

    def _worth(
        self, keys: Sequence[Sequence[_Key]], counts: Mapping[_Key, int], *, alone: bool
    ) -> list[Sequence[_Key]]:
        """The leading keys of each job that are stored, or that take fewer calls if they are.

        A prefix that more jobs than rows have takes fewer calls. So does one of fewer jobs, if a
        call reads `wide` tokens of it ``alone``: otherwise those jobs read it side by side.
        """

        def saves(chunks: int, n: int) -> bool:
            calls = -(-chunks * self.chunk // self.wide)
            return n > self.rows or (alone and chunks * (n - 1) > self.rows * calls)

        def count(row: Sequence[_Key]) -> int:
            good = (i for i, key in enumerate(row, 1) if saves(i, counts[key]))
            return max(good, default=0)

        def stored(row: Sequence[_Key]) -> int:
            return sum(1 for _ in itertools.takewhile(self._blocks.__contains__, row))

        return [row[: max(count(row), stored(row))] for row in keys]

    def _bytes(self, keys: Collection[_Key]) -> int:
        """Memory of the blocks of these prefixes."""
        config, dtype = self.decoder.config, np.dtype(self.decoder.dtype)
        return len(keys) * self.chunk * 2 * math.prod(config.cache_shape) * dtype.itemsize

    def _make(self, sources: list[PrefillJob]) -> None:
        """Runs prefixes and stores each of their chunks."""
        for _, numbers in _by_kind(sources):
            reading = PrefillGroup(self, sources, numbers, [0] * len(sources))
            while not reading.over:
                step = reading.step()
                for read in step.rows:
                    if read.done:
                        self._keep(step.cache, read.row, sources[read.number])

    def _keep(self, cache: Cache, row: int, job: PrefillJob) -> None:
        for i in range(len(job.tokens) // self.chunk):
            key, start = self._key(job, i), np.int32(i * self.chunk)
            if key not in self._blocks:
                self._blocks[key] = copy_out(cache, np.int32(row), start, length=self.chunk)

    def _forget(self) -> None:
        """Drops the least recently used prefixes, down to the allowed memory."""
        held = sum(block.nbytes for block in self._blocks.values())
        while held > self._shared_bytes:
            held -= self._blocks.popitem(last=False)[1].nbytes


def _by_kind(jobs: Sequence[PrefillJob]) -> Iterator[tuple[_Kind, list[int]]]:
    """Indices of the jobs by kind; of each kind, common prefixes side by side."""

    def kind(i: int) -> _Kind:
        return jobs[i].slots, jobs[i].long

    order = sorted(range(len(jobs)), key=lambda i: (kind(i), jobs[i].tokens))
    yield from ((one, list(numbers)) for one, numbers in itertools.groupby(order, key=kind))


class PrefillGroup:
    """Sequences with the same number of slots and rotation, read in the rows of `Prefill`.

    Args:
      prefill: runs them.
      jobs: all sequences of the call.
      numbers: indices of the sequences of this group, in this order; common prefixes side by side.
      given: number of stored leading chunks of each job.

    Attributes:
      numbers: see above.
      decoder: that runs them.
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
        self.decoder = prefill.decoder_for(first)
        self._rows = prefill.take(first.slots, first.long)
        self._waiting = deque(numbers)
        self._at: dict[int, tuple[int, int]] = {}  # row: index of its job, next position

    @property
    def over(self) -> bool:
        """Whether all sequences have been read."""
        return not self._at and not self._waiting

    def prepare(self) -> list[int]:
        """Assigns free rows to waiting sequences, preferring the row with the longest prefix.

        Returns:
          Indices of the sequences that the next step will finish.
        """
        prefill, chunk = self._prefill, self._prefill.chunk
        free = [row for row in range(prefill.rows) if row not in self._at]
        while free and self._waiting:
            number = self._waiting.popleft()
            job, given = self._jobs[number], self._given[number]
            most = job.wanted // chunk
            kept = {row: prefill.kept(self._rows, row, job.tokens, most) for row in free}
            row = max(free, key=kept.__getitem__)
            free.remove(row)
            prefill.fill(self._rows, row, job, range(kept[row], given))
            self._at[row] = number, max(kept[row], given) * chunk
        left = {row: len(self._jobs[number].tokens) - at for row, (number, at) in self._at.items()}
        if self._alone():
            left, chunk = {min(left): left[min(left)]}, prefill.wide
        return [self._at[row][0] for row, n in left.items() if n <= chunk]

    def step(self) -> PrefillStep:
        """Runs a chunk of each row, or more of a single one."""
        self.prepare()
        step = self._read_one() if self._alone() else self._read_all()
        for read in step.rows:
            if read.done:
                del self._at[read.row]
        if self.over:
            self._prefill.give_back(self._rows)
        return step

    def _alone(self) -> bool:
        """Whether reading the rows one by one takes fewer calls than reading all at once."""
        wide, chunk = self._prefill.wide, self._prefill.chunk
        if self._waiting or wide == chunk:
            return False
        left = [len(self._jobs[number].tokens) - at for number, at in self._at.values()]
        return sum(-(-n // wide) for n in left) < max(-(-n // chunk) for n in left)

    def _read_one(self) -> PrefillStep:
        """Runs the first row only, with as many tokens as all rows have otherwise."""
        rows, prefill = self._rows, self._prefill
        row, (number, at) = min(self._at.items())
        start = min(at, rows.slots - prefill.wide)  # reads tokens again at the cache's end
        read, part = self._advance(row, number, start, prefill.wide)
        tokens = np.zeros(prefill.wide, np.int32)
        tokens[: len(part)] = part
        hidden, rows.cache = extend_row(
            self.decoder, prefill.params, rows.cache, tokens, np.int32(start), np.int32(row)
        )
        return PrefillStep([read], hidden[None], row, rows.cache)

    def _read_all(self) -> PrefillStep:
        rows, prefill, chunk = self._rows, self._prefill, self._prefill.chunk
        tokens = np.zeros((prefill.rows, chunk), np.int32)
        starts = np.full(prefill.rows, rows.slots - chunk, np.int32)  # of idle rows
        rows.held = [held[: rows.slots - chunk] for held in rows.held]
        reads = []
        for row, (number, start) in sorted(self._at.items()):
            read, part = self._advance(row, number, start, chunk)
            tokens[row, : len(part)], starts[row] = part, start
            reads.append(read)
        used = prefill.put_whole(np.int32(max(read.start for read in reads) + chunk))
        hidden, rows.cache = extend(
            self.decoder, prefill.params, rows.cache, prefill.put(tokens), prefill.put(starts), used
        )
        return PrefillStep(reads, hidden, 0, rows.cache)

    def _advance(
        self, row: int, number: int, start: int, count: int
    ) -> tuple[PrefilledRow, tuple[int, ...]]:
        """Records that up to ``count`` tokens of a row are read, and returns them."""
        whole = self._jobs[number].tokens
        part = whole[start : start + count]
        end = start + len(part)
        self._rows.held[row], self._at[row] = whole[:end], (number, end)
        return PrefilledRow(number, row, start, end, done=end == len(whole)), part


def _up(slots: int) -> int:
    """The next multiple of `UNIT`."""
    return -(-slots // UNIT) * UNIT
