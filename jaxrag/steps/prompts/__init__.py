"""Prompts as data: one TOML file per set, one table per role.

`FIELDS` names the roles and the fields of their prompts; a set may lack roles. A table holds
``user`` (with the role's fields in braces) and optionally ``system``, ``demonstrations``
(``user``/``assistant`` pairs, shown as earlier turns), ``parse`` (how the answer is parsed: "tags",
"first_line" or "text"), ``stop`` strings, ``words`` (of the options that the model chooses
between), and ``chat = false`` for a prompt of plain text, one block after the other. ``[passages]``
is the layout of passages. ``extends = "small"`` at the top takes missing roles and layout from
another set. A set may be a file of one's own, named by its path; see docs/prompts.md.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import reprlib
import string
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.file_states import once
from jaxrag.core.hashing import digest
from jaxrag.types import FilledText, InputError, Message, Passage, Prompt

FIELDS: Mapping[str, tuple[str, ...]] = {
    # answers of the model's own knowledge, and from passages
    "direct": ("question",),
    "context": ("question", "passages"),
    # closed questions: a statement to check, yes or no, one of a data set's labels, the letter of a
    # choice; "choices" are the labels with commas between them, or a line for each choice
    "fact_checking": ("question", "passages"),
    "yes_no": ("question", "passages"),
    "labels": ("question", "passages", "choices"),
    "multiple_choice": ("question", "passages", "choices"),
    "direct_fact_checking": ("question",),
    "direct_yes_no": ("question",),
    "direct_labels": ("question", "choices"),
    "direct_multiple_choice": ("question", "choices"),
    # reasoning first, the answer last
    "chain_of_thought": ("question",),
    "chain_of_thought_yes_no": ("question",),
    "chain_of_thought_labels": ("question", "choices"),
    "chain_of_thought_multiple_choice": ("question", "choices"),
    # what is searched for: a passage that would answer, reasoning, other wordings
    "pseudo_context": ("question",),
    "rationale": ("question",),
    "rewrite": ("question",),
    # queries for a search engine, from the question alone or with what the model knows of it
    "queries": ("question",),
    "queries_from_context": ("question", "context"),
    # judgements: is retrieval needed, is this passage relevant, which passages are reliable
    "judge": ("question",),
    "relevance": ("question", "passage"),
    "rank_ids": ("question", "passages"),
    # of a finished run's answers: is it correct
    "correctness": ("question", "gold_answers", "answer"),
    # Self-RAG's judgements, by prompts: look something up, what supports an answer, is it useful
    "retrieval_needed": ("question", "so_far"),
    "support": ("question", "passage", "answer"),
    "utility": ("question", "answer"),
    # the next sentence of an answer, without passages and with some
    "continue_direct": ("question", "so_far"),
    "continue": ("question", "passages", "so_far"),
    # the rest of an answer that reasons, without passages and with some
    "complete_direct": ("question", "so_far"),
    "complete": ("question", "passages", "so_far"),
    # ReAct: a thought and an action, an action for a thought; IRCoT: the next sentence
    "react": ("question", "scratchpad"),
    "react_action": ("question", "scratchpad", "thought"),
    "reason": ("question", "passages", "so_far"),
    # Adaptive-RAG: how complex a question is, one of three labels
    "complexity": ("question",),
}

OPTIONAL = {"rewrite": ("count",), "react": ("step",), "react_action": ("step",)}
"""Fields that the prompts of some roles may hold, but need not."""

_PARSERS = ("tags", "first_line", "text")
_TEXT, _TEXTS = (str, None, "a text"), (list, str, "a list of texts")
_TYPES: Mapping[str, tuple[type, type | None, str]] = {
    "user": _TEXT,
    "system": _TEXT,
    "demonstrations": (list, dict, "tables with user and assistant"),
    "parse": _TEXT,
    "stop": _TEXTS,
    "words": _TEXTS,
    "chat": (bool, None, "true or false"),
}
"""Types of a role's values and of the parts of lists, and how an error names them."""
_FORMATTER = string.Formatter()
_BYTES = 1_000_000  # of a file
_DOTS = 300  # of one line: reading a key takes as long as the square of its parts
_FIELDS = 100  # of one text
_FILES = 16  # of which each extends the next


@dataclasses.dataclass(frozen=True)
class Template:
    """The prompt of one role; see the module's docstring."""

    user: str
    system: str = ""
    demonstrations: tuple[tuple[str, str], ...] = ()
    parse: str = "text"
    stop: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    chat: bool = True

    def prompt(self, **fields: str) -> Prompt:
        """The prompt with the given fields filled in: a chat, or plain text."""
        head = (Message("system", self.system),) if self.system else ()
        turns = tuple(
            message
            for user, assistant in self.demonstrations
            for message in (Message("user", user), Message("assistant", assistant))
        )
        chat = (*head, *turns, Message("user", self.user.format_map(fields)))
        if self.chat:
            return chat
        blocks = [f"{user} {assistant}" for user, assistant in self.demonstrations]
        before = "\n\n".join([*([self.system] if self.system else []), *blocks, ""])
        text = FilledText(before) + FilledText.fill(self.user, fields)
        return FilledText(text, text.data, chat)


