"""JSONL files that users write: every error names the file, the line and the field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core.packed_files import count_lines, open_packed
from jaxrag.types import InputError


class InputLine(NamedTuple):
    """The JSON object of one line; ``number`` counts from 1."""

    path: Path
    number: int
    fields: dict[str, Any]

    def string(self, field: str, *, optional: bool = False) -> str:
        """A field's non-blank string; if optional and missing or null, "", and blank is allowed."""
        value = self._value(field, optional=optional)
        if value is None and optional:
            return ""
        if not isinstance(value, str):
            raise self.error(field, f"is {_type_name(value)}; a string is needed")
        if not optional and not value.strip():
            raise self.error(field, "is blank")
        return self._checked_unicode(field, value)

    def strings(self, field: str, *, optional: bool = False) -> tuple[str, ...]:
        """A field's list of non-blank strings; only if optional may it be empty or missing."""
        value = self._value(field, optional=optional)
        if value is None and optional:
            return ()
        if not isinstance(value, list):
            raise self.error(field, f"is {_type_name(value)}; a list of strings is needed")
        if not value and not optional:
            raise self.error(field, "is an empty list")
        for position, item in enumerate(value, 1):
            if not isinstance(item, str):
                problem = f"item {position} is {_type_name(item)}; a string is needed"
                raise self.error(field, problem)
            if not item.strip():
                raise self.error(field, f"item {position} is blank")
        return tuple(self._checked_unicode(field, item) for item in value)

    def error(self, field: str, problem: str) -> InputError:
        """The error about a field, to be raised by the caller."""
        return InputError(f"{self.path}, line {self.number}: field {field!r} {problem}")

    def _value(self, field: str, *, optional: bool) -> Any:
        if field not in self.fields and not optional:
            raise self.error(field, f"is missing; the line has {', '.join(self.fields) or 'none'}")
        return self.fields.get(field)

    def _checked_unicode(self, field: str, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.error(field, "holds half of a surrogate pair, not text") from None
        return text


def read_input(path: Path) -> Iterator[InputLine]:
    """The lines of a file, plain or packed, in order.

    Raises:
      InputError: a line is blank, not JSON, not an object, or not UTF-8; or see `open_packed`.
    """
    with open_packed(path) as lines:
        yield from parse_lines(path, lines)


def parse_lines(path: Path, lines: Iterable[bytes]) -> Iterator[InputLine]:
    """The JSON objects of lines; errors name ``path``. See `read_input`."""
    for number, raw in count_lines(path, lines):
        where = f"{path}, line {number}"
        try:
            fields = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: not UTF-8 ({error.reason})") from None
        except ValueError as error:
            problem = "blank line" if not raw.strip() else f"not JSON ({error})"
            raise InputError(f"{where}: {problem}; every line must be one object") from None
        except RecursionError:
            raise InputError(f"{where}: nested too deeply to be read") from None
        if not isinstance(fields, dict):
            raise InputError(f"{where}: {_type_name(fields)}; an object in braces is needed")
        yield InputLine(path, number, fields)


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")
