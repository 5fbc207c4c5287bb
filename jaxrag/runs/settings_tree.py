"""Settings at any depth of a job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from jaxrag.runs.settings import RunSettings


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
        return tuple(replaced(one, change) for one in value) if type(value) is tuple else value
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
