"""Protocols of the settings of indexes and rerankers, and the directory of indexes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from jaxrag.core.hashing import digest
from jaxrag.core.progress import size_text
from jaxrag.engines.language_model import LanguageModel
from jaxrag.retrieval import rerank
from jaxrag.retrieval.corpus.builds import WHOLE, BuildPart
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.types import InputError


class IndexStatus(NamedTuple):
    """Whether an index is built, and where.

    ``state`` is "built", or what is missing or wrong; ``dimension`` of vectors is None without any.
    """

    directory: Path
    state: str
    dimension: int | None = None


class Footprint(NamedTuple):
    """What an index of a corpus takes, estimated before it is built.

    Attributes:
      disk: bytes on disk; None if not known.
      memory: bytes of memory, devices' included, that a process needs to search it; None if not
        known. Memory maps count as far as every search reads them.
      note: what the numbers rest on, or why they are not known; "" if there is nothing to say.
    """

    disk: int | None = None
    memory: int | None = None
    note: str = ""

    @property
    def text(self) -> str:
        """The numbers, as part of a sentence."""
        parts = []
        if self.disk is not None:
            parts.append(f"{size_text(self.disk)} on disk")
        if self.memory is not None:
            parts.append(f"{size_text(self.memory)} of memory to search")
        if self.note:
            parts.append(f"({self.note})" if parts else f"size {self.note}")
        return ", ".join(parts).replace(", (", " (")


@runtime_checkable
class IndexSettings(Protocol):
    """Settings of an index."""

    @property
    def gives_vectors(self) -> bool:
        """Whether the index is a `Retriever`, with vectors of passages, or a `TextRetriever`."""
        ...

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Checkpoints that `status` reads."""
        ...

    @property
    def name(self) -> str:
        """Name in tables."""
        ...

    def open(self, passages: Passages, cache: Path) -> Retriever | TextRetriever:
        """Opens the index of a corpus, building it on first use."""
        ...

    def build(self, passages: Passages, cache: Path, part: BuildPart) -> None:
        """Builds what is missing of an index, or a ``part``; InputError if it cannot have parts."""
        ...

    def footprint(self, passages: Passages) -> Footprint:
        """What the index of a corpus takes, found without loading weights or building anything."""
        ...

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the index of a corpus is built, found without loading or building anything."""
        ...


def refuse_parts(name: str, part: BuildPart) -> None:
    """InputError unless ``part`` is the whole: for an index that is built at once."""
    if part != WHOLE:
        raise InputError(
            f"{name} is built at once by one process: leave out --shard and --distributed."
        )


class RerankerSettings(Protocol):
    """Settings of a reranker."""

    def load(self, model: Callable[[], LanguageModel], cache: Path) -> rerank.Reranker:
        """Loads the reranker; ``model`` loads the run's language model, if it is not loaded yet."""
        ...


def index_directory(cache: Path, *identities: str) -> Path:
    """Where an index with these identities (encoder, passages, settings) is stored."""
    return cache / "indexes" / digest(*identities)[:16]


@dataclasses.dataclass(frozen=True)
class CrossEncoder:
    """A reranker that reads query and passage together."""

    checkpoint: str

    def load(self, model: Callable[[], LanguageModel], cache: Path) -> rerank.Reranker:
        """Loads the checkpoint onto the devices."""
        return rerank.CrossEncoderReranker.load(self.checkpoint)


@dataclasses.dataclass(frozen=True)
class QueryLikelihood:
    """Reranks by the language model's mean log-probability of the query given the passage."""

    def load(self, model: Callable[[], LanguageModel], cache: Path) -> rerank.Reranker:
        """Uses the run's own language model."""
        return rerank.QueryLikelihoodReranker(model())
