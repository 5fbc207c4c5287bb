"""What a run or a job is put together from: settings of its parts, loaded once and built by one.

Loading goes through the functions below, so that two parts of a process that want the same data,
model or index share it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrag.core.durable_files import explain_full_disk
from jaxrag.core.hashing import digest
from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.engines.language_model import LanguageModel, ModelSettings
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.retrieval.settings import IndexSettings

_log = logging.getLogger("jaxrag")


@contextlib.contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Waits for other processes that prepare the same, and finds done what they did."""
    with explain_full_disk(lock):
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
        return settings.open(dataset.passages, cache)


def describe(value: Any) -> Any:
    """Settings as plain JSON; beside the fields of a dataclass, "is" names its class.

    Of a method's Config it is the method's name: every method's settings are called Config.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        kind = type(value).__name__
        return {"is": value.name if kind == "Config" else kind, **fields}
    return value
