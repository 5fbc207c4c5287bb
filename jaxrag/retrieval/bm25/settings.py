"""Indexes of words."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

from jaxrag.data.dataset import Dataset
from jaxrag.engines.store import canonical
from jaxrag.loading import index_directory
from jaxrag.retrieval import bm25
from jaxrag.retrieval.bm25_words import Bm25Settings, Variant
from jaxrag.retrieval.retriever import TextRetriever


@dataclasses.dataclass(frozen=True)
class Bm25:
    """BM25, see `jaxrag.retrieval.bm25`; it has no vectors, so AIS cannot select from it.

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

    gives_vectors: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._settings()  # which checks them

    @property
    def name(self) -> str:
        """For tables."""
        return "BM25"

    def open(self, dataset: Dataset, cache: Path) -> TextRetriever:
        """Opens the index, building it on first use."""
        return bm25.Bm25Index.build(
            self.directory(dataset, cache), dataset.passages, settings=self._settings()
        )

    def directory(self, dataset: Dataset, cache: Path) -> Path:
        """Where the index of a data set's passages is kept."""
        source = bm25.source_of(dataset.passages, self._settings())
        return index_directory(cache, bm25.KIND, canonical(source))

    def state(self, dataset: Dataset, cache: Path) -> str:
        """What is there, told without building it."""
        return bm25.state(self.directory(dataset, cache))

    def _settings(self) -> Bm25Settings:
        return Bm25Settings(**dataclasses.asdict(self))
