"""Prompt files of the user's own in place of prompt sets, in every job of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxrag.runs.job import Job
from jaxrag.runs.loading import describe_job
from jaxrag.runs.settings_tree import replaced
from jaxrag.steps import prompts
from jaxrag.types import InputError

_SHOWN = 10
"""Characters of a digest that records show."""


def read_replacements(given: Iterable[str]) -> dict[str, str]:
    """Files by the name of the prompt set that they replace, of texts NAME=FILE.

    Raises:
      InputError: a text has another form, or two files replace one set.
    """
    files: dict[str, str] = {}
    for text in given:
        name, _, file = text.partition("=")
        if not name or not file:
            raise InputError(f"--prompts is {text!r}: give NAME=FILE, such as dtr=my/dtr.toml.")
        if files.setdefault(name, file) != file:
            raise InputError(f"--prompts replaces {name} by {files[name]} and by {file}: give one.")
    return files


def with_prompts(files: Mapping[str, str]) -> Callable[[Job], Job]:
    """Replaces prompt sets by files wherever a job names them.

    These are the sets of methods, of helpers such as judges and rewriters, and of the jobs that
    make labels, rewards or training pairs.

    Args:
      files: by the name of the set that each replaces.
    """

    def change(settings: Any) -> Any:
        name = getattr(settings, "prompts", None)
        if isinstance(name, str) and name in files:
            return dataclasses.replace(settings, prompts=files[name])
        return settings

    return lambda job: replaced(job, change) if files else job


def sets_in_use(jobs: Iterable[Job]) -> list[str]:
    """Names and paths of the prompt sets of jobs, sorted."""
    return sorted({name for job in jobs for name in prompts.named_sets(describe_job(job))})


def check_replacements(files: Mapping[str, str], used: Collection[str]) -> None:
    """Checks files before any job is executed.

    Args:
      files: by the name of the set that each replaces.
      used: names of the sets that some job uses.

    Raises:
      InputError: no job uses a set, or a file is missing, invalid, or lacks roles or words of the
        set that it replaces.
    """
    for name, file in files.items():
        if name not in used:
            in_use = f"sets in use are {', '.join(sorted(used))}" if used else "they use none"
            raise InputError(f"--prompts names {name!r}, which none of these jobs uses: {in_use}.")
        ours, own = prompts.load(name), prompts.load(file)
        if lacking := [f"[{role}]" for role in ours.roles if role not in own.roles]:
            raise InputError(
                f"{file} lacks {', '.join(lacking)} of the set {name} that it replaces: add them, "
                f'or take them from there by extends = "{name}" at the top of the file.'
            )
        for role, template in ours.roles.items():
            if len(words := own.roles[role].words) != len(template.words):
                raise InputError(
                    f"{file} [{role}] has the words {list(words)}: give as many as the set {name}, "
                    f"which has {list(template.words)}."
                )


def replacement_record(files: Mapping[str, str], used: Collection[str]) -> dict[str, Any]:
    """The replaced sets among those ``used``: each file's name, and a digest of its contents."""
    return {
        name: {"file": Path(file).name, "digest": prompts.content_digest(file)[:_SHOWN]}
        for name, file in files.items()
        if name in used
    }
