"""Search with a retriever that is being trained; docs/methods, "R3: ablations".

R3 searches the tokens of passages, which do not change, and embeds the few passages found with the
current parameters (`LateSearch`). Its ablations leave out the second part (`BetaSearch`), or search
passage vectors that are recomputed at intervals (`VectorSearch`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from jaxrag.core.hashing import canonical
from jaxrag.methods.r3.contrastive import TowersEncoder
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.exact import ExactIndex
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.semi_parametric import PassageVectors, late
from jaxrag.retrieval.sidr.sparse import SparseIndex
from jaxrag.types import Ranking

Found = tuple[list[Ranking], dict[str, float]]
"""Rankings of some texts, and metrics such as the seconds of each part."""

Search = Callable[[Sequence[str]], Found]
"""Searches with the parameters of one step; may be called for parts of a batch."""


class Searcher(Protocol):
    """Searches with an encoder whose parameters change."""

    def at(self, encoder: Any, step: int) -> Search:
        """The search with the parameters before a step, of the encoder that it is for."""
        ...


def step_name(number: int) -> str:
    """Name of the parameters after ``steps`` steps, see `SidrEncoder.with_params`."""
    return f"step {number}"


@dataclasses.dataclass(frozen=True)
class LateSearch:
    """The ``m`` best by tokens, reranked by vectors; each passage is embedded once a step."""

    index: BagOfTokens
    passages: Passages
    m: int = 20

    def at(self, encoder: SidrEncoder, step: int) -> Search:
        """See `Searcher.at`; metrics are the seconds of both parts and the passages embedded."""
        vectors = PassageVectors(encoder, self.passages)

        def search(texts: Sequence[str]) -> Found:
            began, before = time.monotonic(), vectors.embedded
            queries = encoder.embed(texts)
            candidates = self.index.search(queries, self.m)
            middle = time.monotonic()
            rankings = late(queries, candidates, vectors, self.m)
            return rankings, {
                "search_seconds": middle - began,
                "rerank_seconds": time.monotonic() - middle,
                "reranked": vectors.embedded - before,
            }

        return search


@dataclasses.dataclass(frozen=True)
class BetaSearch:
    """The ``m`` best passages by beta search over token sets, not reranked."""

    index: BagOfTokens
    m: int = 20

    def at(self, encoder: SidrEncoder, step: int) -> Search:
        """See `Searcher.at`; its metrics are the seconds of search."""

        def search(texts: Sequence[str]) -> Found:
            began = time.monotonic()
            rankings = self.index.search(encoder.embed(texts), self.m)
            return rankings, {"search_seconds": time.monotonic() - began}

        return search


@dataclasses.dataclass
class VectorSearch:
    """The ``m`` best by vectors of the last indexing.

    ``encoder`` has the initial parameters. ``directory`` holds one index per indexing, every
    ``every`` steps; a resumed run reuses them.
    """

    encoder: TowersEncoder
    passages: Passages
    directory: Path
    every: int
    m: int = 20
    _open: tuple[int, SparseIndex | ExactIndex] | None = None

    def at(self, encoder: TowersEncoder, step: int) -> Search:
        """See `Searcher.at`; its metrics are the seconds of indexing and of search."""

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

    def _index(self, encoder: TowersEncoder, step: int) -> SparseIndex | ExactIndex:
        """The newest index of the last ``every`` steps; a new one if there is none."""
        steps = [int(path.name) for path in self.directory.glob("*") if path.name.isdigit()]
        current = [number for number in steps if step - self.every < number <= step]
        number = max(current, default=step)
        if self._open is None or self._open[0] != number:
            named = self.encoder.with_params(encoder.params, step_name(number))
            self._open = (number, named.index(self.passages, self.directory / str(number)))
        return self._open[1]


@dataclasses.dataclass(frozen=True)
class StepIndex:
    """A corpus as a searcher searches it at one step; a `TextRetriever`."""

    searcher: VectorSearch
    encoder: TowersEncoder
    step: int

    @property
    def identity(self) -> str:
        """Of the parameters, of when the index was made, and of the corpus."""
        about = {"encoder": self.encoder.identity, "step": self.step, "m": self.searcher.m}
        about |= {"every": self.searcher.every, "begun": self.searcher.encoder.identity}
        return canonical({"at_step": about, "passages": self.passages.identity})

    @property
    def passages(self) -> Passages:
        """The corpus."""
        return self.searcher.passages

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        """The ``k`` best passages of each question, at most the searcher's ``m``."""
        rankings, _ = self.searcher.at(self.encoder, self.step)(texts)
        return [Ranking(ranking.ids[:k], ranking.scores[:k]) for ranking in rankings]
