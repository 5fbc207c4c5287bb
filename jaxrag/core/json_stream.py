"""Large JSON files, such as published sets of several gigabytes, read in constant memory."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from jaxrag.core.jsonl_input import InputLine, type_name
from jaxrag.core.packed_files import open_packed
from jaxrag.types import InputError

_CHUNK = 1 << 20  # characters read at a time
_LONGEST_TOKEN = 12  # characters: an escape (backslash, u, 4 digits) or a word such as -Infinity
_BLANK = re.compile(r"[ \t\n\r]*")


def read_elements(path: Path, *, chunk: int = _CHUNK) -> Iterator[InputLine]:
    """The objects of a file that is one JSON array, in order; it may be packed.

    Memory: one element and ``chunk`` characters. InputError, with the element's number, for
    anything else, invalid JSON or UTF-8, text after the array, or a file cut short.
    """
    with open_packed(path) as stream:
        text = _Text(path, stream, chunk)
        text.take("[")
        more = text.peek() != "]"
        while more:
            text.number += 1
            value = text.value()
            if not isinstance(value, dict):
                raise text.error(f"is {type_name(value)}; an object is needed")
            yield InputLine(path, text.number, value, "element")
            more = text.peek() == ","
            if more:
                text.take(",")
        text.take("]")
        if text.peek():
            raise text.error(f"is followed by {text.peek()!r} after the end of the JSON array")


class _Text:
    """A window on a file's text, from what is not parsed yet; ``number`` of the element, from 1."""

    def __init__(self, path: Path, stream: BinaryIO, chunk: int) -> None:
        self._path, self._chunk = path, chunk
        self._stream = io.TextIOWrapper(stream, "utf-8-sig", newline="")
        self._window, self._at, self._ended = "", 0, False
        self.number = 0

    def peek(self) -> str:
        """The next character after white space; "" at the end of the file."""
        while True:
            self._at = _BLANK.match(self._window, self._at).end()  # pyright: ignore
            if self._at < len(self._window) or self._ended:
                return self._window[self._at : self._at + 1]
            self._fill(self._chunk)

    def take(self, character: str) -> None:
        """Reads one character; another is an error."""
        if (found := self.peek()) != character:
            quoted = f"{found!r}" if found else "the end of the file"
            raise self.error(
                f"is followed by {quoted} where {character!r} of a JSON array is needed"
            )
        self._at += 1

    def value(self) -> Any:
        """Reads one JSON value, and of the file as much as that needs."""
        self.peek()
        more = self._chunk
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self._window, self._at)
            except json.JSONDecodeError as error:
                near = error.pos >= len(self._window) - _LONGEST_TOKEN
                begun = near or error.msg.startswith("Unterminated string")
                if self._ended or not begun:
                    raise self.error(f"is not JSON, or is cut short ({error.msg})") from None
            except RecursionError:
                raise self.error("is nested too deeply to be read") from None
            else:
                # a number at the end of the window may have more digits
                if end < len(self._window) or self._ended:
                    self._at = end
                    return value
            self._fill(more)
            more *= 2  # else a long element would be parsed again for every chunk

    def error(self, problem: str) -> InputError:
        """An error that names the file and the element."""
        where = f"element {self.number}" if self.number else "the beginning"
        return InputError(f"{self._path}: {where} {problem}")

    def _fill(self, count: int) -> None:
        """Drops what is parsed and decodes ``count`` more characters."""
        try:
            more = self._stream.read(count)
        except UnicodeDecodeError:
            raise self.error("is followed by text that is not UTF-8: save it as UTF-8") from None
        self._window, self._at, self._ended = self._window[self._at :] + more, 0, not more
