"""Changes in trees of settings: frozen dataclasses, and tuples of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """A tree with every dataclass replaced by what ``change`` makes of it, inner ones first.

    What does not change is the same object.
    """
    if type(value) is tuple:
        found = tuple(replaced(one, change) for one in value)
        return value if all(new is old for new, old in zip(found, value, strict=True)) else found
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    changes = {}
    for field in dataclasses.fields(value):
        if field.init:
            old = getattr(value, field.name)
            new = replaced(old, change)
            if new is not old:
                changes[field.name] = new
    return change(dataclasses.replace(value, **changes) if changes else value)


def nodes(value: Any) -> Iterator[Any]:
    """All dataclasses of a tree."""
    if type(value) is tuple:
        for one in value:
            yield from nodes(one)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return
    yield value
    for field in dataclasses.fields(value):
        yield from nodes(getattr(value, field.name))