@dataclasses.dataclass(frozen=True)
class PromptSet:
    """Prompts of a method's calls, by role such as "answer", from one file; layout of passages."""

    path: str
    roles: Mapping[str, Template]
    passage: str = "{title}: {text}"
    joiner: str = "\n"

    def role(self, name: str) -> Template:
        """The prompt of a role; InputError where this set lacks it."""
        if name not in self.roles:
            raise InputError(f"{self.path} has no [{name}], which this method uses: add it.")
        return self.roles[name]

    def role_with_words(self, name: str, count: int, meaning: str) -> Template:
        """A role's prompt; InputError unless it has ``count`` words, which ``meaning`` names."""
        template = self.role(name)
        if len(template.words) != count:
            raise InputError(
                f"{self.path} [{name}] has the words {list(template.words)}; give {count}, "
                f"{meaning}."
            )
        return template

    def render(self, passages: Sequence[Passage]) -> FilledText:
        """The passages as the reader sees them; ``{number}`` counts from one."""
        text = FilledText("")
        for i, p in enumerate(passages):
            fields = {"number": i + 1, "title": p.title, "text": p.text}
            text = text + (self.joiner if i else "") + FilledText.fill(self.passage, fields)
        return text


def continuation(prompt: Prompt, text: str) -> str:
    """A text as it follows a prompt: with a leading blank if it continues a line of plain text."""
    within = isinstance(prompt, str) and not prompt[-1:].isspace()
    return f" {text}" if within else text


@once
def load(name: str) -> PromptSet:
    """Reads, once in a job, a set by the name of a file beside this module or by path.

    InputError, naming file, table and key, for an invalid file; or for no such set.
    """
    return _load(name, ())


def _load(name: str, extending: tuple[Path, ...]) -> PromptSet:
    """Reads a set; ``extending`` are the files that extend it, directly or through others."""
    path = _path(name)
    if not _is_file(path):
        names = shipped()
        near, *_ = difflib.get_close_matches(name[:100], names, 1, 0)
        raise InputError(
            f"No prompts named {name!r}: give a TOML file's path, or one of {', '.join(names)}. "
            f"Nearest: {near}."
        )
    tables = _tables(path)
    roles, layout = {}, {}
    if (extended := tables.pop("extends", None)) is not None:
        base = _extended((*extending, path), extended)
        roles, layout = dict(base.roles), {"passage": base.passage, "joiner": base.joiner}
    own_layout = tables.pop("passages", {})
    if not isinstance(own_layout, dict):
        raise InputError(f"{path} passages is {_kind(own_layout)}: make it a table, [passages].")
    unknown = [key for key in tables if key not in FIELDS]
    unknown += [f"passages.{key}" for key in own_layout if key not in ("passage", "joiner")]
    if unknown:
        raise InputError(f"{path} has unknown keys {unknown[:9]}; roles are {', '.join(FIELDS)}.")
    for key, value in own_layout.items():
        if not isinstance(value, str):
            raise InputError(f"{path} passages.{key} is {_kind(value)}: give a text.")
    allowed = ("number", "title", "text")
    _fields(f"{path} passages.passage", own_layout.get("passage", ""), allowed)
    roles |= {role: _template(path, role, table) for role, table in tables.items()}
    return PromptSet(str(path), roles, **(layout | own_layout))


def own_files(settings: object) -> dict[str, str]:
    """Digests of the users' own prompt files that settings name, by path; see `named_sets`."""
    paths = (name for name in named_sets(settings) if name not in shipped())
    return {name: content_digest(name) for name in paths}


def named_sets(settings: object) -> list[str]:
    """Names and paths of sets in fields called "prompts" of settings (plain JSON), each once."""
    if isinstance(settings, list):
        return list(dict.fromkeys(name for part in settings for name in named_sets(part)))
    if not isinstance(settings, dict):
        return []
    name = settings.get("prompts")
    names = [name] if isinstance(name, str) and name else []
    return list(dict.fromkeys((*names, *named_sets(list(settings.values())))))


def content_digest(name: str) -> str:
    """SHA-256 (hex) of a set's roles and layout, those of sets that it extends included."""
    return digest(repr(dataclasses.replace(load(name), path="")))


