"""``--config=configs/dtr.py:factbook --config.method.gate.threshold=0.005``: settings from a file.

A config file defines ``get_config(variant) -> Run``. The tree of frozen dataclasses it returns is
shown to ml_collections' ``config_flags``, which checks names and types of what the command line
overrides, and is then built anew, so that every dataclass checks its values.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import config_dict, config_flags
from rich.console import Console

from jaxrag.engines.requests import EngineDown
from jaxrag.evaluation.summary import summarise
from jaxrag.evaluation.tables import terminal_table
from jaxrag.run import Run
from jaxrag.types import InputError


def parse(
    argv: Sequence[str],
    define: Callable[[flags.FlagValues], object],
    *,
    kinds: tuple[type, ...] = (Run,),
) -> tuple[Any, Any]:
    """The run, or other job, that a command line describes, and the script's own flags.

    Args:
      argv: the program's name and its arguments.
      define: defines the script's flags on the given FlagValues.
      kinds: what the script can execute.

    Raises:
      InputError: the file, the variant, a key or a value is wrong; the message says which.
    """
    arguments = list(argv[1:])
    run = load(_take_config(arguments), kinds=kinds)
    values = flags.FlagValues()
    define(values)
    _check_keys(run, arguments)
    line = [argv[0], *arguments]
    holder = config_flags.DEFINE_config_dict(
        "config", editable(run), flag_values=values, sys_argv=line
    )
    return rebuilt(run, _parsed(values, line, holder)), values


def parse_plain(argv: Sequence[str], define: Callable[[flags.FlagValues], object]) -> Any:
    """The flags of a script that takes no config."""
    values = flags.FlagValues()
    define(values)
    _parsed(values, argv, None)
    return values


def _parsed(values: flags.FlagValues, argv: Sequence[str], holder: Any) -> Any:
    try:
        rest = values(argv)
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{error}") from error
    if rest[1:]:
        raise InputError(f"unexpected arguments {rest[1:]}: settings are given as --NAME=VALUE")
    return holder.value if holder is not None else None


def _check_keys(run: Any, arguments: Sequence[str]) -> None:
    """Refuses a ``--config.`` key that does not exist, naming the nearest that does."""
    known = list(_keys(editable(run), "config"))
    for argument in arguments:
        name = argument.lstrip("-").partition("=")[0]
        if name.startswith("config.") and name.removeprefix("no") not in known:
            near = difflib.get_close_matches(name, known, 1, 0)
            raise InputError(f"no setting --{name}; the nearest is --{near[0]}")


def _keys(config: config_dict.ConfigDict, prefix: str) -> list[str]:
    keys = []
    for name, entry in config.items():
        path = f"{prefix}.{name}"
        keys += _keys(entry, path) if isinstance(entry, config_dict.ConfigDict) else [path]
    return keys


def load(spec: str, *, kinds: tuple[type, ...] = (Run,)) -> Any:
    """The run, or other job, of a config file, ``PATH`` or ``PATH:VARIANT``.

    Raises:
      InputError: no such file, no ``get_config`` in it, or no such variant.
    """
    path, _, variant = spec.partition(":")
    if not Path(path).is_file():
        raise InputError(f"--config names {path}, which is no file; configs/ holds some.")
    module_spec = importlib.util.spec_from_file_location(f"config_{Path(path).stem}", path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module  # so that a config may define its own method
    module_spec.loader.exec_module(module)
    make = getattr(module, "get_config", None)
    if make is None:
        raise InputError(f"{path} defines no get_config(variant).")
    run = make(variant) if variant else make()
    if not isinstance(run, kinds):
        wanted = " or ".join(f"{kind.__module__}.{kind.__name__}" for kind in kinds)
        raise InputError(f"get_config of {path} gave {type(run).__name__}, not a {wanted}.")
    return run


def _take_config(arguments: list[str]) -> str:
    """Removes ``--config=X`` (or ``--config X``) from the arguments and returns X."""
    for position, argument in enumerate(arguments):
        name, equals, value = argument.lstrip("-").partition("=")
        if name == "config" and argument.startswith("-"):
            del arguments[position]
            if equals:
                return value
            if position < len(arguments):
                return arguments.pop(position)
    raise InputError("give --config=FILE[:VARIANT], such as --config=configs/dtr.py:factbook")


def editable(value: Any) -> config_dict.ConfigDict:
    """The dataclass tree as a ConfigDict of what a command line may change."""
    fields = {}
    for field in dataclasses.fields(value):
        entry = getattr(value, field.name)
        if dataclasses.is_dataclass(entry):
            fields[field.name] = editable(entry)
        elif isinstance(entry, bool | int | float | str | tuple):
            fields[field.name] = entry
    return config_dict.ConfigDict(fields)


def rebuilt(value: Any, edited: config_dict.ConfigDict) -> Any:
    """``value`` with the fields of ``edited``; every dataclass checks its values anew."""
    changes = {
        name: rebuilt(getattr(value, name), entry)
        if isinstance(entry, config_dict.ConfigDict)
        else entry
        for name, entry in edited.items()
    }
    return dataclasses.replace(value, **changes)


def show(run_dirs: Sequence[str | Path]) -> None:
    """Prints the table of some runs, in its full width where the output is a file."""
    Console(width=max(Console().width, 104)).print(terminal_table(summarise(run_dirs)))


def script(main: Callable[[Sequence[str]], int]) -> None:
    """Runs a script's ``main``; wrong input ends in one line and code 2, a dead engine in 1.

    Ctrl-C and SIGTERM (what a cluster sends) stop it within seconds; codes 130 and 143.
    """
    signal.signal(signal.SIGTERM, _terminated)
    sys.unraisablehook = _unraisable
    try:
        sys.exit(main(sys.argv))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except EngineDown as error:
        print(f"stopped: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as stop:
        print("\ninterrupted: run the same command again to go on", file=sys.stderr)
        sys.exit(143 if stop.args else 130)


def _terminated(*_: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


def _unraisable(what: Any) -> None:
    """Interrupts again where an interrupt was lost.

    Python drops what is raised in a callback of its garbage collector, and JAX has one.
    """
    lost = what.exc_value
    if not isinstance(lost, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return

    def again(*_: object) -> None:
        raise KeyboardInterrupt(*lost.args)

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, 0.05)  # by then the callback is over
