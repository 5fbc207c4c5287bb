"""Reads a job from a command line: a config file, a variant, and changes of settings.

    --config=configs/dtr.py:dtr@quickstart --config.method.gate.threshold=0.005

A config file defines ``get_config(variant)``, which returns a `jaxrag.runs.job.Job`: a tree of
frozen dataclasses. The command line changes its fields: ``--config.limit=20``,
``--config.index=Web --config.index.count=5``, ``--config.reranker=None``.

Values are parsed by the types of their fields (`jaxrag.runs.edits`): numbers, words, A,B,C for a
tuple, and the names of classes.

``--config.data=nq``, or another name of `jaxrag.data.sets.SETS`, is the published set in the split
and over the corpus that papers evaluate; ``--config.data.split=train`` then changes its fields. New
data do not keep the ``limit`` beside them, which is a part of the variant's data.
"""

from __future__ import annotations

import ast
import atexit
import difflib
import io
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from absl import flags
from rich.console import Console

from jaxrag.core.checks import check_local
from jaxrag.core.printable import printable
from jaxrag.core.progress import shown_warnings
from jaxrag.evaluation.report.tables import terminal_table
from jaxrag.evaluation.status import named_directories
from jaxrag.evaluation.summary import summarise
from jaxrag.experiments.options import define, takes_config, usage
from jaxrag.runs.config_file import explained, find, load
from jaxrag.runs.edits import class_name, edited, settings
from jaxrag.runs.job import Job
from jaxrag.types import EngineDown, InputError

_LONGEST_NAME = 200  # characters of an option; absl fails at a thousand
_LONGEST = 1500  # characters of the beginning, and of the end, of a message that is shown


def parse(argv: Sequence[str], command: str, *, kind: Any = Job) -> tuple[Any, Any]:
    """The job of a command line, and the values of the command's own options.

    Args:
      argv: the program's name and its arguments.
      command: its name in `experiments.options.COMMANDS`.
      kind: class that the job must have, such as `Run`.

    Raises:
      InputError: the file, the variant, a name or a value is wrong; the message says which.
    """
    job, names, values = parse_job(argv, command, kind=kind)
    _refuse_names(names)
    return job, values


def parse_job(argv: Sequence[str], command: str, *, kind: Any = Job) -> tuple[Any, list[str], Any]:
    """As `parse`, for a command that takes names: the job, the names and the options."""
    config, changes, rest = _split(argv[1:])
    if not config:
        parse_named([argv[0], *rest], command)  # which may hold a misspelt --config
        raise InputError(
            "give --config=FILE[:VARIANT], such as --config=configs/dtr.py:dtr@quickstart"
        )
    job: Any = load(config, kind=kind)
    path_alone = "data.path" in changes and "data" not in changes and hasattr(job, "data")
    if path_alone and not hasattr(job.data, "path"):
        raise InputError("--config.data.path: give --config.data=Folder, too.")
    job = edited(job, changes)
    _check_paths(values := settings(job, "--config"))
    return job, *parse_named([argv[0], *rest], command, values)


def parse_plain(argv: Sequence[str], command: str) -> Any:
    """The values of a command's options; InputError if a flag or its value is wrong."""
    rest, values = parse_named(argv, command)
    _refuse_names(rest)
    return values


def _refuse_names(names: Sequence[str]) -> None:
    if names:
        raise InputError(f"unexpected arguments {names}: write settings as --NAME=VALUE")


