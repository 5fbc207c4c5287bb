"""``--config=configs/dtr.py:factbook --config.method.gate.threshold=0.005``: a job from a file.

A config file defines ``get_config(variant)``, which returns a `jaxrag.runs.job.Job`: a tree of
frozen dataclasses. The command line changes its settings as `experiments.settings` reads them:
``--config.limit=20``, ``--config.index=Web --config.index.count=5``, ``--config.reranker=None``.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from rich.console import Console

from experiments.settings import edited
from jaxrag.evaluation.report.tables import terminal_table
from jaxrag.evaluation.summary import summarise
from jaxrag.runs.job import Job
from jaxrag.types import EngineDown, InputError


def parse(
    argv: Sequence[str], define: Callable[[flags.FlagValues], object], *, kind: Any = Job
) -> tuple[Any, Any]:
    """The job that a command line describes, and the script's own flags.

    Args:
      argv: the program's name and its arguments.
      define: defines the script's flags on the given FlagValues.
      kind: class of the jobs that the script takes, such as `Run`.

    Raises:
      InputError: the file, the variant, a name or a value is wrong; the message says which.
    """
    config, changes, rest = _split(argv[1:])
    if not config:
        raise InputError("give --config=FILE[:VARIANT], such as --config=configs/dtr.py:factbook")
    job = edited(load(config, kind=kind), changes)
    return job, parse_plain([argv[0], *rest], define)


def parse_plain(argv: Sequence[str], define: Callable[[flags.FlagValues], object]) -> Any:
    """The flags of a script that takes no config.

    Raises:
      InputError: a flag or its value is wrong.
    """
    values = flags.FlagValues()
    define(values)
    try:
        rest = values(argv)
    except flags.Error as error:
        raise InputError(f"{error}") from error
    if rest[1:]:
        raise InputError(f"unexpected arguments {rest[1:]}: settings are given as --NAME=VALUE")
    return values


def _split(arguments: Sequence[str]) -> tuple[str, dict[str, str], list[str]]:
    """The config file, changes of its settings by name, and the other arguments.

    ``--NAME VALUE`` is the same as ``--NAME=VALUE``, and ``--NAME`` alone is ``--NAME=True``.
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
    """The job of a config file, ``PATH`` or ``PATH:VARIANT``.

    Raises:
      InputError: no such file, no ``get_config`` in it, no such variant, or another kind of job.
    """
    path, _, variant = spec.partition(":")
    if not Path(path).is_file():
        raise InputError(f"--config is {path}, which is not a file; configs/ has the papers'.")
    module_spec = importlib.util.spec_from_file_location(f"config_{Path(path).stem}", path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module  # so that a config may define its own method
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
