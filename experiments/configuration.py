"""Reads a job from a command line: a config file, a variant, and changes of settings.

    --config=configs/dtr.py:dtr@factbook --config.method.gate.threshold=0.005

A config file defines ``get_config(variant)``, which returns a `jaxrag.runs.job.Job`: a tree of
frozen dataclasses. The command line changes its fields: ``--config.limit=20``,
``--config.index=Web --config.index.count=5``, ``--config.reranker=None``.

A value is parsed by the type of its field: a number, a word, several values with commas between
them for a tuple, ``None`` where the type allows it. A field whose type is a dataclass or a protocol
takes the name of a class, whose other fields are then at their defaults. Of a protocol, such as
`IndexSettings`, the choices are all dataclasses of jaxrag and of the config file that have its
members. The elements of a tuple are fields named 0, 1, ...

``--config.data=nq``, or another name of `jaxrag.data.sets.SETS`, is the published set in the split
and over the corpus that papers evaluate; ``--config.data.split=train`` then changes its fields. New
data do not keep the ``limit`` beside them, which is a part of the variant's data.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import pkgutil
import signal
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from absl import flags
from rich.console import Console

import jaxrag
from jaxrag.core.checks import check_local
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.dataset import DataSettings
from jaxrag.data.sets import SETS
from jaxrag.evaluation.report.tables import terminal_table
from jaxrag.evaluation.summary import summarise
from jaxrag.runs.job import Job
from jaxrag.types import EngineDown, InputError

_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NUMBERS = {int: "an integer", float: "a number"}
_REQUIRED = dataclasses.MISSING

T = TypeVar("T")
Changes = Mapping[tuple[str, ...], str]


class _UnknownSettingError(Exception):
    """No setting has this name; ``known`` are the names in the same dataclass."""

    def __init__(self, name: str, known: Sequence[str]):
        super().__init__(name)
        self.name, self.known = name, known


def edited(value: T, changes: Mapping[str, str], *, name: str = "config") -> T:
    """A copy of a dataclass with some of its settings changed.

    Classes are chosen before their own settings are set, whatever the order of ``changes``. Every
    changed dataclass is constructed, and so validated, again.

    Args:
      value: a dataclass.
      changes: new values as texts, by dotted names relative to ``value``.
      name: name of ``value`` in error messages.

    Raises:
      InputError: no such setting (the message names the nearest), or a text that does not fit the
        type of its field.
    """
    split = {tuple(key.split(".")): text for key, text in changes.items()}
    try:
        return _edited(value, split, type(value), name)
    except _UnknownSettingError as error:
        known = [*settings(value, name), *error.known]
        near = difflib.get_close_matches(error.name, known, 1, 0)
        raise InputError(f"no setting --{error.name}; the nearest is --{near[0]}") from None


def settings(value: Any, name: str) -> dict[str, Any]:
    """All settings in a tree of dataclasses by their dotted names, parents before children."""
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
    """``value``, or the one chosen to replace it, with the changes to its fields."""
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
    """New values of changed fields; ``value`` is a dataclass, or a class to construct."""
    hints = get_type_hints(value if isinstance(value, type) else type(value))
    found, known = {}, _fields(value)
    if () in below.get("data", {}) and "limit" in known and "limit" not in below:
        found["limit"] = _current(value if isinstance(value, type) else type(value), "limit")
    for field, changes in below.items():
        if field not in known:
            raise _UnknownSettingError(f"{name}.{field}", [f"{name}.{one}" for one in known])
        found[field] = _edited(_current(value, field), changes, hints[field], f"{name}.{field}")
    return found


def _current(value: Any, field: str) -> Any:
    """The value of a field; of a class, the field's default."""
    if not isinstance(value, type):
        return getattr(value, field)
    (found,) = (one for one in dataclasses.fields(value) if one.name == field)
    if found.default_factory is not _REQUIRED:
        return found.default_factory()
    return found.default


def _made(kind: type, below: Mapping[str, Changes], name: str) -> Any:
    """An instance of a dataclass with changes to its defaults."""
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
    """Types of the elements of a tuple with ``count`` elements."""
    arguments = get_args(hint)
    return arguments[:1] * count if len(arguments) == 2 and arguments[1] is ... else arguments


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union; any other type is its own only alternative."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _without_none(hint: Any) -> tuple[Any, ...]:
    return tuple(one for one in _alternatives(hint) if one is not type(None))


