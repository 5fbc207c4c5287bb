"""Changes settings in a tree of frozen dataclasses by dotted names.

A text is parsed by the type of its field: a number, a word, several values with commas between
them for a tuple, ``None`` where the type allows it. A field whose type is a dataclass or a protocol
takes the name of a class, whose other fields are then at their defaults. Of a protocol, such as
`IndexSettings`, the choices are all dataclasses of jaxrag and of loaded config files that have its
members, and FILE.py:CLASS is one of a file of your own. The elements of a tuple are fields named 0,
1, ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import inspect
import os
import pkgutil
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from jaxrag.data.benchmark import Benchmark
from jaxrag.data.dataset import DataSettings
from jaxrag.data.sets import SETS
from jaxrag.runs.config_file import explained, load_module
from jaxrag.types import InputError

_PACKAGE = Path(__file__).parents[1]
_SCRIPTS = ("configs", "experiments")
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NUMBERS = {int: "an integer", float: "a number"}
_REQUIRED = dataclasses.MISSING

T = TypeVar("T")
Changes = Mapping[tuple[str, ...], Any]


class _UnknownSettingError(InputError):
    """No setting has this name; ``known`` are the names in the same dataclass."""

    def __init__(self, name: str, known: Sequence[str]):
        super().__init__(name)
        self.name, self.known = name, known


def edited(value: T, changes: Mapping[str, Any], *, name: str = "config") -> T:
    """A copy of a dataclass with some of its settings changed.

    Classes are chosen before their own settings are set, whatever the order of ``changes``: new
    values by dotted names, which are texts, numbers, tuples of these, None, or a dataclass that
    fits the field's type. InputError for an unknown setting (the message names the nearest), or a
    value that does not fit.
    """
    split = {tuple(key.split(".")): text for key, text in changes.items()}
    try:
        return _edited(value, split, type(value), name)
    except _UnknownSettingError as error:
        names = [*settings(value, name), *error.known]
        last = f".{error.name.rpartition('.')[2]}"
        same = [setting for setting in names if setting.endswith(last)]  # elsewhere, such as deeper
        near = difflib.get_close_matches(error.name, same or names, 1, 0)
        raise InputError(f"no setting --{error.name}; the nearest is --{near[0]}") from None


def settings(value: Any, name: str) -> dict[str, Any]:
    """All settings in a tree of dataclasses by their dotted names, parents before children."""
    flat, entries = {}, {}
    if isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value)):
        entries = {str(number): entry for number, entry in enumerate(value)}
    elif dataclasses.is_dataclass(value):
        entries = {key: getattr(value, key) for key in _fields(value) if hasattr(value, key)}
    for field, entry in entries.items():
        flat[f"{name}.{field}"] = entry
        flat |= settings(entry, f"{name}.{field}")
    return flat


def _fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.init]


def _edited(value: Any, changes: Changes, hint: Any, name: str) -> Any:
    """``value``, or the one chosen to replace it, with the changes to its fields."""
    if () in changes:
        value = _given(hint, changes[()], name)
    below: dict[str, dict[tuple[str, ...], str]] = {}
    for (first, *rest), text in ((path, text) for path, text in changes.items() if path):
        below.setdefault(first, {})[tuple(rest)] = text
    if isinstance(value, tuple):
        return _edited_items(value, below, hint, name)
    if not below and not isinstance(value, type):
        return value
    if value is None or value is _REQUIRED:
        raise InputError(
            f"--{name}.{next(iter(below))}: {name} is not set; choose its class first, "
            f"--{name}={_listed(choices(hint))}."
        )
    if not dataclasses.is_dataclass(value):
        raise _UnknownSettingError(f"{name}.{next(iter(below))}", [name])
    kind = value if isinstance(value, type) else type(value)
    own = kind.__module__.startswith("config_")  # of a file of the user's own: errors name its line
    with explained(inspect.getfile(kind)) if own else contextlib.nullcontext():
        values = _edited_fields(value, below, name)
        if not isinstance(value, type):
            return dataclasses.replace(value, **values)
        for field in _fields(kind):
            if field not in values and _current(kind, field) is _REQUIRED:
                raise InputError(
                    f"{kind.__name__} needs {field}: give --{name}.{field}=VALUE, too."
                )
        return kind(**values)


def _given(hint: Any, value: Any, name: str) -> Any:
    """A new value, or the class to construct, for a field of type ``hint``."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return _read(hint, value if isinstance(value, str) else str(value), name)
    if not any(_fits(type(value), part) for part in _without_none(hint)):
        allowed = _listed(choices(hint)) if choices(hint) else str(hint)
        raise InputError(f"--{name} is a {class_name(type(value))}; allowed: {allowed}.")
    return value


