"""Indexes of words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxrag.core.hashing import canonical
from jaxrag.retrieval.bm25 import index as bm25
from jaxrag.retrieval.bm25.words import Bm25Settings, Variant
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.retrieval.settings import index_directory


@dataclasses.dataclass(frozen=True)
class Bm25:
    """BM25, see `jaxrag.retrieval.bm25.index`; it has no vectors, so AIS cannot select from it.

    Attributes:
      variant: "lucene", "robertson" or "atire".
      k1, b: how much more occurrences of a word add; how much long passages lose.
      title: whether a passage's title counts as part of its text.
      stopwords: words left out: "english", "english_plus", another language, or "none".
      stemmer: "porter", "english", another language, or "none".
    """

    variant: Variant = "lucene"
    k1: float = 0.9
    b: float = 0.4
    title: bool = True
    stopwords: str = "english"
    stemmer: str = "porter"

    gives_vectors = False
    checkpoints = ()

    def __post_init__(self) -> None:
        self._settings()  # which checks them

    @property
    def name(self) -> str:
        """For tables."""
        return "BM25"

    def open(self, passages: Passages, cache: Path) -> TextRetriever:
        """Opens the index, building it on first use."""
        return bm25.Bm25Index.build(
            self.directory(passages, cache), passages, settings=self._settings()
        )

    def directory(self, passages: Passages, cache: Path) -> Path:
        """Where the index of a corpus is kept."""
        source = bm25.source_of(passages, self._settings())
        return index_directory(cache, bm25.KIND, canonical(source))

    def state(self, passages: Passages, cache: Path) -> str:
        """What is there, told without building it."""
        return bm25.state(self.directory(passages, cache))

    def dimension(self) -> None:
        """No vectors are built."""

    def _settings(self) -> Bm25Settings:
        return Bm25Settings(**dataclasses.asdict(self))
