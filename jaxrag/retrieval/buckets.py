"""Bucketed batching: texts of all lengths through a handful of compiled programs.

A text is padded to a width that depends on its own length only, and texts of one width form batches
of one fixed shape, one for each device, with empty rows at the end. So a text's result depends
neither on the rest of its batch nor on the number of devices; it is bit-identical as long as the
backend, the size of batches and, on a CPU, XLA's threads (one for each core) are the same.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Float, Int

from jaxrag.core.background import check_stopped, in_background
from jaxrag.models.device_memory import is_out_of_memory
from jaxrag.models.sharding import automatic_mesh, local_mesh
from jaxrag.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Text = str | tuple[str, str]
"""A text, or two that are tokenized as a pair."""

_STEP = 8
_ROWS = 4  # least rows of a batch; with 2, texts of 128 tokens took a CPU a sixth longer
_LEAST_WINDOW = 256  # texts tokenized at a time, at least;
_SHARE = 4  # else one for so many tokens of a batch
_WAITING = 2  # windows that a text may wait for others of its width
_AHEAD = 2  # batches that compute while earlier results are copied
_PLACED = 2  # sets of parameters that are held on all devices: queries' and passages'
_QUEUED = 8  # batches that are tokenized ahead
_log = logging.getLogger("jaxrag")
_tokenizing = threading.Lock()  # a tokenizer's settings are changed by each call


class Tokens(NamedTuple):
    """A tokenized text or pair: token ids, and segments, 1 for the second text's tokens."""

    ids: Sequence[int]
    segments: Sequence[int]


class TokenBatch(NamedTuple):
    """Texts of one width; rows from ``len(rows)`` on are empty. ``rows`` index the input texts."""

    rows: Sequence[int]
    ids: Int[np.ndarray, "b t"]
    segments: Int[np.ndarray, "b t"]
    lengths: Int[np.ndarray, " b"]


