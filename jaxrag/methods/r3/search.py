"""How R3 finds passages while its retriever changes; docs/methods.md, "R3: ablations".

R3 itself searches the tokens of passages, which do not change, and embeds anew the few that it
found (`LateSearch`). Its ablations leave out the second part (`BetaSearch`), or search vectors of
all passages that are made anew now and then (`VectorSearch`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxrag.methods.r3.sidr_training import step_name
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.semi_parametric import PassageVectors, late
from jaxrag.retrieval.sidr.sparse import SparseIndex, build_sparse
from jaxrag.types import InputError, Ranking

Found = tuple[list[Ranking], dict[str, float]]
"""Rankings of some texts, and figures such as the seconds of their parts."""

Search = Callable[[Sequence[str]], Found]
"""Finds passages with an encoder as it is at one step; may be called for parts of a batch."""


@dataclasses.dataclass(frozen=True)
class LateSearch:
    """The ``m`` best by tokens, ordered by vectors; each passage of a step is embedded once.

    Attributes:
      index: the corpus's tokens.
      passages: the corpus.
      m: passages that are ordered, all of which are given.
    """

    index: BagOfTokens
    passages: Passages
    m: int = 20

    def at(self, encoder: SidrEncoder, step: int) -> Search:
        """Rankings of the ``m`` passages, and the seconds of both parts."""
        vectors = PassageVectors(encoder, self.passages)

        def search(texts: Sequence[str]) -> Found:
            began, before = time.monotonic(), vectors.embedded
            queries = encoder.embed(texts)
            found = self.index.search(queries, self.m)
            middle = time.monotonic()
            rankings = late(queries, found, vectors, self.m)
            return rankings, {
                "search_seconds": middle - began,
                "rerank_seconds": time.monotonic() - middle,
                "reranked": vectors.embedded - before,
            }

        return search


@dataclasses.dataclass(frozen=True)
class BetaSearch:
    """The ``m`` best by tokens, in that order."""

    index: BagOfTokens
    m: int = 20

    def at(self, encoder: SidrEncoder, step: int) -> Search:
        """Rankings of the ``m`` passages, and the seconds."""

        def search(texts: Sequence[str]) -> Found:
            began = time.monotonic()
            rankings = self.index.search(encoder.embed(texts), self.m)
            return rankings, {"search_seconds": time.monotonic() - began}

        return search


@dataclasses.dataclass
class VectorSearch:
    """The ``m`` best by vectors that are as old as the last indexing.

    Attributes:
      encoder: with the parameters before training.
      passages: the corpus.
      directory: where the indexes lie, one for each indexing; a run that goes on finds them there.
      every: steps from one indexing to the next.
      m: passages found.
    """

    encoder: SidrEncoder
    passages: Passages
    directory: Path
    every: int
    m: int = 20
    _open: tuple[int, SparseIndex] | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"every is {self.every}; it is to be at least 1 step.")

    def at(self, encoder: SidrEncoder, step: int) -> Search:
        """Rankings of the ``m`` passages, and the seconds of searching and of indexing."""

        def search(texts: Sequence[str]) -> Found:
            began = time.monotonic()
            index = self._index(encoder, step)
            middle = time.monotonic()
            rankings = index.search(encoder.embed(texts), self.m)
            return rankings, {
                "index_seconds": middle - began,
                "search_seconds": time.monotonic() - middle,
            }

        return search

    def _index(self, encoder: SidrEncoder, step: int) -> SparseIndex:
        """That of the last multiple of ``every``; of the first step asked about, where later."""
        made = [int(path.name) for path in self.directory.glob("*") if path.name.isdigit()]
        current = [number for number in made if step - self.every < number <= step]
        number = max(current, default=step)
        if self._open is None or self._open[0] != number:
            index = build_sparse(
                self.passages,
                encoder.embed_passages,
                self.encoder.with_params({}, step_name(number)).identity,
                self.directory / str(number),
                vocabulary=encoder.dimension,
                length=encoder.entries,
            )
            self._open = (number, index)
        return self._open[1]
