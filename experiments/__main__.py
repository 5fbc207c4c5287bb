"""The command ``jaxrag COMMAND ...``, which is ``python -m experiments.COMMAND ...``."""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from pathlib import Path

from experiments import say_loading

COMMANDS = (
    "quickstart",
    "ask",
    "check-model",
    "run",
    "sweep",
    "report",
    "status",
    "explain",
    "prompts",
    "reproduce",
    "data",
    "index",
    "store",
)
"""Names of the scripts in this package."""


def main() -> None:
    """Runs the script that the first argument names, and exits with its code."""
    name = "".join(sys.argv[1:2])
    if name in ("-h", "--help"):
        print(usage())
        sys.exit(0)
    if name not in COMMANDS:
        near = difflib.get_close_matches(name[:100], COMMANDS, 1)
        hint = f" Nearest: {near[0]}." if near else ""
        known = f"Commands: {', '.join(COMMANDS)}; jaxrag --help describes them."
        print(f"error: no command {name[:100]!r}.{hint} {known}", file=sys.stderr)
        sys.exit(2)
    say_loading()
    from experiments.configuration import script  # late: takes seconds, which the usage does not

    sys.argv = [f"jaxrag {name}", *sys.argv[2:]]
    script(importlib.import_module(f"experiments.{module_of(name)}").main)


def module_of(name: str) -> str:
    """The name of a command's script."""
    return name.replace("-", "_")


def usage() -> str:
    """All commands, each with the first line of its docstring."""
    lines = ["jaxrag COMMAND ...; jaxrag COMMAND --help describes one.", ""]
    for name in COMMANDS:
        source = (Path(__file__).parent / f"{module_of(name)}.py").read_text("utf-8")
        first = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        lines.append(f"  {name:<12}{first}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