class Batching:
    """Sizes of an encoder's batches and the devices that they are spread over.

    Args:
      tokens: tokens of a device's batch; by default what a CPU's caches hold, or what fills an
        accelerator. Smaller once a batch does not fit a device's memory.
      mesh: devices, along the axis "data"; None: all local devices.
    """

    def __init__(self, tokens: int | None = None, mesh: Mesh | None = None) -> None:
        if tokens is None:
            tokens = 256 if jax.default_backend() == "cpu" else 16384
        self.tokens = tokens
        self.mesh = local_mesh() if mesh is None else automatic_mesh(mesh)
        self._halvings = 0
        self._spread_widths = set[int]()
        self._placed = collections.OrderedDict[int, tuple[Any, dict[bool, Any]]]()

    @property
    def devices(self) -> int:
        """Number of devices that share a batch."""
        return 1 if self.mesh is None else self.mesh.shape.get("data", 1)

    @property
    def window(self) -> int:
        """Number of texts that are tokenized at a time."""
        return max(_LEAST_WINDOW, self.tokens * self.devices // _SHARE)

    def rows(self, width: int) -> int:
        """Rows of a device's batch of texts of ``width`` tokens."""
        return max(1, max(_ROWS, self.tokens // width) >> self._halvings)

    def halve(self, width: int) -> None:
        """Halves all batches, because one of this width did not fit; InputError for one row."""
        if self.rows(width) == 1:
            raise InputError(
                f"The device's memory does not hold one text of {width} tokens with this network: "
                "use bfloat16, a smaller max_length or a device with more memory."
            )
        self._halvings += 1
        _log.warning("out of device memory: going on with %d texts at once", self.rows(width))

    def height(self, texts: int, width: int) -> int:
        """Rows of a batch for so many texts: one device's, or those of all devices.

        One device is used if it holds the texts, unless the program for all is compiled already.
        """
        rows = self.rows(width)
        if texts > rows and self.devices > 1:
            self._spread_widths.add(width)
        return rows * self.devices if width in self._spread_widths else rows

    def place(self, params: Any, *, spread: bool) -> Any:
        """Parameters on all devices, or on one of them."""
        if self.mesh is None:
            return params
        _, placed = self._placed.setdefault(id(params), (params, {}))
        while len(self._placed) > _PLACED:
            self._placed.popitem(last=False)
        if spread not in placed:
            placed[spread] = replicate(params, self.mesh) if spread else jax.tree.map(_one, params)
        return placed[spread]


def _one(array: Any) -> Any:
    """An array's copy on the first of its devices."""
    return array.addressable_shards[0].data if isinstance(array, jax.Array) else array


def check_length(
    length: int, least: int, most: int, *, source: object, name: str = "max_length"
) -> None:
    """InputError unless a length limit in tokens is from ``least`` to ``most``."""
    if not least <= length <= most:
        raise InputError(f"{name} is {length}; {source} allows {least} to {most} tokens.")


def tokenize(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[Text], *, limit: int
) -> list[Tokens]:
    """Token ids with special tokens, cut to ``limit``; of a pair the longer part is cut first."""
    tokens: dict[int, Tokens] = {}
    for in_pairs in (False, True):  # a call of a tokenizer takes either kind
        places = [i for i, text in enumerate(texts) if isinstance(text, tuple) == in_pairs]
        if places:
            some: Any = [texts[i] for i in places]
            with _tokenizing:
                encoded = tokenizer(
                    [pair[0] for pair in some] if in_pairs else some,
                    [pair[1] for pair in some] if in_pairs else None,
                    truncation="longest_first",
                    max_length=limit,
                    return_attention_mask=False,
                )
            ids = encoded["input_ids"]
            # Tokenizers of models trained without segments return none.
            segments = encoded.get("token_type_ids") or [(0,) * len(row) for row in ids]
            tokens |= zip(places, map(Tokens, ids, segments), strict=True)
    return [tokens[i] for i in range(len(texts))]


def bucket_width(length: int, *, limit: int) -> int:
    """Padded width of a text of ``length`` tokens.

    Multiples of 8 up to 64; beyond, of a quarter of the power of two below.
    """
    step = max(_STEP, 1 << (max(length - 1, 1).bit_length() - 1) >> 2)
    return min(-(-length // step) * step, limit)


def batches(
    windows: Iterable[Sequence[Tokens]], *, limit: int, batching: Batching, pad_id: int
) -> Iterator[TokenBatch]:
    """Batches of equal width; full ones as soon as their texts are there.

    A text waits for others of its width during at most two ``windows``, each of consecutive texts
    within ``limit``; then rows of ``pad_id`` fill its batch.
    """
    waiting: dict[int, list[tuple[int, Tokens]]] = collections.defaultdict(list)
    starts = collections.deque([0] * _WAITING, maxlen=_WAITING)
    row = 0
    for window in windows:
        starts.append(row)
        for tokens in window:
            width = bucket_width(len(tokens.ids), limit=limit)
            waiting[width].append((row, tokens))
            row += 1
            full = batching.rows(width) * batching.devices
            if len(waiting[width]) >= full:
                yield _batch(waiting.pop(width), width, batching, pad_id)
        late = sorted(width for width, some in waiting.items() if some[0][0] < starts[0])
        for width in late:
            yield _batch(waiting.pop(width), width, batching, pad_id)
    for width in sorted(waiting):
        yield _batch(waiting[width], width, batching, pad_id)


def _batch(
    texts: Sequence[tuple[int, Tokens]], width: int, batching: Batching, pad_id: int
) -> TokenBatch:
    shape = (max(batching.height(len(texts), width), len(texts)), width)
    ids, segments = np.full(shape, pad_id, np.int32), np.zeros(shape, np.int32)
    lengths = np.zeros(shape[0], np.int32)
    for place, (_, tokens) in enumerate(texts):
        lengths[place] = length = len(tokens.ids)
        ids[place, :length], segments[place, :length] = tokens
    return TokenBatch([row for row, _ in texts], ids, segments, lengths)


def replicate(params: Any, mesh: Mesh | None) -> Any:
    """Parameters replicated over a mesh; unchanged without one, or where they are on all of it."""
    if mesh is None:
        return params
    sharding = NamedSharding(automatic_mesh(mesh), P())
    if all(
        isinstance(array, jax.Array) and array.sharding.is_equivalent_to(sharding, array.ndim)
        for array in jax.tree.leaves(params)
    ):
        return params
    if mesh.devices.flat[0].platform == "cpu":
        # a NumPy view of a JAX array is aligned, so that the devices need no copies of it
        params = jax.tree.map(lambda array: np.asarray(jnp.asarray(array)), params)
    return jax.device_put(params, sharding, may_alias=True)


def joined(blocks: Iterable[np.ndarray], features: int) -> Float[np.ndarray, "n d"]:
    """The blocks of `stream` as one array."""
    arrays = [*blocks]
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.zeros((0, features), np.float32)


def stream(
    function: Callable[..., jax.Array],
    params: Any,
    texts: Iterable[Text],
    network: Any,
    *,
    limit: int,
    features: int,
    fields: Sequence[str] = ("ids", "lengths"),
    finish: Callable[[jax.Array], jax.Array] | None = None,
    **static: Any,
) -> Generator[Float[np.ndarray, "n d"]]:
    """Results for texts as consecutive blocks of rows, each as soon as it is complete.

    Args:
      function: a jitted function of parameters and a batch's arrays, whose keyword arguments are
        static; its results are [b e].
      texts: texts and pairs, read lazily and from the second window on in another thread.
      network: an encoder, whose ``tokenizer``, ``batching`` (`Batching`) and ``pad_token_id`` of
        ``module.config`` are used.
      limit: tokens that a text is cut to.
      features: d.
      fields: the arrays of a `TokenBatch` that ``function`` takes.
      finish: a further function of results, [b e] -> [b d].
      static: keyword arguments of ``function``.

    InputError if a device's memory does not hold a single text.
    """
    batching, size = network.batching, network.batching.window

    def compute(batch: TokenBatch) -> jax.Array:
        arguments: Any = [getattr(batch, field) for field in fields]
        spread = len(batch.lengths) > batching.rows(batch.ids.shape[1])
        placed = batching.place(params, spread=spread)
        if spread and batching.mesh is not None:
            run = _spread(function, tuple(sorted(static.items())), batching.mesh, len(fields))
            arguments = jax.device_put(arguments, NamedSharding(batching.mesh, P("data")))
            values = run(placed, *arguments)
        else:
            values = function(placed, *arguments, **static)
        values = finish(values) if finish else values
        values.copy_to_host_async()
        return values

    source = iter(texts)
    first = list(islice(source, size))
    rest = iter(lambda: list(islice(source, size)), [])
    windows = (
        tokenize(network.tokenizer, window, limit=limit)
        for window in chain([first] if first else [], rest)
    )
    pad_id = network.module.config.pad_token_id
    queued: Iterator[TokenBatch] = batches(windows, limit=limit, batching=batching, pad_id=pad_id)
    with contextlib.ExitStack() as stack:
        if len(first) == size:
            queued = stack.enter_context(contextlib.closing(in_background(queued, ahead=_QUEUED)))
        results = stack.enter_context(contextlib.closing(_results(queued, compute, batching)))
        yield from _ordered_blocks(results, size, features)


@functools.lru_cache(64)
def _spread(function: Any, static: tuple[tuple[str, Any], ...], mesh: Mesh, arrays: int) -> Any:
    """A program that computes ``function`` of a batch's rows on each device by itself."""
    local = jax.shard_map(
        functools.partial(function, **dict(static)),
        mesh=mesh,
        in_specs=(P(), *[P("data")] * arrays),
        out_specs=P("data"),
        check_vma=False,
    )
    return jax.jit(local)


def _results(
    queued: Iterable[TokenBatch], compute: Callable[[TokenBatch], jax.Array], batching: Batching
) -> Generator[tuple[Sequence[int], np.ndarray]]:
    """Rows and results of batches; a few compute at any time.

    When a device's memory runs out, those that were computing are computed again in smaller ones.
    """
    waiting, running = collections.deque[TokenBatch](), collections.deque[tuple[Any, Any]]()
    source, more = iter(queued), True
    while more or waiting or running:
        check_stopped()
        if more and not waiting:
            if (batch := next(source, None)) is None:
                more = False
            else:
                waiting.extend(_parts(batch, batching))
        width = 0
        try:
            if waiting:
                width = waiting[0].ids.shape[1]
                running.append((waiting[0], compute(waiting[0])))
                waiting.popleft()
            if not running or (len(running) <= _AHEAD and (more or waiting)):
                continue
            width = running[0][0].ids.shape[1]
            batch, values = running[0][0], np.asarray(running[0][1])
            running.popleft()
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            again = [*(batch for batch, _ in running), *waiting]
            running.clear()
            batching.halve(width)
            waiting = collections.deque(p for batch in again for p in _parts(batch, batching))
            continue
        yield batch.rows, values[: len(batch.rows)]


def _parts(batch: TokenBatch, batching: Batching) -> Iterator[TokenBatch]:
    """A batch in parts that have no more rows than fit now."""
    width = batch.ids.shape[1]
    alone = batching.rows(width)
    most = alone * batching.devices
    if len(batch.lengths) in (alone, most):
        yield batch
        return
    for start in range(0, len(batch.rows), most):
        rows = batch.rows[start : start + most]
        height = batching.height(len(rows), width)
        arrays = [array[start : start + height] for array in batch[1:]]
        lacking = height - len(arrays[0])
        padded = (np.pad(a, ((0, lacking),) + ((0, 0),) * (a.ndim - 1)) for a in arrays)
        yield TokenBatch(rows, *padded)


def _ordered_blocks(
    results: Iterable[tuple[Sequence[int], np.ndarray]], size: int, features: int
) -> Iterator[Float[np.ndarray, "n d"]]:
    """Blocks of ``size`` rows, the last smaller, each once all of its rows are there."""
    blocks: dict[int, np.ndarray] = {}
    counts: dict[int, int] = collections.defaultdict(int)
    first = last = 0
    for rows, values in results:
        places = np.asarray(rows)
        last = max(last, int(places[-1]) + 1)
        for block in np.unique(places // size):
            here = places // size == block
            into = blocks.setdefault(block, np.zeros((size, features), np.float32))
            into[places[here] - block * size] = values[here]
            counts[block] += int(here.sum())
        while counts.get(first) == size:
            yield blocks.pop(first)
            first += 1
    for block in sorted(blocks):
        yield blocks[block][: last - block * size]