def parse_named(
    argv: Sequence[str], command: str, settings: Collection[str] = ()
) -> tuple[list[str], Any]:
    """The names, which may stand before and behind options, and the values of the options.

    ``settings`` of a config, such as "--config.limit", may be meant by a wrong option. InputError
    if an option or its value is wrong; the message names the nearest, or what is right.
    """
    values, lists = define(command), f"jaxrag {command} --help lists its options"
    if any(arg.startswith("--") and len(arg.partition("=")[0]) > _LONGEST_NAME for arg in argv):
        raise InputError(f"an option's name has over {_LONGEST_NAME} characters; {lists}.")
    try:
        names = values(argv)[1:]
    except flags.UnrecognizedFlagError as error:
        options = [*(f"--{name}" for name in values), *["--config"] * takes_config(command)]
        meant = [setting for setting in settings if setting.rpartition(".")[2] == error.flagname]
        near = meant or difflib.get_close_matches(f"--{error.flagname}"[:100], options, 1)
        hint = f"the nearest is {near[0]}" if near else lists
        raise InputError(f"jaxrag {command} has no option --{error.flagname}; {hint}.") from None
    except flags.IllegalFlagValueError as error:
        raise InputError(_wrong_value(str(error), values)) from None
    except flags.Error as error:
        raise InputError(f"{error}: write --NAME=VALUE.") from error
    _check_paths(values.flag_values_dict())
    return names, values


def _wrong_value(message: str, values: flags.FlagValues) -> str:
    """What absl says about an option's value, "flag --NAME=VALUE: WHY", with the way out."""
    option, _, rest = message.removeprefix("flag --").partition("=")
    flag = values[option]
    text = rest.partition(": ")[0]
    if allowed := getattr(flag.parser, "enum_values", ()):
        near, *_ = difflib.get_close_matches(text[:100], allowed, 1, 0)
        return f"--{option} is {text!r}; allowed: {', '.join(allowed)}. Nearest: {near}."
    least = getattr(flag.parser, "lower_bound", None)
    kinds = {"int": "a whole number", "float": "a number", "bool": "no value"}
    kind = kinds.get(flag.flag_type(), "values with commas between them")
    return f"--{option} is {text!r}; give {kind}{'' if least is None else f' of at least {least}'}."


def parse_runs(argv: Sequence[str], command: str) -> tuple[list[Path], Any]:
    """The directories that names stand for, and the options; InputError if there are none."""
    names, values = parse_named(argv, command)
    names += values.runs if "runs" in values else []
    if not names:
        raise InputError(f"give run directories, or a parent of some: jaxrag {command} RUN...")
    return named_directories(names), values


def _check_paths(values: Mapping[str, Any]) -> None:
    """Refuses settings that are paths of other file systems; web addresses are left."""
    for name, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.startswith(("http://", "https://")):
                check_local({name: text})


def _split(arguments: Sequence[str]) -> tuple[str, dict[str, str], list[str]]:
    """The config file with its variant, changed settings by name, and the other arguments.

    ``--NAME VALUE`` means ``--NAME=VALUE``, and ``--NAME`` alone means ``--NAME=True``.
    """
    config, changes, rest = "", {}, []
    todo = list(arguments)
    while todo:
        argument = todo.pop(0)
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or name.partition(".")[0] != "config":
            rest.append(argument)
            continue
        if not equals:
            follows = bool(todo) and not todo[0].startswith("--")
            value = todo.pop(0) if follows else "" if name == "config" else "True"
        if name == "config":
            if config:
                raise InputError(f"two configs, {config} and {value}: run each by itself.")
            config = value
        else:
            changes[name.removeprefix("config.")] = value
    return config, changes, rest


def show(run_dirs: Sequence[Path]) -> None:
    """Prints the table of some runs; it has its full width even if the terminal is narrower."""
    Console(width=max(Console().width, 104)).print(terminal_table(summarise(run_dirs)))


