"""Parsing of JSON text, every fault of which is a ValueError."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxrag.core.durable_files import read_whole
from jaxrag.types import InputError


def parse_json(text: str | bytes, *, once: bool = False) -> Any:
    """The value of a JSON text; ValueError if it is none, not UTF-8, or nested too deeply.

    ``once`` refuses objects that name a field twice, of which Python would take the last.
    """
    try:
        return json.loads(text, object_pairs_hook=_named_once if once else None)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"it names {first_twice(name for name, _ in pairs)!r} twice")
    return fields


def first_twice(names: Iterable[str]) -> str | None:
    """The first name that was there before; None if each is there once."""
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)


def read_json_object(file: Path, *, what: str, way_out: str) -> dict[str, Any]:
    """The object in a JSON file; InputError, with ``what`` it should be and the ``way_out``."""
    try:
        value = parse_json(read_whole(file))
        if not isinstance(value, dict):
            raise TypeError(f"it holds a JSON {type(value).__name__}")
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{file} is not {what} ({error}): {way_out}.") from error
    return value
