"""Passages streamed from corpora in the form in which they are published.

Every file may be plain or packed with gzip, bzip2 or xz. Errors name the file, the line (counted
from 1) and the field. A passage may lack its title, or its text if it has a title.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from pathlib import Path

from jaxrag.core.jsonl_input import InputLine, parse_lines, read_input
from jaxrag.core.packed_files import count_lines, open_packed, read_members
from jaxrag.types import InputError, Passage

_HEADER = ["id", "text", "title"]


def read_dpr(path: Path) -> Iterator[Passage]:
    """DPR's table, psgs_w100.tsv: columns id, text, title, a header, and quoting as in CSV.

    A quoted cell may hold tabs and line breaks; a quote in it is doubled.

    Raises:
      InputError: another header, a row without three cells, an unmatched quote, or no id.
    """
    for number, (name, text, title) in _dpr_rows(path):
        yield _checked(path, number, Passage(name, title, text))


def read_wiki18(path: Path) -> Iterator[Passage]:
    """FlashRAG's wiki18_100w.jsonl: ``id`` and ``contents``, which is '"title"', newline, text.

    Raises:
      InputError: a line is not such an object.
    """
    for line in read_input(path):
        title, newline, text = line.string("contents").partition("\n")
        if not newline:
            raise line.error("contents", 'has one line; it must be "title", a line break, the text')
        if len(title) > 1 and title[0] == title[-1] == '"':
            title = title[1:-1]
        yield _checked(path, line.number, Passage(_id(line, "id"), title, text))


def read_hotpotqa(path: Path) -> Iterator[Passage]:
    """HotpotQA's abstracts: a tar archive (bzip2) of bzip2 files of JSON lines.

    A line has ``id``, ``title`` and ``text``, a list of sentences that begin with their spaces. The
    passage's id is its title, which supporting facts name; a title that an earlier passage has too
    is followed by "#" and the published id.

    Raises:
      InputError: not such an archive, or a line is not such an object.
    """
    seen: set[int] = set()
    for where, content in read_members(path):
        for line in parse_lines(where, content):
            title = line.string("title")
            yield Passage(_unseen(seen, title, _id(line, "id")), title, _joined(line))


def read_beir(path: Path) -> Iterator[Passage]:
    """A corpus.jsonl of BEIR: ``_id``, ``text`` and optionally ``title``; both may be empty.

    Raises:
      InputError: a line is not such an object.
    """
    for line in read_input(path):
        text = line.string("text", optional=True)
        if "text" not in line.fields:
            raise line.error("text", f"is missing; the line has {', '.join(line.fields)}")
        yield Passage(_id(line, "_id"), line.string("title", optional=True), text)


def read_collection(path: Path) -> Iterator[Passage]:
    """MS MARCO's collection.tsv: id, tab, text; no header and no quoting.

    Raises:
      InputError: a line has not exactly one tab, no id or no text, or is not UTF-8.
    """
    for number, line in enumerate(_decoded(path), 1):
        cells = line.removesuffix("\n").removesuffix("\r").split("\t")
        if len(cells) != 2:
            raise _error(path, number, f"{len(cells)} cells between tabs; wanted id and text")
        yield _checked(path, number, Passage(cells[0], "", cells[1]))


def _dpr_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of the rows below the header, each with the number of its first line."""
    reader = csv.reader(_decoded(path), delimiter="\t", strict=True)
    header = _next_row(path, reader)
    if header != _HEADER:
        found = "nothing" if header is None else "\t".join(header)[:80]
        raise _error(path, 1, f"the header is {found!r}; it must be id, text, title with tabs")
    first = reader.line_num + 1
    try:
        for row in reader:
            if len(row) != len(_HEADER):
                raise _error(path, first, f"{len(row)} cells between tabs; wanted id, text, title")
            yield first, row
            first = reader.line_num + 1
    except csv.Error as error:
        raise _quoting(path, first, error) from None


def _next_row(path: Path, reader: Iterator[list[str]]) -> list[str] | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        raise _quoting(path, 1, error) from None


def _quoting(path: Path, line: int, error: csv.Error) -> InputError:
    return _error(path, line, f"cells are not quoted as in CSV ({error}); a quote is doubled")


def _decoded(path: Path) -> Iterator[str]:
    """The lines of a file; only "\\n" ends a line."""
    with open_packed(path) as stream:
        for number, line in count_lines(path, stream):
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise _error(path, number, f"not UTF-8 ({error.reason})") from None


def _checked(path: Path, line: int, passage: Passage) -> Passage:
    if not passage.id.strip():
        raise _error(path, line, "field 'id' is blank")
    if not passage.text.strip() and not passage.title.strip():
        raise _error(
            path, line, f"field 'text' of passage {passage.id!r} is blank, and so is title"
        )
    return passage


def _id(line: InputLine, field: str) -> str:
    """A passage's id; some mirrors write it as a number."""
    value = line.fields.get(field)
    return str(value) if type(value) is int else line.string(field)


def _joined(line: InputLine) -> str:
    """The text of a line whose ``text`` is a list of sentences."""
    sentences = line.fields.get("text")
    if not isinstance(sentences, list) or not all(isinstance(one, str) for one in sentences):
        raise line.error("text", "is not a list of sentences")
    text = "".join(sentences)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise line.error("text", "holds half of a surrogate pair, not text") from None
    return text


def _unseen(seen: set[int], title: str, published: str) -> str:
    """The title, or title#id if its hash is among those seen; adds it to them."""
    key = int.from_bytes(hashlib.blake2b(title.encode(), digest_size=8).digest(), "little")
    if key in seen:
        return f"{title}#{published}"
    seen.add(key)
    return title


def _error(path: Path, line: int, problem: str) -> InputError:
    return InputError(f"{path}, line {line}: {problem}")
