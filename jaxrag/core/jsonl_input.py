"""Records that users write or publish: every error names the file, the record and the field."""

from __future__ import annotations

import ast
import difflib
import functools
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core.json_text import parse_json
from jaxrag.core.packed_files import count_lines, open_packed
from jaxrag.types import InputError

_LONGEST_LIST, _LONGEST_NAME = 100_000, 100  # characters that are looked into
_ALSO_CALLED: dict[str, tuple[str, ...]] = {
    "answers": ("gold", "target", "output", "label", "reference", "solution", "truth", "response"),
    "choices": ("option", "candidate"),
    "title": ("heading", "headline"),
}
"""Words in other names of a field, singular."""
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.S)
_log = logging.getLogger("jaxrag")


class InputLine(NamedTuple):
    """The fields of one record.

    Attributes:
      number: of the record, from 1.
      unit: what is counted: "line", "element" or "row".
      inside: names of the fields that enclose ``fields``, such as "metadata.".
    """

    path: Path
    number: int
    fields: dict[str, Any]
    unit: str = "line"
    inside: str = ""

    def string(self, field: str, *, optional: bool = False) -> str:
        """A field's non-blank string; if ``optional``, also blank, or "" where missing or null."""
        value = self._typed(field, str, "a string", optional=optional) or ""
        if not optional and not value.strip():
            raise self.error(field, "is blank")
        return self._checked_unicode(field, value)

    def identifier(self, field: str) -> str:
        """A field's non-blank string or whole number, as a string."""
        value = self._value(field, optional=False)
        return str(value) if type(value) is int else self.string(field)

    def integer(self, field: str) -> int:
        """A field's whole number, also one written as a string (in a table)."""
        value = self._value(field, optional=False)
        if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
            return int(value)
        if type(value) is not int:
            value_text = repr(value) if isinstance(value, str) else type_name(value)
            raise self.error(field, f"is {value_text}; a whole number is needed")
        return value

    def boolean(self, field: str) -> bool:
        """A field's true or false."""
        return self._typed(field, bool, "true or false")

    def strings(self, field: str, *, optional: bool = False) -> tuple[str, ...]:
        """A field's list of non-blank strings; only if optional may it be empty or missing."""
        value = self.items(field, optional=optional, needed="a list of strings")
        for position, item in enumerate(value, 1):
            if not isinstance(item, str):
                problem = f"item {position} is {type_name(item)}; a string is needed"
                raise self.error(field, problem)
            if not item.strip():
                raise self.error(field, f"item {position} is blank")
        return tuple(self._checked_unicode(field, item) for item in value)

    def answers(self, field: str, *, optional: bool = False) -> tuple[str, ...]:
        """`strings` without repetitions; a string that is itself a written list is refused."""
        items = self.strings(field, optional=optional)
        for position, item in enumerate(items, 1):
            problem = f"item {position} is {item[:60]!r}, a list written as a string: "
            if _is_written(item):
                raise self.error(field, problem + "put the strings of that list in its place")
            if item.strip()[0] in "[{":
                _tell_of_brackets(self.path, self.inside + field)
        return tuple(dict.fromkeys(items))

    def answer(self, field: str) -> tuple[str, ...]:
        """A field's one answer, as `answers`."""
        return self._replace(fields={field: [self.string(field)]}).answers(field)

    def items(self, field: str, *, optional: bool = False, needed: str = "a list") -> list[Any]:
        """A field's list (in errors ``needed``); only if optional may it be empty or missing."""
        value = self._typed(field, list, needed, optional=optional) or []
        if not value and not optional:
            raise self.error(field, "is an empty list")
        return value

    def record(self, field: str) -> InputLine:
        """A field's object; its errors name the enclosing fields, too."""
        value = self._value(field, optional=False)
        return self._inner(field, value, f"{self.inside}{field}.")

    def records(self, field: str, *, optional: bool = False) -> list[InputLine]:
        """A field's list of objects; only if optional may it be empty or missing."""
        return [
            self._inner(field, item, f"{self.inside}{field}[{position}].")
            for position, item in enumerate(self.items(field, optional=optional), 1)
        ]

    def error(self, field: str, problem: str) -> InputError:
        """The error about a field, to be raised by the caller."""
        return InputError(f"{self.where}: field {self.inside + field!r} {problem}")

    @property
    def where(self) -> str:
        """The file and the record."""
        return f"{self.path}, {self.unit} {self.number}"

    def _inner(self, field: str, value: Any, inside: str) -> InputLine:
        if not isinstance(value, dict):
            raise self.error(field, f"has {type_name(value)} where an object is needed")
        return self._replace(fields=value, inside=inside)

    def _typed(self, field: str, kind: type, needed: str, *, optional: bool = False) -> Any:
        value = self._value(field, optional=optional)
        missing = optional and value is None
        if not missing and not isinstance(value, kind):
            raise self.error(field, f"is {type_name(value)}; {needed} is needed")
        return value

    def _value(self, field: str, *, optional: bool) -> Any:
        if field not in self.fields and not optional:
            holder = "the field around it" if self.inside else f"the {self.unit}"
            present = ", ".join(map(str, self.fields)) or "none"
            raise self.error(field, f"is missing; {holder} has {present}")
        return self.fields.get(field)

    def _checked_unicode(self, field: str, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.error(field, "holds half of a surrogate pair, not text") from None
        return text


def read_input(path: Path) -> Iterator[InputLine]:
    """The lines of a JSONL file, which may be packed (gzip, bzip2, xz), in order.

    InputError for a line that is no JSON object, or not UTF-8, or names a field twice; for damage.
    """
    with open_packed(path) as lines:
        yield from parse_lines(path, lines)


def parse_lines(path: Path, lines: Iterable[bytes]) -> Iterator[InputLine]:
    """Parses each line as a JSON object; errors name ``path``. See `read_input`."""
    for number, raw in count_lines(path, lines):
        where = f"{path}, line {number}"
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            fields = parse_json(text, once=True)
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: not UTF-8 ({error.reason}): save it as UTF-8") from None
        except ValueError as error:
            problem = "blank line" if not raw.strip() else f"not JSON ({error})"
            raise InputError(f"{where}: {problem}; every line must be one object") from None
        if not isinstance(fields, dict):
            raise InputError(f"{where}: {type_name(fields)}; an object in braces is needed")
        yield InputLine(path, number, fields)


def well_named(records: Iterable[InputLine], *optional: str) -> Iterator[InputLine]:
    """Yields the records; fields that are named differently from record to record are refused.

    InputError if a record lacks one of the ``optional`` fields that others have, and has one with a
    similar name that they have not, such as "answer" for "answers"; or if no record has the field,
    and one has a text or a list under another name of it.
    """
    beside: dict[str, set[str]] = {}
    doubtful: dict[str, tuple[InputLine, str]] = {}
    for record in records:
        for field in optional:
            if field in record.fields:
                beside.setdefault(field, set()).update(record.fields)
            elif field not in doubtful and (name := _similar(field, tuple(record.fields))):
                doubtful[field] = record, name
        yield record
    for field, (line, name) in doubtful.items():
        if field in beside and name not in beside[field]:
            raise line.error(name, f"is {field!r} on other {line.unit}s: give it that name")
        alias = _is_name_of(field, name, last=True)
        if field not in beside and alias and isinstance(line.fields[name], (str, list)):
            raise line.error(name, f"is called {field!r} here: rename it, or remove it")


@functools.lru_cache(maxsize=1024)
def _similar(field: str, names: tuple[str, ...]) -> str:
    def alike(name: str) -> bool:
        ratio = difflib.SequenceMatcher(None, field, name.casefold()).ratio()
        return _is_name_of(field, name) or ratio >= 0.8

    return next((name for name in names if len(name) < _LONGEST_NAME and alike(name)), "")


def _is_name_of(field: str, name: str, *, last: bool = False) -> bool:
    """Whether a word of a name means the field: "possible_answer" or "target" its answers.

    ``last``: its last word, or one that says no more than it ("answer_type" names no answers).
    """
    meant = {field.rstrip("s"), *_ALSO_CALLED.get(field, ())}
    words = re.split(r"[\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).casefold())
    words = [word.rstrip("s") for word in words]
    matches = not meant.isdisjoint(words)
    return matches and (not last or words[-1] in meant | {"key", "text", "value", "aliase"})


def written_list(text: str) -> list[str] | None:
    """Parses a list of strings as Python or JSON writes it; None for others, NumPy's too."""
    value = _written(text) if text.strip()[:1] in ("[", "(") else None
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        return None
    return None if re.search(r"''\s*''", _QUOTED.sub("''", text)) else list(value)


def _is_written(text: str) -> bool:
    """Whether a text is a collection as Python, NumPy or JSON write it, not of numbers alone."""
    text = text.strip()
    if re.match(r"(?:array|list|tuple|set|dict)\((?:[\[({]|\)$)", text):
        return True
    value = _written(re.sub(r"\bnan\b", "None", text)) if text[0] in "[({" else None
    if not isinstance(value, (list, tuple, set, dict)):
        return False
    return not value or any(
        isinstance(item, bool) or not isinstance(item, (int, float)) for item in value
    )


@functools.lru_cache(maxsize=64)
def _tell_of_brackets(path: Path, field: str) -> None:
    _log.warning(
        "%s: field %r has texts that begin with a bracket, compared as they are", path, field
    )


def _written(text: str) -> Any:
    """The value of a text that is written as in Python or JSON; None for any other text."""
    if len(text) > _LONGEST_LIST:
        return None
    for parse in (ast.literal_eval, json.loads):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a backslash before another letter
                return parse(text.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return None


def type_name(value: Any) -> str:
    """The JSON type of a value in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")
