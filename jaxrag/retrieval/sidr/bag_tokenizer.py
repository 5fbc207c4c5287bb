"""A passage as the set of its tokens, T(x) of SiDR: what the tokenizer alone can tell."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxrag.core.hashing import canonical, digest
from jaxrag.functional.bag_of_tokens import LONGEST, PAD
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError, Passage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclasses.dataclass(frozen=True)
class BagTokenizer:
    """Turns passages into sets of token ids, counted from ``first``.

    A passage is read as "title [SEP] text", as SiDR's released code does, or as its text alone
    where it has no title; the tokens below ``first``, special and unused ones, are left out.

    Attributes:
      tokenizer: the checkpoint's.
      identity: canonical JSON of all that determines the sets; the network's weights do not, so
        one index serves a model from its first step of training to its last.
      first: the first token id that counts, 999 for BERT's vocabulary.
      max_length: tokens, special ones included, that a passage is cut to.
    """

    tokenizer: PreTrainedTokenizerFast
    identity: str
    first: int
    max_length: int

    @classmethod
    def load(cls, path: str | Path, *, first: int = 999, max_length: int = 128) -> BagTokenizer:
        """The tokenizer of a checkpoint's directory.

        Raises:
          InputError: no tokenizer there, a vocabulary that 16 bits cannot number, or sizes that
            will not do.
        """
        return cls.of(load_tokenizer(path), first=first, max_length=max_length)

    @classmethod
    def of(
        cls, tokenizer: PreTrainedTokenizerFast, *, first: int = 999, max_length: int = 128
    ) -> BagTokenizer:
        """Of a tokenizer at hand; raises as `load` does."""
        size = len(tokenizer)
        if not 0 <= first < size:
            raise InputError(
                f"first is {first}, but the vocabulary has {size} tokens; give the id of the "
                "first token that is one of words"
            )
        if size - first > PAD:
            raise InputError(
                f"the vocabulary has {size - first:,} tokens from {first} on, but ids are stored "
                f"in 16 bits, which number {PAD:,}; bags of tokens are for vocabularies such as "
                "BERT's"
            )
        if not 3 <= max_length <= LONGEST:
            raise InputError(f"max_length is {max_length}; 3 to {LONGEST} tokens are possible")
        settings = {
            "tokenizer": _hash(tokenizer),
            "separator": tokenizer.sep_token or "",
            "first": first,
            "max_length": max_length,
        }
        return cls(tokenizer, canonical({"bag": settings}), first, max_length)

    @property
    def vocabulary(self) -> int:
        """Tokens that count; ids are below it."""
        return len(self.tokenizer) - self.first

    def tokens(self, passages: Sequence[Passage]) -> list[np.ndarray]:
        """Each passage's ids, less ``first``: ascending, each once, uint16."""
        if not passages:
            return []
        found = self.tokenizer(
            [self._text(passage) for passage in passages],
            truncation=True,
            max_length=self.max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return [self._bag(ids) for ids in found["input_ids"]]

    def _text(self, passage: Passage) -> str:
        if not passage.title:
            return passage.text
        return f"{passage.title} {self.tokenizer.sep_token or ''} {passage.text}"

    def _bag(self, ids: Sequence[int]) -> np.ndarray:
        distinct = np.fromiter(sorted({*ids}), np.int64)
        return (distinct[distinct >= self.first] - self.first).astype(np.uint16)


def _hash(tokenizer: PreTrainedTokenizerFast) -> str:
    """Of the tokenizer's definition, without how it was last told to cut and pad."""
    definition: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    kept = {name: definition[name] for name in definition.keys() - {"truncation", "padding"}}
    return digest(canonical(kept))