def _fits(kind: type, hint: Any) -> bool:
    """Whether a dataclass is a type, or has all members of a protocol."""
    return kind is hint or (getattr(hint, "_is_protocol", False) and _satisfies(kind, hint))


def _edited_fields(value: Any, below: Mapping[str, Changes], name: str) -> dict[str, Any]:
    """New values of changed fields; ``value`` is a dataclass, or a class to construct."""
    kind = value if isinstance(value, type) else type(value)
    hints, values, fields = get_type_hints(kind), {}, _fields(kind)
    if () in below.get("data", {}) and "limit" in fields and "limit" not in below:
        values["limit"] = _current(kind, "limit")
    for field, changes in below.items():
        if field not in fields:
            raise _UnknownSettingError(f"{name}.{field}", [f"{name}.{key}" for key in fields])
        values[field] = _edited(_current(value, field), changes, hints[field], f"{name}.{field}")
    return values


def _current(value: Any, field: str) -> Any:
    """The value of a field; of a class, the field's default."""
    if not isinstance(value, type):
        return getattr(value, field)
    spec = value.__dataclass_fields__[field]
    return spec.default if spec.default_factory is _REQUIRED else spec.default_factory()


def _edited_items(value: tuple, below: Mapping[str, Changes], hint: Any, name: str) -> tuple:
    numbers = [str(number) for number in range(len(value))]
    for number in below:
        if number not in numbers:
            raise _UnknownSettingError(f"{name}.{number}", [f"{name}.{n}" for n in numbers])
    hints = _item_hints(_without_none(hint)[0], len(value))
    return tuple(
        _edited(entry, below.get(number, {}), item, f"{name}.{number}")
        for number, entry, item in zip(numbers, value, hints, strict=True)
    )


def _item_hints(hint: Any, count: int) -> tuple[Any, ...]:
    """Types of the elements of a tuple with ``count`` elements."""
    arguments = get_args(hint)
    return arguments[:1] * count if len(arguments) == 2 and arguments[1] is ... else arguments


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union; any other type is its own only alternative."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _without_none(hint: Any) -> tuple[Any, ...]:
    return tuple(part for part in _alternatives(hint) if part is not type(None))


def _read(hint: Any, text: str, name: str) -> Any:
    """The value, or class, that ``text`` means for a field of type ``hint``; else InputError."""
    if text == "None" and type(None) in _alternatives(hint):
        return None
    sets = SETS if DataSettings in _without_none(hint) else ()
    if options := {**choices(hint), **{key: Benchmark(key) for key in sets}}:
        if text not in options and ".py:" in text:
            return _own_class(hint, text, name)
        if text not in options:
            near = difflib.get_close_matches(text, options, 1, 0)[0]
            if sets and os.path.isdir(text):  # noqa: PTH112 - of a long text, too
                near = f"--{name}=Folder --{name}.path={text}"
            near = f"{text}:CLASS" if text.endswith(".py") else near
            raise InputError(f"--{name} is {text!r}; allowed: {_listed(options)}. Nearest: {near}.")
        return options[text]
    allowed = []
    for part in _without_none(hint):
        try:
            return _read_plain(part, text, name)
        except ValueError as error:
            allowed.append(str(error))
    raise InputError(f"--{name} is {text!r}; allowed: {' or '.join(allowed)}.")


