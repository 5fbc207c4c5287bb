"""JSONL files that jaxrag writes and reads back; `jaxrag.core.jsonl_input` reads those of users."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.durable_files import explain_limits, open_own, read_whole, utf8, write_text
from jaxrag.core.json_text import parse_json
from jaxrag.types import InputError

NUMBER = int | float
_KINDS = {str: "text", NUMBER: "a number", list: "a list", dict: "an object"}


def encode(name: str, value: Any) -> str:
    """A line of strict JSON with its newline; ValueError, with ``name``, for NaN and others."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: not plain JSON ({error})") from error


def write(file: Path, rows: Iterable[Any]) -> None:
    """Writes a line for each row, the whole file or nothing; errors as `encode`, `write_text`."""
    write_text(file, "".join(encode(file.name, row) for row in rows))


def append(file: Path, lines: Sequence[str]) -> None:
    """Appends encoded lines, on disk when this returns; after an error the file is unchanged."""
    if not lines:
        return
    handle = open_own(file, os.O_WRONLY | os.O_APPEND)
    with explain_limits(file), os.fdopen(handle, "ab", buffering=0) as out:
        before = out.seek(0, os.SEEK_END)
        data = memoryview(utf8("".join(lines)))
        try:
            while data:
                data = data[out.write(data) :]
            os.fsync(out.fileno())
        except OSError as error:
            out.truncate(before)
            message = f"{error.strerror}; earlier records are kept, run the command again"
            raise OSError(error.errno, message, str(file)) from error


def cut_torn_line(file: Path) -> None:
    """Removes an incomplete last line, left by an interrupted write."""
    if file.is_file():
        data = read_whole(file)
        end = data.rfind(b"\n") + 1
        if end < len(data):
            os.truncate(file, end)


def read(
    file: Path,
    *,
    key: str = "question_id",
    fields: Mapping[str, Any] | None = None,
    torn_ok: bool = False,
) -> list[dict[str, Any]]:
    """The objects of a file; an empty list if the file does not exist.

    Args:
      file: the file.
      key: a field that every object must have, with a string value.
      fields: types of other fields that every object must have: str, NUMBER, list or dict.
      torn_ok: skip an incomplete last line instead of raising an error.

    InputError, with file and line, if a line is incomplete, no JSON object, or lacks a field.
    """
    needed = {key: str, **(fields or {})}
    if not file.is_file():
        return []
    lines = read_whole(file).split(b"\n")
    torn = lines.pop()
    if torn and not torn_ok:
        raise InputError(f"{file}:{len(lines) + 1}: the last line is not complete")
    parsed = []
    for number, line in enumerate(lines, 1):
        try:
            value = parse_json(line)
            for name, of in needed.items():
                if not isinstance(value[name], of):
                    raise TypeError(f"{name} is not {_KINDS[of]}")
        except (ValueError, KeyError, TypeError) as error:
            problem = f"{file}:{number}: not a JSON object with a {key!r}"
            reason = f"without {error}" if isinstance(error, KeyError) else error
            raise InputError(f"{problem} ({reason}); remove the line") from error
        parsed.append(value)
    return parsed


def reorder(file: Path, question_ids: Sequence[str]) -> None:
    """Sorts a file by ``question_ids``, keeping each one's last line; InputError for other ids."""
    rows = read(file)
    by_id = {row["question_id"]: row for row in rows}
    if unknown := by_id.keys() - set(question_ids):
        some = ", ".join(sorted(unknown)[:5])
        raise InputError(f"{file} has answers to questions that are not in this run: {some}")
    ordered = [by_id[i] for i in question_ids if i in by_id]
    if ordered != rows:
        write(file, ordered)
