"""Two encoders for one index: one network for queries, another for passages."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from jaxrag.core.hashing import canonical
from jaxrag.retrieval.dense.encoder import Description, Encoder
from jaxrag.types import InputError, Passage


@dataclasses.dataclass(frozen=True)
class TwoTowers:
    """A bi-encoder whose networks do not share weights, such as DPR (Karpukhin et al. 2020).

    Raises:
      InputError: their vectors differ in length.
    """

    queries: Encoder
    passages: Encoder

    def __post_init__(self) -> None:
        _check_dimensions(self.queries, self.passages)

    @property
    def identity(self) -> str:
        """Canonical JSON of both networks' identities."""
        return _identity(self.queries, self.passages)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.passages.dimension

    def embed(self, texts: Iterable[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of queries."""
        return self.queries.embed(texts)

    def embed_passages(self, passages: Iterable[Passage]) -> Float[np.ndarray, "n d"]:
        """Vectors of passages, which are read as they are needed."""
        return self.passages.embed_passages(passages)


def describe_towers(queries: Description, passages: Description) -> Description:
    """What a `TwoTowers` of these two will say of itself.

    Raises:
      InputError: their vectors differ in length.
    """
    _check_dimensions(queries, passages)
    settings = {"queries": queries.settings, "passages": passages.settings}
    return Description(_identity(queries, passages), passages.dimension, settings)


def _identity(queries: Encoder | Description, passages: Encoder | Description) -> str:
    towers = {"queries": queries, "passages": passages}
    return canonical({name: json.loads(tower.identity) for name, tower in towers.items()})


def _check_dimensions(queries: Encoder | Description, passages: Encoder | Description) -> None:
    if queries.dimension != passages.dimension:
        raise InputError(
            f"the query checkpoint makes vectors of {queries.dimension} numbers, that of passages "
            f"of {passages.dimension}: they are no two towers of one model."
        )
