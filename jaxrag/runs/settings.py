"""The settings of a run, and settings at any depth of a job."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from jaxrag.core.checks import check_choices, check_limits, check_range
from jaxrag.core.store import CACHE
from jaxrag.data.dataset import DataSettings
from jaxrag.data.leakage import Leakage
from jaxrag.engines.language_model import ModelSettings
from jaxrag.retrieval.settings import IndexSettings, RerankerSettings
from jaxrag.steps.episode import Method
from jaxrag.steps.tools import Needs, needs_of
from jaxrag.text.answers import Normalization


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """All settings of a run, `jaxrag.runs.run.Run`.

    Attributes:
      method: a method's Config, with the settings of its helpers.
      data: questions and corpus.
      model: the language model that reads, and writes pseudo-contexts.
      index: the retriever; opened only if the method searches.
      reranker: loaded only if the method reranks.
      label: name in tables; "" is the method's name.
      limit: number of questions, from the first; 0 is all.
      live: maximum number of questions in progress.
      cache: directory of data sets, indexes and the store, kept between runs.
      store: file of the results of models and searches; "" is the cache's, "memory" keeps none
        after the run (then its seconds are those of computing everything).
      leakage: "keep" answers questions that the retriever or a helper of the method was trained on
        (see `jaxrag.data.leakage`), and is recorded; otherwise they are refused.
      check_model: whether a model is asked three easy questions before the first run with it (see
        `jaxrag.runs.model_check`); one that fails stops the run.
      normalization: how answers are compared with gold ones; "unicode", which is recorded, ignores
        differences of Unicode form, accents and all punctuation before SQuAD's normalisation.
    """

    method: Method
    data: DataSettings
    model: ModelSettings
    index: IndexSettings | None = None
    reranker: RerankerSettings | None = None
    label: str = ""
    limit: int = 0
    live: int = 4096
    cache: str = CACHE
    store: str = ""
    leakage: Leakage = "refuse"
    normalization: Normalization = "squad"
    check_model: bool = True

    def __post_init__(self) -> None:
        check_choices(self, leakage=Leakage, normalization=Normalization)
        check_range(limit=self.limit)
        check_limits(live=self.live)

    @property
    def name(self) -> str:
        """The label, or the method's name."""
        return self.label or self.method.name

    @functools.cached_property
    def needs(self) -> Needs:
        """What the method needs of the run."""
        return needs_of(self.method)


def parts_in_use(value: Any) -> Iterator[Any]:
    """Dataclasses in a tree of settings, parents first, but for what a run's method needs not."""
    if isinstance(value, tuple):
        for part in value:
            yield from parts_in_use(part)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return
    yield value
    needed = {}
    if isinstance(value, RunSettings):
        needed = {"reranker": value.needs.reranker, "index": value.needs.search}
    for field in dataclasses.fields(value):
        if needed.get(field.name, True):
            yield from parts_in_use(getattr(value, field.name))


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """A tree of dataclasses in which each is replaced by ``change`` of it, inner ones first."""
    if isinstance(value, tuple):
        return tuple(replaced(part, change) for part in value) if type(value) is tuple else value
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    changes = {}
    for field in dataclasses.fields(value):
        if field.init:
            old = getattr(value, field.name)
            new = replaced(old, change)
            if new is not old and new != old:
                changes[field.name] = new
    return change(dataclasses.replace(value, **changes) if changes else value)