def script(main: Callable[[Sequence[str]], int]) -> None:
    """Runs a script's ``main`` and exits; with ``--help`` prints its options, or a config's tree.

    Exit codes: 2 for wrong input and 1 for an engine that stopped, both with a one-line message;
    130 for Ctrl-C and 143 for SIGTERM, which stop the script within seconds.
    """
    signal.signal(signal.SIGTERM, _terminated)
    sys.unraisablehook = _unraisable
    for stream in (sys.stdout, sys.stderr):  # a terminal may have no letters beyond ASCII
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if {"-h", "--help"} & {*sys.argv[1:]}:
            print(_help(main, sys.argv[1:]))
            sys.exit(0)
        arguments = (argument.rpartition("=") for argument in sys.argv[1:])
        _check_paths({name or "an argument": value for name, _, value in arguments})
        with shown_warnings():
            code = main(sys.argv)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)  # all is done
        sys.stdout.flush()
        sys.exit(code)
    except InputError as error:
        _say("\n".join(map(_shortened, f"error: {error}".split("\n"))))
        sys.exit(2)
    except EngineDown as error:
        _say(f"stopped: {error}")
        sys.exit(1)
    except BrokenPipeError:  # whoever reads the output has stopped, as `head` does
        _drop_output()
        sys.exit(1)
    except OSError as error:
        if error.filename is None and _output_fails():
            _drop_output()
            _say(f"error: the output cannot be written ({error.strerror}); files are kept.")
            sys.exit(1)
        if not isinstance(error.filename, (str, os.PathLike)):
            raise
        _say(f"error: {_shortened(_file_problem(error))}")
        sys.exit(2)
    except (RuntimeError, AssertionError):
        if not _lacks_devices():
            raise
        setting = os.environ.get("JAX_PLATFORMS", "")
        _say(
            f"error: JAX finds no device for JAX_PLATFORMS={setting!r}: unset it, or install what "
            "such devices need, as pip install 'jaxrag[cuda13]' does."
        )
        sys.exit(2)
    except KeyboardInterrupt as stop:
        print("\ninterrupted: run the same command again to continue", file=sys.stderr)
        sys.exit(143 if stop.args else 130)


def _lacks_devices() -> bool:
    """Whether JAX was imported and cannot start on any device."""
    try:
        return "jax" in sys.modules and not sys.modules["jax"].devices()
    except (RuntimeError, AssertionError):
        return True


def _output_fails() -> bool:
    """Whether the output takes no further line."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        return True
    return False


def _drop_output() -> None:
    """Lets the rest of the output go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str) -> None:
    """Prints an error, which may quote files and servers."""
    print(printable(message), file=sys.stderr)


def _shortened(message: str) -> str:
    """A message without the middle of an enormous value that it quotes."""
    if len(message) <= 2 * _LONGEST:
        return message
    return f"{message[:_LONGEST]} [...] {message[-_LONGEST:]}"


def _file_problem(error: OSError) -> str:
    """What the system says about a file, in a sentence."""
    files = [str(name) for name in (error.filename, error.filename2) if name]
    cause = f"{' to '.join(files)}: {error.strerror or error}."
    gone = next((file for file in files if not Path(file).absolute().parent.exists()), "")
    if gone:
        return f"{cause} The directory {Path(gone).parent} does not exist."
    return (
        f"{cause} Check that path, its permissions and the disk, then run the same command again; "
        "what was finished is kept."
    )


def _help(main: Callable[..., int], arguments: Sequence[str]) -> str:
    """A command's options; of a config its docstring, and all settings as arguments."""
    config, changes, _ = _split([arg for arg in arguments if arg not in ("-h", "--help")])
    if not config:
        spec = sys.modules[main.__module__].__spec__
        return usage((spec.name if spec else "").rpartition(".")[2].strip("_").replace("_", "-"))
    file = find(config.partition(":")[0])
    with explained(file):
        described = ast.get_docstring(ast.parse(Path(file).read_bytes()))
    entries = settings(edited(load(config, kind=object), changes), "--config").items()
    lines = [f"{name}={class_name(type(v)) if is_dataclass(v) else v}" for name, v in entries]
    return "\n".join([described or f"{file} has no docstring.", "", "Settings:", "", *lines])


def _terminated(*_: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


def _unraisable(unraisable: Any) -> None:
    """Raises a lost KeyboardInterrupt again.

    Python drops exceptions raised in a callback of its garbage collector, and JAX has such one.
    """
    lost = unraisable.exc_value
    if not isinstance(lost, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return

    def again(*_: object) -> None:
        raise KeyboardInterrupt(*lost.args)

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, 0.05)  # by then the callback is over