def shipped() -> list[str]:
    """Names of the sets beside this module."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.toml"))


def fields_of(text: str) -> list[str]:
    """Names of the fields of a set's text, in their order, each once."""
    return list(dict.fromkeys(name for _, name, _, _ in _FORMATTER.parse(text) if name is not None))


def _path(name: str) -> Path:
    return Path(__file__).parent / f"{name}.toml" if name in shipped() else Path(name)


def _is_file(path: Path) -> bool:
    """Whether there is such a file; False of a path that cannot be one's."""
    return os.path.isfile(path)  # noqa: PTH113 - Path's own raises for a name of 1000 characters


def _extended(files: tuple[Path, ...], name: object) -> PromptSet:
    """The set that the last of ``files`` extends; each of the others extends the next.

    A user's own dtr.toml may extend our "dtr".
    """
    if not isinstance(name, str) or (name == files[-1].stem and name not in shipped()):
        raise InputError(f"{files[-1]} extends {_kind(name)}: name another set.")
    path = _path(name)
    if _is_file(path) and path.resolve() in {file.resolve() for file in files}:
        chain = ", which extends ".join(map(str, (*files[1:], name)))
        raise InputError(f"{files[0]} extends {chain}: let one of them extend another set.")
    if len(files) >= _FILES:
        raise InputError(
            f"{files[0]} extends a set that extends another, {_FILES} times: join some."
        )
    return _load(name, files)


def _tables(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, which may be anyone's: nested deeply, with enormous keys."""
    try:
        if path.stat().st_size > _BYTES:
            raise ValueError(f"over {_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8-sig")
        if any(line.count(".") > _DOTS for line in text.splitlines()):
            raise ValueError(f"over {_DOTS:,} full stops in one line; break it")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOML's errors and Unicode's are ValueErrors
        raise InputError(f"{path} is no valid TOML file: {error}.") from error


def _kind(value: object) -> str:
    """A wrong value in an error: its type alone unless it is a text."""
    return reprlib.repr(value) if isinstance(value, str) else f"of type {type(value).__name__}"


def _fields(where: str, text: str, allowed: Sequence[str]) -> list[str]:
    """The fields of a text, plain names; InputError for others than ``allowed``, or a brace."""
    try:
        parsed = list(_FORMATTER.parse(text))
    except ValueError as error:
        raise InputError(f"{where} has a bad field: {error}; a brace alone is {{{{.") from error
    for _, name, form, conversion in parsed:
        if name is not None and (name not in allowed or form or conversion):
            full = f"{name}{'!' if conversion else ''}{conversion or ''}{':' if form else ''}{form}"
            raise InputError(
                f"{where} has a bad field: {{{full[:50]}}}; allowed: {', '.join(allowed)}."
            )
    names = [name for _, name, _, _ in parsed if name is not None]
    if len(names) > _FIELDS:
        raise InputError(f"{where} has {len(names):,} fields; at most {_FIELDS} are allowed.")
    return names


def _template(path: Path, role: str, table: Any) -> Template:
    where = f"{path} [{role}]"
    if not isinstance(table, dict):
        raise InputError(
            f"{path} {role} is {_kind(table)}: make it a table, [{role}] and its keys."
        )
    if unknown := sorted(set(table) - set(_TYPES)):
        raise InputError(f"{where} has unknown keys {unknown[:9]}; allowed: {sorted(_TYPES)}.")
    for key, value in table.items():
        kind, parts, description = _TYPES[key]
        if not isinstance(value, kind) or not (
            parts is None or all(isinstance(part, parts) for part in value)
        ):
            raise InputError(f"{where} {key} is {_kind(value)}: give {description}.")
        if key in ("stop", "words") and not all(value):
            raise InputError(f"{where} {key} has an empty text: remove it.")
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
    }
    allowed = (*FIELDS[role], *OPTIONAL.get(role, ()))
    if misplaced := [field for field in allowed if f"{{{field}}}" in values.get("system", "")]:
        raise InputError(f"{where} system has {{{misplaced[0]}}}, which user alone may hold.")
    fields = _fields(f"{where} user", values.setdefault("user", ""), allowed)
    if missing := [field for field in FIELDS[role] if field not in fields]:
        raise InputError(f"{where} user must hold {{{missing[0]}}}.")
    if values.get("parse", "text") not in _PARSERS:
        raise InputError(f"{where} parse is {values['parse']!r}; allowed: {_PARSERS}.")
    for number, pair in enumerate(values.get("demonstrations", ()), start=1):
        if set(pair) != {"user", "assistant"} or not all(
            isinstance(text, str) for text in pair.values()
        ):
            raise InputError(f"{where} demonstration {number} needs the texts user and assistant.")
    pairs = values.pop("demonstrations", ())
    demonstrations = tuple((pair["user"], pair["assistant"]) for pair in pairs)
    return Template(**values, demonstrations=demonstrations)
