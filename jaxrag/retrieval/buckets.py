"""Bucketed batching: texts of all lengths through a handful of compiled programs.

Each text is padded to a width that depends on its own length only, and texts of one width go
through the network in batches of one fixed shape, the last filled with empty rows. So a run
compiles one program a width, and a text's result does not depend on the rest of its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int

from jaxrag.models.sharding import automatic_mesh
from jaxrag.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Text = str | tuple[str, str]
"""A text, or two that are tokenized as a pair."""

_WINDOW = 8192  # texts tokenized and sorted at a time
_STEP = 8
_ROWS = 4  # least rows of a batch; with 2, texts of 128 tokens took a CPU a sixth longer


class Tokens(NamedTuple):
    """A tokenized text or pair: token ids, and segments, 1 for the second text's tokens."""

    ids: Sequence[int]
    segments: Sequence[int]


class TokenBatch(NamedTuple):
    """Texts of one width; rows from ``len(rows)`` on are empty.

    Arrays are NumPy's, or JAX's if they are sharded over a mesh. ``rows`` index the input texts.
    """

    rows: Sequence[int]
    ids: Int[Any, "b t"]
    segments: Int[Any, "b t"]
    lengths: Int[Any, " b"]


class TextNetwork(Protocol):
    """A network with its tokenizer, and how its inputs are batched."""

    @property
    def module(self) -> Any:
        """Flax module; its ``config`` has ``pad_token_id``."""
        ...

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Tokenizer of the network."""
        ...

    @property
    def batch_tokens(self) -> int:
        """Tokens in a batch, see `batches`."""
        ...

    @property
    def mesh(self) -> Mesh | None:
        """Devices that batches are sharded over, see `batches`."""
        ...


def check_length(
    length: int | None, least: int, most: int, *, source: object, name: str = "max_length"
) -> int:
    """The length limit in tokens, by default ``most``; InputError outside ``least`` to ``most``."""
    length = most if length is None else length
    if not least <= length <= most:
        raise InputError(f"{name} is {length}; {source} allows {least} to {most} tokens.")
    return length


def batch_tokens(number: int | None) -> int:
    """Tokens in a batch; by default what a CPU's caches hold, or what fills an accelerator."""
    if number is None:
        return 256 if jax.default_backend() == "cpu" else 16384
    if number < 1:
        raise InputError(f"batch_tokens is {number}; at least 1 is needed.")
    return number


def tokenize(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[Text], *, limit: int
) -> list[Tokens]:
    """Token ids with special tokens, cut to ``limit``; of a pair the longer part is cut first."""
    found: dict[int, Tokens] = {}
    for in_pairs in (False, True):  # a call of a tokenizer takes either kind
        places = [i for i, text in enumerate(texts) if isinstance(text, tuple) == in_pairs]
        if places:
            some: Any = [texts[i] for i in places]
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
            found |= zip(places, map(Tokens, ids, segments), strict=True)
    return [found[i] for i in range(len(texts))]


def bucket_width(length: int, *, limit: int) -> int:
    """Padded width of a text of ``length`` tokens.

    Widths are multiples of 8 up to 64; beyond, of a quarter of the power of two below, so that
    there are few programs and at most a fifth of a width is padding.
    """
    step = max(_STEP, 1 << (max(length - 1, 1).bit_length() - 1) >> 2)
    return min(-(-length // step) * step, limit)


def batches(
    inputs: Sequence[Tokens], *, limit: int, batch_tokens: int, pad_id: int, mesh: Mesh | None
) -> Iterator[TokenBatch]:
    """Batches of equal width, narrow ones first.

    Args:
      inputs: none longer than ``limit``.
      limit: greatest width.
      batch_tokens: approximate number of rows times columns; a batch has at least 4 rows.
      pad_id: fills the rest of a row.
      mesh: devices over whose "data" axis a batch's rows are sharded.
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
            yield batch if mesh is None else _shard(batch, mesh)


def _batch(
    inputs: Sequence[Tokens], rows: Sequence[int], shape: tuple[int, int], pad_id: int
) -> TokenBatch:
    ids, segments = np.full(shape, pad_id, np.int32), np.zeros(shape, np.int32)
    lengths = np.zeros(shape[0], np.int32)
    for place, row in enumerate(rows):
        lengths[place] = length = len(inputs[row].ids)
        ids[place, :length], segments[place, :length] = inputs[row]
    return TokenBatch(rows, ids, segments, lengths)


def _shard(batch: TokenBatch, mesh: Mesh) -> TokenBatch:
    by_row = PartitionSpec("data") if "data" in mesh.axis_names else PartitionSpec()
    sharding = NamedSharding(automatic_mesh(mesh), by_row)
    return TokenBatch(batch.rows, *jax.device_put(batch[1:], sharding))


def replicate(params: Any, mesh: Mesh | None) -> Any:
    """Parameters replicated over a mesh; unchanged without one."""
    if mesh is None:
        return params
    return jax.device_put(params, NamedSharding(automatic_mesh(mesh), PartitionSpec()))


def apply(
    compute: Callable[[TokenBatch], jax.Array],
    texts: Iterable[Text],
    network: TextNetwork,
    *,
    limit: int,
    features: int,
) -> Float[np.ndarray, "n d"]:
    """Results of ``compute`` for texts, in their order; texts are read lazily.

    Args:
      compute: batch [b t] -> results [b d].
      texts: texts and pairs.
      network: its tokenizer and batch settings are used.
      limit: tokens that a text is cut to.
      features: d.
    """
    blocks, source = [], iter(texts)
    while window := list(islice(source, _WINDOW)):
        inputs = batches(
            tokenize(network.tokenizer, window, limit=limit),
            limit=limit,
            batch_tokens=network.batch_tokens,
            pad_id=network.module.config.pad_token_id,
            mesh=network.mesh,
        )
        running = [(batch.rows, compute(batch)) for batch in inputs]  # all before any is read
        blocks.append(np.zeros((len(window), features), np.float32))
        for rows, values in running:
            blocks[-1][np.asarray(rows)] = np.asarray(values)[: len(rows)]
    return np.concatenate(blocks) if blocks else np.zeros((0, features), np.float32)
