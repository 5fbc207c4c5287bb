"""What a run or a job is put together from: settings of its parts, loaded once and built by one.

The protocols here are what `jaxrag.settings` offers; loading goes through the functions below, so
that two parts of a process that want the same data, model or index share it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from jaxrag.data.dataset import Dataset
from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.store import digest
from jaxrag.methods.tools import CountSelector
from jaxrag.retrieval.manifest import enough_space
from jaxrag.retrieval.rerank import Reranker
from jaxrag.retrieval.retriever import Retriever, TextRetriever

_log = logging.getLogger("jaxrag")


class DataSettings(Protocol):
    """Which questions and passages; see `jaxrag.settings`."""

    def load(self, cache: Path) -> Dataset:
        """Reads the data, building it under ``cache`` on first use."""
        ...


class ModelSettings(Protocol):
    """Which language model."""

    @property
    def name(self) -> str:
        """For tables."""
        ...

    def load(self, cache: Path) -> LanguageModel:
        """Loads the model; compiled programs go under ``cache``."""
        ...


class IndexSettings(Protocol):
    """Which encoder and index.

    One whose index is a `TextRetriever` says so by an attribute ``gives_vectors``, False.
    """

    @property
    def name(self) -> str:
        """For tables."""
        ...

    def open(self, dataset: Dataset, cache: Path) -> Retriever | TextRetriever:
        """Opens the index of the data's passages, building it on first use."""
        ...


class RerankerSettings(Protocol):
    """Which reranker."""

    def load(self, model: LanguageModel, cache: Path) -> Reranker:
        """Loads the reranker; ``model`` is the run's language model."""
        ...


class RewriteRankerSettings(Protocol):
    """Which ranker of rewrites."""

    def directory(self) -> Path:
        """Where it lies; an error where nothing is there."""
        ...

    def load(self) -> Reranker:
        """Loads the trained ranker."""
        ...


class CountSelectorSettings(Protocol):
    """Which selector of how many rewrites to keep."""

    def directory(self) -> Path:
        """Where it lies; an error where nothing is there."""
        ...

    def load(self, retriever: Retriever | TextRetriever) -> CountSelector:
        """Loads the trained selector, which is to fit the index's encoder."""
        ...


@contextlib.contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Waits for other processes that prepare the same, and finds done what they did."""
    with enough_space(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        stream = lock.open("w")
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.warning("another process is building here: waiting until it lets go of %s", lock)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@functools.cache
def load_data(settings: DataSettings, cache: Path) -> Dataset:
    """The data set of some settings, read once; built on first use, by one process at a time."""
    with _one_at_a_time(cache / "data.lock"):
        return settings.load(cache / "data")


@functools.cache
def load_model(settings: ModelSettings, cache: Path) -> LanguageModel:
    """The model of some settings, loaded once."""
    return settings.load(cache)


@functools.cache
def open_index_over(
    settings: IndexSettings, data: DataSettings, cache: Path
) -> Retriever | TextRetriever:
    """The index of a data set's passages, opened once; a corpus is built over by one process."""
    dataset = load_data(data, cache)
    with _one_at_a_time(cache / f"index-{digest(dataset.passages.identity)[:16]}.lock"):
        return settings.open(dataset, cache)


def describe(value: Any) -> Any:
    """Settings as plain JSON; a dataclass tells its own name beside its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        kind = f"{type(value).__module__.rpartition('.')[2]}.{type(value).__name__}"
        return {"is": kind, **fields}
    return value


def index_directory(cache: Path, *identities: str) -> Path:
    """Where an index with these identities (encoder, passages, settings) is kept."""
    return cache / "indexes" / digest(*identities)[:16]
