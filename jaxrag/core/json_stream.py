"""Large JSON files, read element by element in constant memory.

Published sets are often one JSON array of up to several gigabytes. `read_elements` holds one
element and about one chunk of the file at a time.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from jaxrag.core.jsonl_input import InputLine, type_name
from jaxrag.core.packed_files import open_packed
from jaxrag.types import InputError

_CHUNK = 1 << 20  # bytes read at a time
_LONGEST_TOKEN = 12  # characters: an escape (backslash, u, 4 digits) or a word such as -Infinity
_SPACE = " \t\n\r"


def read_elements(path: Path, *, chunk: int = _CHUNK) -> Iterator[InputLine]:
    """The objects of a file that is one JSON array, in order; it may be packed.

    Memory: one element and ``chunk`` bytes.

    Args:
      path: the file.
      chunk: bytes read at a time.

    Raises:
      InputError: not an array, an element that is not an object, invalid JSON or UTF-8, text after
        the array, or a file cut short; with the element's number and the byte.
    """
    with open_packed(path) as stream:
        text = _Text(path, stream, chunk)
        text.expect("[", "before the first element; the file must be one JSON array")
        number = 1
        while number > 1 or text.peek() != "]":
            value = text.value(f"element {number}")
            if not isinstance(value, dict):
                raise text.error(f"element {number} is {type_name(value)}; an object is needed")
            yield InputLine(path, number, value, "element")
            if text.peek() == "]":
                break
            text.expect(",", f"or ']' after element {number}")
            number += 1
        text.expect("]", "after the last element")
        if text.peek():
            raise text.error(f"there is {text.peek()!r} after the end of the JSON array")


class _Text:
    """A window on a file's text: what is decoded but not yet read by the parser."""

    def __init__(self, path: Path, stream: BinaryIO, chunk: int) -> None:
        self._path, self._stream, self._chunk = path, stream, chunk
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._parser = json.JSONDecoder()
        self._window, self._at = "", 0
        self._before = 0  # bytes of the text before the window
        self._ended = False
        self._fill(chunk)
        if self._window.startswith("\ufeff"):
            self._at = 1

    def peek(self) -> str:
        """The next character after white space; "" at the end of the file."""
        while True:
            while self._at < len(self._window):
                if self._window[self._at] not in _SPACE:
                    return self._window[self._at]
                self._at += 1
            if self._ended:
                return ""
            self._fill(self._chunk)

    def expect(self, character: str, where: str) -> None:
        """Reads one character; another is an error that says where it is needed."""
        read = self.peek()
        if read != character:
            problem = f"there is {read!r}" if read else "the file is cut short"
            raise self.error(f"{problem}; {character!r} is needed {where}")
        self._at += 1

    def value(self, name: str) -> Any:
        """Reads one JSON value, and of the file as much as that needs."""
        self.peek()
        more = self._chunk
        while True:
            try:
                value, end = self._parser.raw_decode(self._window, self._at)
            except json.JSONDecodeError as error:
                if self._ended or not self._may_go_on(error):
                    problem = "the file is cut short in" if self._cut(error) else "not JSON in"
                    shift = max(0, error.pos - self._at)
                    raise self.error(f"{problem} {name} ({error.msg})", shift=shift) from None
            except RecursionError:
                raise self.error(f"{name} is nested too deeply to be read") from None
            else:
                # a number at the end of the window may have more digits
                if end < len(self._window) or self._ended:
                    self._at = end
                    return value
            self._fill(more)
            more *= 2  # else a long element would be parsed again for every chunk

    def error(self, problem: str, *, shift: int = 0) -> InputError:
        """An error with the byte that is ``shift`` characters after the next one, from 0."""
        read = self._window[: self._at + shift].encode("utf-8", "surrogatepass")
        return InputError(f"{self._path}, byte {self._before + len(read)}: {problem}")

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        """Whether text after the window could make the value valid."""
        near = error.pos >= len(self._window) - _LONGEST_TOKEN
        return near or error.msg.startswith("Unterminated string")

    def _cut(self, error: json.JSONDecodeError) -> bool:
        """Whether the file ends within a value that is valid so far."""
        rest = self._window[error.pos :].strip(_SPACE)
        begun = any(word.startswith(rest) for word in ("true", "false", "null"))
        return begun or error.msg.startswith("Unterminated string")

    def _fill(self, count: int) -> None:
        """Drops what is read and decodes up to ``count`` more bytes."""
        self._before += len(self._window[: self._at].encode("utf-8", "surrogatepass"))
        self._window, self._at = self._window[self._at :], 0
        data = self._stream.read(count)
        self._ended = not data
        try:
            self._window += self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            at = self._stream.tell() - len(data) + max(0, error.start)
            raise InputError(
                f"{self._path}: not UTF-8 near byte {at} ({error.reason}); get the file again"
            ) from None
