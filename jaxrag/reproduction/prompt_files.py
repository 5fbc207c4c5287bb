"""Tables with a user's own prompts, such as the published words of a paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.reproduction.settings_tree import nodes, replaced
from jaxrag.runs.job import Job
from jaxrag.steps import prompts
from jaxrag.types import InputError

FIELD = "prompts"
"""Name of the fields of settings that hold a set of prompts."""


def read_prompt_files(given: Sequence[str]) -> dict[str, str]:
    """Files by the name of the set that they replace, of texts NAME=FILE.

    Raises:
      InputError: a text has another form, or a file is missing, invalid, or lacks a role of the
        set.
    """
    found = {}
    for text in given:
        name, _, file = text.partition("=")
        if not name or not file:
            raise InputError(f"--prompts is {text!r}: give NAME=FILE, such as dtr=my_dtr.toml.")
        own, replacement = prompts.load(name), prompts.load(file)
        if missing := [role for role in own.roles if role not in replacement.roles]:
            raise InputError(
                f'{file} has no [{missing[0]}], which {name} has: add it, or extends = "{name}".'
            )
        found[name] = file
    return found


def with_prompts(files: Mapping[str, str]) -> Callable[[Job], Job]:
    """Replaces sets of prompts in a job: those of readers, of helpers such as judges, of trainings.

    Args:
      files: by the name of the set.
    """

    def change(node: Any) -> Any:
        file = files.get(getattr(node, FIELD, ""))
        return dataclasses.replace(node, **{FIELD: file}) if file else node

    return lambda job: replaced(job, change)


def check_used(files: Mapping[str, str], jobs: Collection[Job]) -> None:
    """Checks that each replaced set is used by some job, before any is replaced.

    Raises:
      InputError: one is not; the message has the names that are.
    """
    used = {getattr(node, FIELD, "") for job in jobs for node in nodes(job)}
    for name in files:
        if name not in used:
            known = ", ".join(sorted(one for one in used if isinstance(one, str) and one))
            raise InputError(f"no job here has the prompts {name!r}: they have {known or 'none'}.")


def described(files: Mapping[str, str]) -> dict[str, str]:
    """For a record: the file's name and the start of its contents' hash, by the replaced set."""
    digests = prompts.own_files([{FIELD: file} for file in files.values()])
    return {name: f"{Path(file).name} ({digests[file][:10]})" for name, file in files.items()}
