"""Changing a tree of frozen dataclasses by names and texts: ``method.gate.threshold`` and ``0.5``.

A text is read by the type of its field: a number, a word, several with commas for a tuple, ``None``
where the type allows it. A field that holds a dataclass takes the name of a class, which then has
its default settings: of a protocol such as `IndexSettings`, any dataclass of jaxrag (or of the
config file) with the protocol's members. Elements of a tuple are named by their number from 0.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import jaxrag
from jaxrag.types import InputError

_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NUMBERS = {int: "an integer", float: "a number"}
_REQUIRED = dataclasses.MISSING

T = TypeVar("T")
Changes = Mapping[tuple[str, ...], str]


class _UnknownSettingError(Exception):
    """A name that is no setting; ``known`` are the names beside it."""

    def __init__(self, name: str, known: Sequence[str]):
        super().__init__(name)
        self.name, self.known = name, known


def edited(value: T, changes: Mapping[str, str], *, name: str = "config") -> T:
    """``value`` with some of its settings changed; every changed dataclass is checked anew.

    A class is chosen before its own settings are set, in whatever order they are given.

    Args:
      value: a dataclass.
      changes: texts by dotted names below ``value``.
      name: of ``value`` itself, for errors.

    Raises:
      InputError: no such setting (the nearest is named), or the text does not fit its type.
    """
    split = {tuple(key.split(".")): text for key, text in changes.items()}
    try:
        return _edited(value, split, type(value), name)
    except _UnknownSettingError as error:
        known = [*settings(value, name), *error.known]
        near = difflib.get_close_matches(error.name, known, 1, 0)
        raise InputError(f"no setting --{error.name}; the nearest is --{near[0]}") from None


def settings(value: Any, name: str) -> dict[str, Any]:
    """All settings of a tree of dataclasses by their dotted names, parents first."""
    found = {}
    for field, entry in _children(value):
        found[f"{name}.{field}"] = entry
        found |= settings(entry, f"{name}.{field}")
    return found


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value)):
        yield from ((str(number), entry) for number, entry in enumerate(value))
    elif dataclasses.is_dataclass(value):
        for field in _fields(value):
            entry = getattr(value, field, _REQUIRED)
            if entry is not _REQUIRED:
                yield field, entry


def _fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.init]


def _edited(value: Any, changes: Changes, hint: Any, name: str) -> Any:
    """``value``, or what is chosen in its place, with the changes below it."""
    if () in changes:
        value = _read(hint, changes[()], name)
    below: dict[str, dict[tuple[str, ...], str]] = {}
    for (first, *rest), text in ((path, text) for path, text in changes.items() if path):
        below.setdefault(first, {})[tuple(rest)] = text
    if isinstance(value, tuple):
        return _edited_items(value, below, hint, name)
    if isinstance(value, type):
        return _made(value, below, name)
    if not below:
        return value
    if value is None or value is _REQUIRED:
        raise InputError(
            f"--{name}.{next(iter(below))}: {name} is not set; choose its class first, "
            f"--{name}={_listed(choices(hint))}."
        )
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise _UnknownSettingError(f"{name}.{next(iter(below))}", [name])
    return dataclasses.replace(value, **_edited_fields(value, below, name))


def _edited_fields(value: Any, below: Mapping[str, Changes], name: str) -> dict[str, Any]:
    """New values of the fields of a dataclass, or of a class that is still to be made."""
    hints = get_type_hints(value if isinstance(value, type) else type(value))
    found, known = {}, _fields(value)
    for field, changes in below.items():
        if field not in known:
            raise _UnknownSettingError(f"{name}.{field}", [f"{name}.{one}" for one in known])
        found[field] = _edited(_current(value, field), changes, hints[field], f"{name}.{field}")
    return found


def _current(value: Any, field: str) -> Any:
    """The value of a field, or its default where ``value`` is a class."""
    if not isinstance(value, type):
        return getattr(value, field)
    (found,) = (one for one in dataclasses.fields(value) if one.name == field)
    if found.default_factory is not _REQUIRED:
        return found.default_factory()
    return found.default


def _made(kind: type, below: Mapping[str, Changes], name: str) -> Any:
    """A dataclass with its default settings and the changes."""
    given = _edited_fields(kind, below, name)
    for field in _fields(kind):
        if field not in given and _current(kind, field) is _REQUIRED:
            raise InputError(f"{kind.__name__} needs {field}: give --{name}.{field}=VALUE, too.")
    return kind(**given)


def _edited_items(value: tuple, below: Mapping[str, Changes], hint: Any, name: str) -> tuple:
    numbers = [str(number) for number in range(len(value))]
    for number in below:
        if number not in numbers:
            raise _UnknownSettingError(f"{name}.{number}", [f"{name}.{one}" for one in numbers])
    hints = _item_hints(_without_none(hint)[0], len(value))
    return tuple(
        _edited(entry, below.get(number, {}), item, f"{name}.{number}")
        for number, entry, item in zip(numbers, value, hints, strict=True)
    )


def _item_hints(hint: Any, count: int) -> tuple[Any, ...]:
    """Types of the elements of a tuple."""
    arguments = get_args(hint)
    return arguments[:1] * count if len(arguments) == 2 and arguments[1] is ... else arguments


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union; of another type the type alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _without_none(hint: Any) -> tuple[Any, ...]:
    return tuple(one for one in _alternatives(hint) if one is not type(None))


def _read(hint: Any, text: str, name: str) -> Any:
    """The value, or the class, that a text names in a field of some type.

    Raises:
      InputError: the text fits no alternative of the type.
    """
    if text == "None" and type(None) in _alternatives(hint):
        return None
    if found := choices(hint):
        if text not in found:
            near = difflib.get_close_matches(text, found, 1, 0)
            raise InputError(
                f"--{name} is {text!r}; allowed: {_listed(found)}. Nearest: {near[0]}."
            )
        return found[text]
    allowed = []
    for one in _without_none(hint):
        try:
            return _read_plain(one, text, name)
        except ValueError as error:
            allowed.append(str(error))
    raise InputError(f"--{name} is {text!r}; allowed: {' or '.join(allowed)}.")


def _read_plain(hint: Any, text: str, name: str) -> Any:
    """A text as a value of a type that is no dataclass.

    Raises:
      ValueError: it is none; the message says what the type takes.
    """
    if get_origin(hint) is Literal:
        known = {str(one): one for one in get_args(hint)}
        if text not in known:
            raise ValueError(_listed(known))
        return known[text]
    if get_origin(hint) is tuple:
        return _read_items(hint, text, name)
    if hint is bool:
        if text.lower() not in _WORDS:
            raise ValueError("True or False")
        return _WORDS[text.lower()]
    if hint in _NUMBERS:
        try:
            return hint(text)
        except ValueError:
            raise ValueError(_NUMBERS[hint]) from None
    if hint is str:
        return text
    raise ValueError(f"nothing, for its type {hint} is set in config files alone")


def _read_items(hint: Any, text: str, name: str) -> tuple:
    """The elements of a tuple, given as A,B,C or (A, B, C)."""
    inner = text.strip()
    if inner[:1] + inner[-1:] in ("()", "[]"):
        inner = inner[1:-1]
    parts = [part.strip().strip("'\"") for part in inner.split(",") if part.strip()]
    hints = _item_hints(hint, len(parts))
    if len(hints) != len(parts):
        raise ValueError(f"{len(hints)} values with commas between them")
    pairs = enumerate(zip(hints, parts, strict=True))
    return tuple(_read(one, part, f"{name}.{number}") for number, (one, part) in pairs)


def _listed(names: Any) -> str:
    *others, last = sorted(names)
    return f"{', '.join(others)} or {last}" if others else last


@functools.cache
def choices(hint: Any) -> dict[str, type]:
    """The dataclasses that a field of a type may hold, by name; none where it takes plain values.

    A method's Config is called after its file.
    """
    kinds = []
    for one in _without_none(hint):
        if dataclasses.is_dataclass(one):
            kinds.append(one)
        elif getattr(one, "_is_protocol", False):
            kinds += [kind for kind in _dataclasses() if _satisfies(kind, one)]
    return {_name(kind): kind for kind in kinds}


def _name(kind: type) -> str:
    return kind.__module__.rpartition(".")[2] if kind.__name__ == "Config" else kind.__name__


@functools.cache
def _dataclasses() -> list[type]:
    """All public dataclasses of jaxrag and of the config files that were loaded."""
    for module in pkgutil.walk_packages(jaxrag.__path__, "jaxrag."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # an extra that is not installed
                continue
    found = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("jaxrag", "configs") or name.startswith("config_"):
            found += [one for one in vars(module).values() if _is_settings(one, name)]
    return found


def _is_settings(value: Any, module: str) -> bool:
    plain = isinstance(value, type) and dataclasses.is_dataclass(value)
    return plain and value.__module__ == module and not value.__name__.startswith("_")


def _satisfies(kind: type, protocol: type) -> bool:
    """Whether a dataclass has all members of a protocol, methods with the same parameters."""
    for name, wanted in _members(protocol).items():
        given = inspect.getattr_static(kind, name, None)
        if not _has(kind, name):
            return False
        if inspect.isfunction(wanted) and not (
            inspect.isfunction(given)
            and [*inspect.signature(given).parameters] == [*inspect.signature(wanted).parameters]
            and _returns(given, wanted)
        ):
            return False
    return True


def _has(kind: type, name: str) -> bool:
    return hasattr(kind, name) or name in getattr(kind, "__dataclass_fields__", {})


def _members(protocol: type) -> dict[str, Any]:
    found = {}
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False) and base is not Protocol:
            members = {**dict.fromkeys(vars(base).get("__annotations__", ())), **vars(base)}
            found |= {n: m for n, m in members.items() if n == "__call__" or n[:1] != "_"}
    return found


def _returns(given: Any, wanted: Any) -> bool:
    """Whether what a function returns has the members of what it is to return."""
    results = [get_type_hints(function).get("return") for function in (given, wanted)]
    if inspect.iscoroutinefunction(given) or not all(map(_without_none, results)):
        return True
    (first, *_), expected = _without_none(results[0]), _without_none(results[1])
    return any(
        not isinstance(one, type) or first is one or _has_members(first, one) for one in expected
    )


def _has_members(kind: Any, wanted: type) -> bool:
    if getattr(wanted, "_is_protocol", False):
        return all(_has(kind, name) for name in _members(wanted))
    return isinstance(kind, type) and issubclass(kind, wanted)
