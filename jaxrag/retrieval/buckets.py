"""Texts of all lengths through a handful of compiled programs.

Each text is padded to a width that its own length decides, and texts of one width go through the
network in batches of one fixed shape, the last one filled with empty rows. So a run compiles one
program a width, and a text's result does not depend on its company: neither on its padding nor on
the batch's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int

from jaxrag.models.sharding import automatic_mesh
from jaxrag.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Text = str | tuple[str, str]
"""What is tokenised: a text, or two that go as a pair."""

_WINDOW = 8192  # texts that are tokenised and sorted at a time
_STEP = 8
_ROWS = 4  # in twos, texts of 128 tokens took a CPU a sixth longer


class Tokens(NamedTuple):
    """A tokenised text or pair: token ids, and 1 for the second segment's tokens."""

    ids: Sequence[int]
    segments: Sequence[int]


class TokenBatch(NamedTuple):
    """Texts of one width; rows from ``len(rows)`` on are empty.

    Arrays are NumPy's, or JAX's once they are spread over a mesh.
    """

    rows: Sequence[int]
    ids: Int[Any, "b t"]
    segments: Int[Any, "b t"]
    lengths: Int[Any, " b"]


def batch_tokens(number: int | None) -> int:
    """Tokens in a batch: by default what a CPU's caches hold, or what fills an accelerator."""
    if number is None:
        return 256 if jax.default_backend() == "cpu" else 16384
    if number < 1:
        raise InputError(f"batch_tokens is {number}; at least 1 is needed.")
    return number


def tokenize(
    tokenizer: PreTrainedTokenizerFast,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    limit: int,
) -> list[Tokens]:
    """Token ids with special tokens, cut to ``limit``; of a pair the longer part is cut first."""
    if not texts:
        return []
    found = tokenizer(
        list(texts),
        None if pairs is None else list(pairs),
        truncation="longest_first",
        max_length=limit,
        return_attention_mask=False,
    )
    # Tokenizers of models that were trained without segments give none.
    segments = found.get("token_type_ids") or [(0,) * len(ids) for ids in found["input_ids"]]
    return [Tokens(*pair) for pair in zip(found["input_ids"], segments, strict=True)]


def tokenize_each(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[Text], *, limit: int
) -> list[Tokens]:
    """As `tokenize`, for texts and pairs in any order; a call of a tokenizer takes one kind."""
    alone = {i: text for i, text in enumerate(texts) if isinstance(text, str)}
    pairs = {i: text for i, text in enumerate(texts) if not isinstance(text, str)}
    first, second = [pair[0] for pair in pairs.values()], [pair[1] for pair in pairs.values()]
    found = dict(zip(alone, tokenize(tokenizer, [*alone.values()], limit=limit), strict=True))
    found |= zip(pairs, tokenize(tokenizer, first, second, limit=limit), strict=True)
    return [found[i] for i in range(len(texts))]


def bucket_width(length: int, *, limit: int) -> int:
    """The width for a text of ``length`` tokens.

    Steps of 8 up to 64; beyond, of a quarter of the power of two below, so that programs stay few
    and at most a fifth of a width is padding.
    """
    step = max(_STEP, 1 << (max(length - 1, 1).bit_length() - 1) >> 2)
    return min(-(-length // step) * step, limit)


def batches(
    inputs: Sequence[Tokens], *, limit: int, batch_tokens: int, pad_id: int, mesh: Mesh | None
) -> Iterator[TokenBatch]:
    """Cuts ``inputs`` into batches of equal width, narrow ones first.

    Args:
      inputs: none longer than ``limit``.
      limit: greatest width.
      batch_tokens: a batch has about this many rows times columns, and at least `_ROWS` rows.
      pad_id: id that fills a row.
      mesh: devices over whose "data" axis a batch's rows are spread.
    """
    multiple = 1 if mesh is None else mesh.shape.get("data", 1)
    by_width: dict[int, list[int]] = {}
    for row, tokens in enumerate(inputs):
        by_width.setdefault(bucket_width(len(tokens.ids), limit=limit), []).append(row)
    for width in sorted(by_width):
        height = max(1, max(_ROWS, batch_tokens // width) // multiple) * multiple
        rows = by_width[width]
        for start in range(0, len(rows), height):
            batch = _batch(inputs, rows[start : start + height], (height, width), pad_id)
            yield batch if mesh is None else _spread(batch, mesh)


def _batch(
    inputs: Sequence[Tokens], rows: Sequence[int], shape: tuple[int, int], pad_id: int
) -> TokenBatch:
    ids, segments = np.full(shape, pad_id, np.int32), np.zeros(shape, np.int32)
    lengths = np.zeros(shape[0], np.int32)
    for place, row in enumerate(rows):
        lengths[place] = length = len(inputs[row].ids)
        ids[place, :length], segments[place, :length] = inputs[row]
    return TokenBatch(rows, ids, segments, lengths)


def _spread(batch: TokenBatch, mesh: Mesh) -> TokenBatch:
    by_row = PartitionSpec("data") if "data" in mesh.axis_names else PartitionSpec()
    sharding = NamedSharding(automatic_mesh(mesh), by_row)
    return TokenBatch(batch.rows, *jax.device_put(batch[1:], sharding))


def replicate(params: Any, mesh: Mesh) -> Any:
    """Parameters on every device of a mesh."""
    return jax.device_put(params, NamedSharding(automatic_mesh(mesh), PartitionSpec()))


def run(
    compute: Callable[[TokenBatch], jax.Array],
    cut: Iterator[TokenBatch],
    *,
    count: int,
    features: int,
) -> Float[np.ndarray, "n d"]:
    """Results [b d] of each batch, put in the order of the inputs."""
    results = np.zeros((count, features), np.float32)
    running = [(batch.rows, compute(batch)) for batch in cut]  # dispatched ahead of being read
    for rows, values in running:
        results[np.asarray(rows)] = np.asarray(values)[: len(rows)]
    return results


def through(
    texts: Iterable[Text],
    compute: Callable[[TokenBatch], jax.Array],
    *,
    tokenizer: PreTrainedTokenizerFast,
    limit: int,
    batch_tokens: int,
    pad_id: int,
    mesh: Mesh | None,
    features: int,
) -> Float[np.ndarray, "n d"]:
    """What ``compute`` makes of texts, in their order; they are read as they are needed.

    Args:
      texts: texts and pairs.
      compute: batch [b t] -> results [b d].
      tokenizer: theirs.
      limit, batch_tokens, pad_id, mesh: as for `batches`.
      features: d.
    """
    blocks, source = [], iter(texts)
    while window := list(islice(source, _WINDOW)):
        tokens = tokenize_each(tokenizer, window, limit=limit)
        cut = batches(tokens, limit=limit, batch_tokens=batch_tokens, pad_id=pad_id, mesh=mesh)
        blocks.append(run(compute, cut, count=len(window), features=features))
    return np.concatenate(blocks) if blocks else np.zeros((0, features), np.float32)
