"""Files of one JSON object a line that survive ``kill -9`` and a full disk."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxrag.retrieval.manifest import enough_space
from jaxrag.types import InputError


def encode(name: str, value: Any) -> str:
    """A value as one line of strict JSON.

    Raises:
      ValueError: it holds what JSON does not have, such as NaN, infinity or an array.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: not plain JSON ({error})") from error


def append(file: Path, lines: Sequence[str]) -> None:
    """Appends whole lines durably; on failure the file is as it was before.

    Raises:
      InputError: the disk is full.
      OSError: it fails otherwise.
    """
    if not lines:
        return
    with enough_space(file), file.open("ab", buffering=0) as out:
        before = out.seek(0, os.SEEK_END)
        data = memoryview(_bytes("".join(lines)))
        try:
            while data:
                data = data[out.write(data) :]
            os.fsync(out.fileno())
        except OSError as error:
            out.truncate(before)
            message = f"{error.strerror}; nothing recorded before is lost, run the command again"
            raise OSError(error.errno, message, str(file)) from error


def replace(file: Path, text: str) -> None:
    """Writes a file whole or not at all.

    Raises:
      InputError: the disk is full.
    """
    part = file.with_name(file.name + ".part")
    with enough_space(file):
        try:
            with part.open("wb") as out:
                out.write(_bytes(text))
                out.flush()
                os.fsync(out.fileno())
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)


def _bytes(text: str) -> bytes:
    # Half a surrogate pair has no UTF-8 form; its escape is also how JSON spells it.
    return text.encode("utf-8", errors="backslashreplace")


def cut_torn_line(file: Path) -> None:
    """Cuts what follows the last newline: the start of a line whose writing was interrupted."""
    if file.is_file():
        data = file.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(file, whole)


def read(file: Path, *, key: str = "question_id", torn_ok: bool = False) -> list[dict[str, Any]]:
    """Parsed lines of a JSONL file; none if it does not exist.

    Raises:
      InputError: a line is not a JSON object whose ``key`` is text, or the last one is torn and
        that is not ``torn_ok``; names file and line.
    """
    return [value for _, value in read_with_text(file, key=key, torn_ok=torn_ok)]


def read_with_text(
    file: Path, *, key: str = "question_id", torn_ok: bool = False
) -> list[tuple[str, dict[str, Any]]]:
    """As ``read``, each line also as it stands in the file."""
    if not file.is_file():
        return []
    lines = file.read_bytes().split(b"\n")
    torn = lines.pop()
    if torn and not torn_ok:
        raise InputError(f"{file}:{len(lines) + 1}: the last line is not complete")
    parsed = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
            if not isinstance(value[key], str):
                raise TypeError(f"{key} is not text")
        except (ValueError, KeyError, TypeError) as error:
            problem = f"{file}:{number}: not a JSON object with a {key!r}"
            raise InputError(f"{problem} ({error}); remove the line") from error
        parsed.append((line.decode(), value))
    return parsed


def reorder(file: Path, question_ids: Sequence[str]) -> None:
    """Rewrites a file with the newest line of each question, as it stands, in the given order.

    Raises:
      InputError: the file answers a question that is not among them.
    """
    lines = read_with_text(file)
    by_id = {value["question_id"]: line for line, value in lines}
    strangers = by_id.keys() - set(question_ids)
    if strangers:
        some = ", ".join(sorted(strangers)[:5])
        raise InputError(f"{file} answers questions that were not asked: {some}")
    ordered = [by_id[i] for i in question_ids if i in by_id]
    if ordered != [line for line, _ in lines]:
        replace(file, "".join(f"{line}\n" for line in ordered))
