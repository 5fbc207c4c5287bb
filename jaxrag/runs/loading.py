"""Loads data sets and models once a process, opens indexes, and builds them one at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import gc
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

import jax

from jaxrag.core.durable_files import explain_full_disk
from jaxrag.core.hashing import digest
from jaxrag.core.progress import tell
from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.engines.language_model import LanguageModel, ModelSettings
from jaxrag.engines.local.engine import use_compile_cache
from jaxrag.models.checkpoint.files import locate
from jaxrag.retrieval.corpus.builds import BuildPart
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.retrieval.settings import IndexSettings, IndexStatus
from jaxrag.steps import prompts

_log = logging.getLogger("jaxrag")

Given = ParamSpec("Given")
Result = TypeVar("Result")


@contextlib.contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Waits while another process holds the lock; what it built is then found."""
    with explain_full_disk(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        stream = lock.open("w")
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.warning("another process is building the data or index: waiting for %s", lock)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@functools.cache
def load_data(settings: DataSettings, cache: Path) -> Dataset:
    """The data set of some settings; built on first use.

    Every job begins with this, so from here on its compiled programs are kept in the cache, too.
    """
    use_compile_cache(cache / "compiled")
    tell(f"loading the data set ({type(settings).__name__})")
    with _one_at_a_time(cache / "data.lock"):
        return settings.load(cache)


@functools.cache
def load_model(settings: ModelSettings, cache: Path) -> LanguageModel:
    """The model of some settings."""
    return settings.load(cache)


def check_model(settings: ModelSettings, cache: Path) -> None:
    """Checks a model before an index is built, without using the devices' memory.

    Raises:
      InputError: its checkpoint is missing, or its server lacks the model.
      EngineDown: its server does not answer.
    """
    checkpoint = settings.checkpoint
    if checkpoint is None:
        load_model(settings, cache)
    elif checkpoint:
        locate(checkpoint, weights=False)


def release() -> None:
    """Lets go of the models and indexes that are kept for later runs, and of compiled programs.

    Memory is free again once nothing else holds them.
    """
    load_model.cache_clear()
    open_index_over.cache_clear()
    release_programs()


def release_programs() -> None:
    """Releases all compiled programs; later calls read theirs again from the cache on disk.

    On a CPU, the programs of a training take several hundred megabytes and thousands of memory
    mappings; Linux allows a process 65,530 mappings by default.
    """
    jax.clear_caches()
    gc.collect()


class KeepNewest(Generic[Given, Result]):
    """A function that caches its latest result only.

    The cached result is released before another one is computed, since two indexes of the papers'
    size may not fit in memory together.
    """

    def __init__(self, function: Callable[Given, Result]):
        functools.update_wrapper(self, function)
        self._function = function
        self._kept: dict[Any, Result] = {}

    def __call__(self, *given: Given.args, **named: Given.kwargs) -> Result:
        """The cached result if the arguments are the same, otherwise a new one."""
        key = given, tuple(sorted(named.items()))
        if key not in self._kept:
            if self._kept:
                self._kept.clear()
                gc.collect()
            self._kept[key] = self._function(*given, **named)
        return self._kept[key]

    def cache_clear(self) -> None:
        """Releases the cached result."""
        self._kept.clear()


@KeepNewest
def open_index_over(
    settings: IndexSettings, data: DataSettings, cache: Path
) -> Retriever | TextRetriever:
    """The index of a data set's passages; built on first use, and kept until another is opened."""
    dataset = load_data(data, cache)
    tell(f"opening the index {settings.name}, or building it")
    _tell_size(settings, dataset.passages, cache)
    with _one_at_a_time(_index_lock(dataset.passages, cache)):
        return settings.open(dataset.passages, cache)


def build_index(
    settings: IndexSettings, data: DataSettings, cache: Path, part: BuildPart
) -> IndexStatus:
    """Builds the index of a data set's passages, or a process's part of it; its state then."""
    passages = load_data(data, cache).passages
    _tell_size(settings, passages, cache)
    if not part.whole:  # whoever builds other parts holds no lock of the cache
        settings.build(passages, cache, part)
    else:
        with _one_at_a_time(_index_lock(passages, cache)):
            settings.build(passages, cache, part)
    return settings.status(passages, cache)


def _tell_size(settings: IndexSettings, passages: Passages, cache: Path) -> None:
    """Tells what an index takes that is yet to be built."""
    state = settings.status(passages, cache).state
    takes = settings.footprint(passages) if state != "built" else None
    if takes is not None and takes.disk != 0:
        tell(f"index {settings.name} of {len(passages):,} passages: {takes.text}; {state}")


def _index_lock(passages: Passages, cache: Path) -> Path:
    return cache / f"index-{digest(passages.identity)[:16]}.lock"


def describe(value: Any) -> Any:
    """Settings as plain JSON; with the fields of a dataclass, "is" names its class.

    A method's Config is named by the method: every method's settings are called Config.
    """
    if isinstance(value, tuple):
        return [describe(one) for one in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    kind, settings = type(value).__name__, cast(Any, value)
    fields = {f.name: describe(getattr(settings, f.name)) for f in dataclasses.fields(value)}
    return {"is": settings.name if kind == "Config" else kind, **fields}


def describe_job(job: Any) -> dict[str, Any]:
    """The fields of a job as plain JSON, for the record in its directory.

    "prompt_files" has digests of the contents of the user's own prompt files, if the job has any.

    Raises:
      InputError: such a file is missing or invalid.
    """
    found = {f.name: describe(getattr(job, f.name)) for f in dataclasses.fields(job)}
    own = prompts.own_files(found)
    return {**found, "prompt_files": own} if own else found
