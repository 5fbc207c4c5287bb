"""Compares a file of prompts with the shipped set that it stands for, role by role.

    jaxrag prompts check my_dtr.toml --like=dtr

prints for each role whether it is missing, and what differs in its inputs (fields, layout of
passages, number of words) and its format (system message, demonstrations, stop strings, chat, where
the answer is expected). The words themselves are yours. ``--like`` may be left out where the file
has the name of a set.

Exit code 0: nothing changes the inputs; 1: a role is missing or has other inputs; 2: wrong input.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxrag.core.printable import printable
from jaxrag.experiments.configuration import parse_named, script
from jaxrag.reproduction.prompt_files import RoleCheck, check_roles
from jaxrag.steps import prompts
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Prints one line per role."""
    file, like = read_command(argv)
    checks = check_roles(prompts.load(like), prompts.load(file))
    for role, check in checks.items():
        print(printable(f"[{role}] {_line(check)}"))
    return 1 if any(check.inputs for check in checks.values()) else 0


def read_command(argv: Sequence[str]) -> tuple[str, str]:
    """The file, and the name of the set that it stands for; InputError without either."""
    names, values = parse_named(argv, "prompts")
    if len(names) != 2 or names[0] != "check":
        raise InputError("give a file: jaxrag prompts check FILE --like=NAME")
    like, sets = values.like or Path(names[1]).stem, prompts.shipped()
    if like not in sets:
        raise InputError(
            f"give --like=NAME, the set that {names[1]} stands for: {', '.join(sets)}."
        )
    return names[1], like


def _line(check: RoleCheck) -> str:
    """What a role has otherwise."""
    parts = [
        f"{aspect}: {'; '.join(notes)}"
        for aspect, notes in (("inputs", check.inputs), ("format", check.form))
        if notes
    ]
    return ". ".join(parts) or ("as shipped" if check.same else "own words, same inputs and format")


if __name__ == "__main__":
    script(main)
