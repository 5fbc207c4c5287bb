"""Lines of a JSONL file, checked: every complaint names the file, the line and the field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.types import InputError


class Line(NamedTuple):
    """One line's object; ``number`` counts from 1."""

    path: Path
    number: int
    fields: dict[str, Any]

    def text(self, field: str, *, optional: bool = False) -> str:
        """A string that is not blank; where optional, "" if it is missing, null or blank."""
        value = self._value(field, optional=optional)
        if value is None and optional:
            return ""
        if not isinstance(value, str):
            raise self.error(field, f"is {_kind(value)}; a string is needed")
        if not optional and not value.strip():
            raise self.error(field, "is blank")
        return self._encodable(field, value)

    def texts(self, field: str, *, optional: bool = False) -> tuple[str, ...]:
        """A list of strings that are not blank, itself not empty unless optional."""
        value = self._value(field, optional=optional)
        if value is None and optional:
            return ()
        if not isinstance(value, list):
            raise self.error(field, f"is {_kind(value)}; a list of strings is needed")
        if not value and not optional:
            raise self.error(field, "is an empty list")
        for position, item in enumerate(value, 1):
            if not isinstance(item, str):
                raise self.error(field, f"item {position} is {_kind(item)}; a string is needed")
            if not item.strip():
                raise self.error(field, f"item {position} is blank")
        return tuple(self._encodable(field, item) for item in value)

    def error(self, field: str, problem: str) -> InputError:
        """The error to raise for one of the line's fields."""
        return InputError(f"{self.path}, line {self.number}: field {field!r} {problem}")

    def _value(self, field: str, *, optional: bool) -> Any:
        if field not in self.fields and not optional:
            raise self.error(field, f"is missing; the line has {', '.join(self.fields) or 'none'}")
        return self.fields.get(field)

    def _encodable(self, field: str, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.error(field, "holds half of a surrogate pair, not text") from None
        return text


def read_lines(path: Path) -> Iterator[Line]:
    """Each line of the file as an object.

    Raises:
      InputError: a line is blank, not JSON, not an object, or not UTF-8.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"{path}, line {number}"
            try:
                fields = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
            except UnicodeDecodeError as error:
                raise InputError(f"{where}: not UTF-8 ({error.reason})") from None
            except ValueError as error:
                problem = "blank line" if not raw.strip() else f"not JSON ({error})"
                raise InputError(f"{where}: {problem}; one object a line is needed") from None
            except RecursionError:
                raise InputError(f"{where}: nested too deeply to be read") from None
            if not isinstance(fields, dict):
                raise InputError(f"{where}: {_kind(fields)}; an object in braces is needed")
            yield Line(path, number, fields)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")
