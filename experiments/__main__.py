"""The command ``jaxrag COMMAND ...``, which is ``python -m jaxrag.experiments COMMAND ...``."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

import jaxrag
from jaxrag.experiments import say_loading
from jaxrag.experiments.options import COMMANDS, module_of, overview, usage


def main() -> None:
    """Runs the script that the first argument names, and exits with its code."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if text := _answer(name, arguments):
        try:
            print(text, flush=True)
        except BrokenPipeError:  # `head` reads a part
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    if name not in COMMANDS:
        near = difflib.get_close_matches(name[:100], [*COMMANDS, "--help", "--version"], 1)
        hint = f" Nearest: {near[0]}." if near else ""
        commands = f"Commands: {', '.join(COMMANDS)}; jaxrag --help describes them."
        print(f"error: no command {name[:100]!r}.{hint} {commands}", file=sys.stderr)
        sys.exit(2)
    if __name__ != "__main__":  # as the module, it has been said
        say_loading()
    # late: it takes seconds, which the usage does not
    from jaxrag.experiments.configuration import script

    sys.argv = [f"jaxrag {name}", *arguments]
    script(importlib.import_module(f"jaxrag.experiments.{module_of(name)}").main)


def _answer(name: str, arguments: Sequence[str]) -> str:
    """What can be said without JAX: a help text, or the version; "" if there is work to do."""
    if name in ("-h", "--help", "help"):
        return overview()
    if name == "--version":
        return f"jaxrag {jaxrag.__version__}"
    of_config = any(word.startswith("--config") for word in arguments)
    help_asked = name in COMMANDS and {"-h", "--help"} & {*arguments} and not of_config
    return usage(name) if help_asked else ""


if __name__ == "__main__":
    main()
