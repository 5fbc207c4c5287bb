"""Prompt files of the user's own in place of prompt sets, in every job of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.reproduction.substitutes import read_pairs
from jaxrag.runs.job import Job
from jaxrag.runs.loading import describe_job
from jaxrag.runs.settings import replaced
from jaxrag.steps import prompts
from jaxrag.types import InputError

_SHOWN = 10
"""Characters of a digest that records show."""


def read_replacements(given: Iterable[str]) -> dict[str, str]:
    """Files by the prompt set that they replace, of texts NAME=FILE; InputError for others."""
    return read_pairs("prompts", given, "NAME=FILE, such as dtr=my/dtr.toml")


def with_prompts(files: Mapping[str, str]) -> Callable[[Job], Job]:
    """Replaces prompt sets by files, by the sets' names, wherever a job or a part of it has one."""

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
    """Checks files, by the name of the set that each replaces, before any job is executed.

    InputError if a set is not ``used`` by some job, or a file is missing, invalid, or lacks roles
    or words of the set.
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


class RoleCheck(NamedTuple):
    """What a role of a file has otherwise than that of a shipped set, each in a few words."""

    inputs: tuple[str, ...]
    form: tuple[str, ...] = ()
    same: bool = False


def check_roles(ours: prompts.PromptSet, own: prompts.PromptSet) -> dict[str, RoleCheck]:
    """What a file has otherwise than its set, by the roles, and "passages" for their layout."""
    checks = {
        role: _check_role(template, own.roles[role])
        if role in own.roles
        else RoleCheck(("the role is missing",))
        for role, template in ours.roles.items()
    }
    inputs, form = _check_fields(ours.passage, own.passage)
    if ours.joiner != own.joiner:
        form += (f"joiner {own.joiner!r} (ours {ours.joiner!r})",)
    same = (ours.passage, ours.joiner) == (own.passage, own.joiner)
    return {**checks, "passages": RoleCheck(inputs, form, same)}


def _check_fields(ours: str, own: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fields that a text lacks or has besides ours, and their order if that alone differs."""
    before, after = prompts.fields_of(ours), prompts.fields_of(own)
    lacking = [f"lacks {{{name}}}" for name in before if name not in after]
    more = [f"also has {{{name}}}" for name in after if name not in before]
    moved = not (lacking or more) and before != after
    order = (f"{', '.join(after)} in this order (ours {', '.join(before)})",) if moved else ()
    return (*lacking, *more), order


def _check_role(ours: prompts.Template, own: prompts.Template) -> RoleCheck:
    inputs, form = _check_fields(ours.user, own.user)
    if len(ours.words) != len(own.words):
        inputs += (f"{len(own.words)} words (ours {len(ours.words)})",)
    for name in ("parse", "stop", "chat"):
        before, after = getattr(ours, name), getattr(own, name)
        if before != after:
            form += (f"{name} {after!r} (ours {before!r})",)
    if bool(ours.system) != bool(own.system):
        form += ("has a system message" if own.system else "lacks a system message",)
    if (count := len(own.demonstrations)) != len(ours.demonstrations):
        form += (f"{count} demonstrations (ours {len(ours.demonstrations)})",)
    text = f"{own.system}{own.user}{own.demonstrations}"
    if (own.parse == "tags") != ("<answer>" in text):
        request = "asks for <answer>" if "<answer>" in text else "does not ask for <answer>"
        form += (f"{request}, and parse is {own.parse!r}",)
    return RoleCheck(inputs, form, ours == own)


def replacement_record(files: Mapping[str, str], used: Collection[str]) -> dict[str, Any]:
    """The replaced sets among those ``used``: each file's name, and a digest of its contents."""
    return {
        name: {"file": Path(file).name, "digest": prompts.content_digest(file)[:_SHOWN]}
        for name, file in files.items()
        if name in used
    }