def _own_class(hint: Any, text: str, name: str) -> type:
    """The dataclass that FILE.py:CLASS names, for a field of type ``hint``; else InputError."""
    file, _, wanted = text.rpartition(":")
    if not Path(file).expanduser().is_file():
        raise InputError(f"--{name} is {text!r}: there is no file {file}.")
    members = vars(load_module(str(Path(file).expanduser())))
    kinds = {n: value for n, value in members.items() if _is_settings(value, members["__name__"])}
    if wanted not in kinds:
        contents = f"it has {_listed(kinds)}" if kinds else "it defines none"
        raise InputError(f"--{name} is {text!r}: {file} has no dataclass {wanted}; {contents}.")
    if not any(_fits(kinds[wanted], part) for part in _without_none(hint)):
        wants = [n for part in _without_none(hint) for n in _members(part)]
        lacks = [n for n in wants if not _has(kinds[wanted], n)]
        missing = f"it lacks {', '.join(lacks)}" if lacks else "a method has other parameters"
        raise InputError(f"--{name} is {text!r}, which does not fit there: {missing}.")
    return kinds[wanted]


def _read_plain(hint: Any, text: str, name: str) -> Any:
    """``text`` as a value of a type other than a dataclass; ValueError that says what is one."""
    if get_origin(hint) is Literal:
        allowed = {str(value): value for value in get_args(hint)}
        if text not in allowed:
            raise ValueError(_listed(allowed))
        return allowed[text]
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
    raise ValueError(f"no text, because its type is {hint}: set it in a config file")


def _read_items(hint: Any, text: str, name: str) -> tuple:
    """The elements of a tuple written as A,B,C or (A, B, C)."""
    inner = text.strip()
    if inner[:1] + inner[-1:] in ("()", "[]"):
        inner = inner[1:-1]
    parts = [part.strip().strip("'\"") for part in inner.split(",") if part.strip()]
    hints = _item_hints(hint, len(parts))
    if len(hints) != len(parts):
        raise ValueError(f"{len(hints)} values with commas between them")
    pairs = enumerate(zip(hints, parts, strict=True))
    return tuple(_read(item_hint, part, f"{name}.{number}") for number, (item_hint, part) in pairs)


def _listed(names: Any) -> str:
    *others, last = sorted(names)
    return f"{', '.join(others)} or {last}" if others else last


@functools.cache
def choices(hint: Any) -> dict[str, type]:
    """The dataclasses that fit a field of some type, by name; empty if it takes plain values."""
    kinds = []
    for part in _without_none(hint):
        if dataclasses.is_dataclass(part):
            kinds.append(part)
        elif getattr(part, "_is_protocol", False):
            kinds += [kind for kind in _dataclasses() if _satisfies(kind, part)]
    return {class_name(kind): kind for kind in kinds}


def class_name(kind: type) -> str:
    """The name by which a class is chosen: its own, or its module's for a method's Config."""
    return kind.__module__.rpartition(".")[2] if kind.__name__ == "Config" else kind.__name__


@functools.cache
def _dataclasses() -> list[type]:
    """All public dataclasses of jaxrag and of the loaded config files."""
    rows = (one.name for one in pkgutil.iter_modules([str(_PACKAGE)]) if one.name not in _SCRIPTS)
    for row in rows:
        within = pkgutil.walk_packages([str(_PACKAGE / row)], f"jaxrag.{row}.")
        for name in (f"jaxrag.{row}", *(module.name for module in within)):
            with contextlib.suppress(ImportError):  # an optional dependency is missing
                importlib.import_module(name)
    kinds = []
    for name, module in list(sys.modules.items()):
        if name.startswith(("jaxrag.", "config_")):
            kinds += [value for value in vars(module).values() if _is_settings(value, name)]
    return kinds


def _is_settings(value: Any, module: str) -> bool:
    plain = isinstance(value, type) and dataclasses.is_dataclass(value)
    return plain and value.__module__ == module and not value.__name__.startswith("_")


def _satisfies(kind: type, protocol: type) -> bool:
    """Whether a dataclass has all members of a protocol, with methods of the same signature."""
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
    collected = {}
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False) and base is not Protocol:
            members = {**dict.fromkeys(vars(base).get("__annotations__", ())), **vars(base)}
            collected |= {n: m for n, m in members.items() if n == "__call__" or n[:1] != "_"}
    return collected


def _returns(given: Any, wanted: Any) -> bool:
    """Whether a method's return type can be the protocol's; true unless both are plain classes."""
    try:
        kind, expected = (get_type_hints(method).get("return") for method in (given, wanted))
    except NameError:  # a type that is imported for type checkers only
        return True
    if not isinstance(kind, type) or not isinstance(expected, type):
        return True
    return getattr(expected, "_is_protocol", False) or issubclass(kind, expected)