def _read(hint: Any, text: str, name: str) -> Any:
    """The value, or the class, that ``text`` means for a field of type ``hint``.

    Raises:
      InputError: the text fits no alternative of the type.
    """
    if text == "None" and type(None) in _alternatives(hint):
        return None
    if found := {**choices(hint), **named_values(hint)}:
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
    """``text`` as a value of a type other than a dataclass.

    Raises:
      ValueError: the text is not a value of the type; the message says what is.
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
    return tuple(_read(one, part, f"{name}.{number}") for number, (one, part) in pairs)


def _listed(names: Any) -> str:
    *others, last = sorted(names)
    return f"{', '.join(others)} or {last}" if others else last


@functools.cache
def choices(hint: Any) -> dict[str, type]:
    """The dataclasses that fit a field of some type, by name; empty if it takes plain values.

    The name of a method's Config is that of its module.
    """
    kinds = []
    for one in _without_none(hint):
        if dataclasses.is_dataclass(one):
            kinds.append(one)
        elif getattr(one, "_is_protocol", False):
            kinds += [kind for kind in _dataclasses() if _satisfies(kind, one)]
    return {_name(kind): kind for kind in kinds}


@functools.cache
def named_values(hint: Any) -> dict[str, Any]:
    """Values of a field that have names of their own: of data, the published sets."""
    if DataSettings not in _without_none(hint):
        return {}
    return {name: Benchmark(name) for name in SETS}


def _name(kind: type) -> str:
    return kind.__module__.rpartition(".")[2] if kind.__name__ == "Config" else kind.__name__


@functools.cache
def _dataclasses() -> list[type]:
    """All public dataclasses of jaxrag and of the loaded config files."""
    for module in pkgutil.walk_packages(jaxrag.__path__, "jaxrag."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # an optional dependency is missing
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
    found = {}
    for base in protocol.__mro__:
        if getattr(base, "_is_protocol", False) and base is not Protocol:
            members = {**dict.fromkeys(vars(base).get("__annotations__", ())), **vars(base)}
            found |= {n: m for n, m in members.items() if n == "__call__" or n[:1] != "_"}
    return found


def _returns(given: Any, wanted: Any) -> bool:
    """Whether a method's return type fits the protocol's; true where a type cannot be resolved."""
    try:
        results = [get_type_hints(function).get("return") for function in (given, wanted)]
    except NameError:  # a type that is imported for type checkers only
        return True
    if not all(map(_without_none, results)):
        return True
    (first, *_), expected = _without_none(results[0]), _without_none(results[1])
    return any(
        not isinstance(one, type) or first is one or _has_members(first, one) for one in expected
    )


def _has_members(kind: Any, wanted: type) -> bool:
    if getattr(wanted, "_is_protocol", False):  # attributes may be set by __init__, unseen here
        members = _members(wanted).items()
        return all(_has(kind, name) for name, member in members if inspect.isfunction(member))
    return isinstance(kind, type) and issubclass(kind, wanted)


def parse(
    argv: Sequence[str], define: Callable[[flags.FlagValues], object], *, kind: Any = Job
) -> tuple[Any, Any]:
    """The job of a command line, and the values of the script's own flags.

    Args:
      argv: the program's name and its arguments.
      define: defines the script's flags on the given FlagValues.
      kind: class that the job must have, such as `Run`.

    Raises:
      InputError: the file, the variant, a name or a value is wrong; the message says which.
    """
    config, changes, rest = _split(argv[1:])
    if not config:
        raise InputError(
            "give --config=FILE[:VARIANT], such as --config=configs/dtr.py:dtr@factbook"
        )
    job = edited(load(config, kind=kind), changes)
    _check_paths(settings(job, "--config"))
    return job, parse_plain([argv[0], *rest], define)


def parse_plain(argv: Sequence[str], define: Callable[[flags.FlagValues], object]) -> Any:
    """The values of a script's flags.

    Raises:
      InputError: a flag or its value is wrong.
    """
    rest, values = parse_named(argv, define)
    if rest:
        raise InputError(f"unexpected arguments {rest}: write settings as --NAME=VALUE")
    return values


def parse_named(
    argv: Sequence[str], define: Callable[[flags.FlagValues], object]
) -> tuple[list[str], Any]:
    """The names, which may stand before and behind flags, and the values of a script's flags.

    Raises:
      InputError: a flag or its value is wrong.
    """
    values = flags.FlagValues()
    values.set_gnu_getopt()
    define(values)
    try:
        names = values(argv)[1:]
    except flags.Error as error:
        raise InputError(f"{error}") from error
    _check_paths(values.flag_values_dict())
    return names, values


def _check_paths(given: Mapping[str, Any]) -> None:
    """Refuses settings that are paths of other file systems; web addresses are left."""
    for name, value in given.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.startswith(("http://", "https://")):
                check_local({name: text})


def _split(arguments: Sequence[str]) -> tuple[str, dict[str, str], list[str]]:
    """The config file with its variant, changed settings by name, and the other arguments.

    ``--NAME VALUE`` means ``--NAME=VALUE``, and ``--NAME`` alone means ``--NAME=True``.
    """
    config, changes, rest = "", {}, []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or name.partition(".")[0] != "config":
            rest.append(argument)
            continue
        if not equals:
            value = left.pop(0) if left and not left[0].startswith("--") else "True"
        if name == "config":
            config = value
        else:
            changes[name.removeprefix("config.")] = value
    return config, changes, rest


def load(spec: str, *, kind: Any = Job) -> Any:
    """The job of a config file, written as ``PATH`` or ``PATH:VARIANT``.

    Raises:
      InputError: no such file, no ``get_config`` in it, no such variant, or not a job of ``kind``.
    """
    path, _, variant = spec.partition(":")
    if not Path(path).is_file():
        raise InputError(
            f"no config file {path}. Each paper has one in configs/; the baselines are in "
            "configs/baselines.py, such as configs/baselines.py:standard_rag@quickstart."
        )
    module_spec = importlib.util.spec_from_file_location(f"config_{Path(path).stem}", path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module  # the dataclasses of a method defined there need it
    module_spec.loader.exec_module(module)
    make = getattr(module, "get_config", None)
    if make is None:
        raise InputError(f"{path} defines no get_config(variant).")
    job = make(variant) if variant else make()
    if not isinstance(job, kind):
        wanted = f"{kind.__module__}.{kind.__name__}"
        raise InputError(f"get_config of {path} returned {type(job).__name__}, not a {wanted}.")
    return job


def show(run_dirs: Sequence[str | Path]) -> None:
    """Prints the table of some runs; it has its full width even if the terminal is narrower."""
    Console(width=max(Console().width, 104)).print(terminal_table(summarise(run_dirs)))


def script(main: Callable[[Sequence[str]], int]) -> None:
    """Runs a script's ``main`` and exits; with ``--help`` prints its docstring and its config's.

    Exit codes: 2 for wrong input and 1 for an engine that stopped, both with a one-line message;
    130 for Ctrl-C and 143 for SIGTERM, which stop the script within seconds.
    """
    signal.signal(signal.SIGTERM, _terminated)
    sys.unraisablehook = _unraisable
    try:
        if {"-h", "--help"} & {*sys.argv[1:]}:
            print(_help(sys.modules[main.__module__].__doc__, sys.argv[1:]))
            sys.exit(0)
        arguments = (argument.rpartition("=") for argument in sys.argv[1:])
        _check_paths({name or "an argument": value for name, _, value in arguments})
        sys.exit(main(sys.argv))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except EngineDown as error:
        print(f"stopped: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as stop:
        print("\ninterrupted: run the same command again to continue", file=sys.stderr)
        sys.exit(143 if stop.args else 130)


def _help(usage: str | None, arguments: Sequence[str]) -> str:
    """A script's docstring, and that of the config file if one is given."""
    path = _split(arguments)[0].partition(":")[0]
    if not path:
        return f"{usage}\n--config=FILE --help describes a config file, such as configs/dtr.py."
    if not Path(path).is_file():
        raise InputError(f"--config is {path}, which is not a file; configs/ has the papers'.")
    described = ast.get_docstring(ast.parse(Path(path).read_text()))
    return f"{usage}\n{path}\n\n{described or 'has no docstring.'}"


def _terminated(*_: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


def _unraisable(what: Any) -> None:
    """Raises a lost KeyboardInterrupt again.

    Python drops exceptions raised in a callback of its garbage collector, and JAX has such one.
    """
    lost = what.exc_value
    if not isinstance(lost, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return

    def again(*_: object) -> None:
        raise KeyboardInterrupt(*lost.args)

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, 0.05)  # by then the callback is over
