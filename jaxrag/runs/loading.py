"""Loads data sets and models, opens indexes, and builds them one at a time, kept for later jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import logging
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

import jax

from jaxrag.core.durable_files import READ_ONLY, explain_limits, open_own, wait_for_lock
from jaxrag.core.file_states import FileState, check_unchanged, once
from jaxrag.core.hashing import digest
from jaxrag.core.progress import tell
from jaxrag.core.store import CACHE
from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.engines.language_model import LanguageModel, ModelSettings
from jaxrag.engines.local.engine import use_compile_cache
from jaxrag.evaluation.summary import shown_name
from jaxrag.models.checkpoint.files import locate
from jaxrag.models.checkpoint.gguf import gguf_parts
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
    """Waits while another process holds the lock; none in a cache that cannot be written."""
    try:
        with explain_limits(lock):
            lock.parent.mkdir(parents=True, exist_ok=True)
            handle = open_own(lock, os.O_RDWR)
    except OSError as error:
        if error.errno not in READ_ONLY or not lock.parent.is_dir():
            raise
        yield
        return
    with os.fdopen(handle):
        wait_for_lock(handle, lock, "another process is building the data or index")
        yield


@once
def load_data(settings: DataSettings, cache: Path) -> Dataset:
    """The data set, built on first use; from here on compiled programs are kept in the cache."""
    if cache == Path(CACHE) and not cache.exists():
        tell(f"data, indexes and results are kept in {cache}; $JAXRAG_CACHE names another folder")
    use_compile_cache(cache / "compiled")
    _tell_loading(settings)
    with _one_at_a_time(cache / "data.lock"):
        return settings.load(cache)


@functools.cache
def _tell_loading(settings: DataSettings) -> None:
    tell(f"loading the data set ({type(settings).__name__})")


def _files(settings: Any) -> Iterator[Path]:
    """Files that settings name, those of folders and their folders, too; none of "hub:NAME"."""
    if dataclasses.is_dataclass(settings):
        settings = tuple(getattr(settings, field.name) for field in dataclasses.fields(settings))
    if isinstance(settings, tuple):
        for part in settings:
            yield from _files(part)
    if not isinstance(settings, str) or not settings or settings.startswith("hub:"):
        return
    path = Path(settings)
    with contextlib.suppress(OSError, RuntimeError):  # a text that is no path
        path = locate(settings) if settings.startswith("package:") else path.expanduser()
        if path.is_file():
            yield from gguf_parts(path)
        files = (file for depth in ("*", "*/*") for file in path.glob(depth))
        yield from sorted(file for file in files if file.is_file())


@once
def _state(settings: Any) -> tuple[Any, ...]:
    """What tells a change of a model or index; new at each call for servers and young files."""
    files = tuple(map(FileState.of, _files(settings)))
    server = getattr(settings, "checkpoint", "") is None
    fleeting = server or not all(file.settled for file in files)
    return (*files, object() if fleeting else None)


class Kept(Generic[Given, Result]):
    """A function of settings whose results are kept as long as ``state`` of its arguments is equal.

    A result that is no longer valid is released before another one is computed, and with ``newest``
    all others are: two indexes of the papers' size may not fit in memory together.
    """

    def __init__(
        self,
        function: Callable[Concatenate[Any, Given], Result],
        state: Callable[Concatenate[Any, Given], object],
        *,
        newest: bool = False,
    ):
        functools.update_wrapper(self, function)
        self._function, self._state, self._newest = function, state, newest
        self._kept: dict[Any, tuple[object, Result]] = {}

    def __call__(self, settings: Any, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """The kept result if it is still valid, otherwise a new one."""
        state = self._state(settings, *args, **kwargs)
        if settings not in self._kept or self._kept[settings][0] != state:
            if self._kept.pop(settings, None) or (self._newest and self._kept):
                self._kept = {} if self._newest else self._kept
                gc.collect()
            self._kept[settings] = state, self._function(settings, *args, **kwargs)
        return self._kept[settings][1]

    def cache_clear(self, keep: Collection[Any] = ()) -> None:
        """Releases the kept results but those of the settings ``keep``."""
        self._kept = {name: kept for name, kept in self._kept.items() if name in keep}


def _load_model(settings: ModelSettings, cache: Path) -> LanguageModel:
    files = list(map(FileState.of, _files(settings)))
    model = settings.load(cache)
    check_unchanged(files)
    return model


load_model = Kept(_load_model, lambda settings, cache: (cache.absolute(), _state(settings)))
"""The model of some settings, in a cache."""


def check_model(settings: ModelSettings, cache: Path) -> None:
    """Checks, before an index is built and without devices, that the model can be loaded.

    InputError if its checkpoint or its server lacks it; EngineDown if no server answers.
    """
    checkpoint = settings.checkpoint
    if checkpoint is None:
        load_model(settings, cache)
    elif checkpoint:
        locate(checkpoint, weights=False)


def release(keep: Collection[Any] = ()) -> None:
    """Lets go of kept indexes, programs and models; models of the settings ``keep`` stay."""
    load_model.cache_clear(keep)
    open_index_over.cache_clear()
    release_programs()


def release_programs() -> None:
    """Releases all compiled programs; later calls read theirs again from the cache on disk.

    A training's take hundreds of megabytes on a CPU, and mappings, of which Linux allows 65,530.
    """
    jax.clear_caches()
    gc.collect()


def _open_index(
    settings: IndexSettings, data: DataSettings, cache: Path
) -> Retriever | TextRetriever:
    dataset = load_data(data, cache)
    tell(f"opening the index {shown_name(settings.name)}, or building it")
    _tell_size(settings, dataset.passages, cache)
    with _one_at_a_time(_index_lock(dataset.passages, cache)):
        return settings.open(dataset.passages, cache)


def _index_state(settings: IndexSettings, data: DataSettings, cache: Path) -> tuple[Any, ...]:
    passages = load_data(data, cache).passages
    return passages.identity, passages.directory, cache.absolute(), _state(settings)


open_index_over = Kept(_open_index, _index_state, newest=True)
"""The index of a data set's passages; built on first use, and kept until another is opened."""


def build_index(
    settings: IndexSettings, data: DataSettings, cache: Path, part: BuildPart
) -> IndexStatus:
    """Builds the index of a data set's passages, or a process's part of it; its state then."""
    passages = load_data(data, cache).passages
    _tell_size(settings, passages, cache)
    if part.count > 1:  # whoever builds other parts holds no lock of the cache
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
        name = shown_name(settings.name)
        tell(f"index {name} of {len(passages):,} passages: {takes.text}; {state}")


def _index_lock(passages: Passages, cache: Path) -> Path:
    return cache / f"index-{digest(passages.identity)[:16]}.lock"


def describe(value: Any) -> Any:
    """Settings as plain JSON; "is" names a dataclass, or the method whose Config it is."""
    if isinstance(value, tuple):
        return [describe(part) for part in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    kind, settings = type(value).__name__, cast(Any, value)
    fields = {f.name: describe(getattr(settings, f.name)) for f in dataclasses.fields(value)}
    return {"is": settings.name if kind == "Config" else kind, **fields}


def describe_job(job: Any) -> dict[str, Any]:
    """A job's fields as plain JSON; "prompt_files" has digests of the user's own prompt files."""
    fields = {f.name: describe(getattr(job, f.name)) for f in dataclasses.fields(job)}
    files = prompts.own_files(fields)
    return {**fields, "prompt_files": files} if files else fields
