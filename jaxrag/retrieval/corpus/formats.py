"""Passages streamed from corpora in the form in which they are published.

Every file may be plain, packed with gzip, bzip2 or xz, or in a zip or tar archive under its
published name. Errors (InputError) name the file, the line (counted from 1) and the field.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jaxrag.core.hashing import hash64
from jaxrag.core.jsonl_input import InputLine, parse_lines
from jaxrag.core.packed_files import open_published, read_members
from jaxrag.core.tables import read_table
from jaxrag.types import InputError, Passage

_HEADER = ("id", "text", "title")
_DPR, _WIKI18, _COLLECTION = "psgs_w100.tsv", "wiki18_100w.jsonl", "collection.tsv"


def read_dpr(path: Path) -> Iterator[Passage]:
    """DPR's table, psgs_w100.tsv: columns id, text, title, a header, and quoting as in CSV.

    A quoted cell may hold tabs and line breaks; a quote in it is doubled.
    """
    for line in read_table(path, quoted=True, member=_DPR):
        cells = line.fields
        if tuple(cells) != _HEADER:
            raise InputError(
                f"{path}, line 1: the columns are {', '.join(cells)[:80]!r}; they must be id, text,"
                " title, in a header line"
            )
        yield _checked(line, Passage(cells["id"], cells["title"], cells["text"]))


def read_wiki18(path: Path) -> Iterator[Passage]:
    """FlashRAG's wiki18_100w.jsonl: ``id`` and ``contents``, which is '"title"', newline, text."""
    for line in _json_lines(path, _WIKI18):
        title, newline, text = line.string("contents").partition("\n")
        if not newline:
            raise line.error("contents", 'has one line; it must be "title", a line break, the text')
        if len(title) > 1 and title[0] == title[-1] == '"':
            title = title[1:-1]
        yield _checked(line, Passage(_id(line, "id"), title, text))


def read_hotpotqa(path: Path) -> Iterator[Passage]:
    """HotpotQA's abstracts: a tar archive (bzip2) of bzip2 files of JSON lines.

    A line has ``id``, ``title`` and ``text``, a list of sentences that begin with their spaces. The
    passage's id is its title, which supporting facts name; a title that an earlier passage has too
    is followed by "#" and the published id.
    """
    seen: set[int] = set()
    for where, content in read_members(path):
        for line in parse_lines(where, content):
            title = line.string("title")
            again = hash64(title) in seen
            seen.add(hash64(title))
            name = f"{title}#{_id(line, 'id')}" if again else title
            yield Passage(name, title, _joined(line))


def read_beir(path: Path) -> Iterator[Passage]:
    """A corpus.jsonl of BEIR: ``_id``, ``text`` and optionally ``title``; both may be empty."""
    for line in _json_lines(path, "corpus.jsonl"):
        text = line.string("text", optional=True)
        if "text" not in line.fields:
            raise line.error("text", f"is missing; the line has {', '.join(line.fields)}")
        yield Passage(_id(line, "_id"), line.string("title", optional=True), text)


def read_collection(path: Path) -> Iterator[Passage]:
    """MS MARCO's collection.tsv: id, tab, text; no header and no quoting."""
    for line in read_table(path, columns=("id", "text"), member=_COLLECTION):
        yield _checked(line, Passage(line.fields["id"], "", line.fields["text"]))


def _json_lines(path: Path, name: str) -> Iterator[InputLine]:
    with open_published(path, name) as stream:
        yield from parse_lines(path, stream)


def _checked(line: InputLine, passage: Passage) -> Passage:
    if not passage.id.strip():
        raise line.error("id", "is blank")
    if not passage.text.strip() and not passage.title.strip():
        raise line.error("text", f"of passage {passage.id!r} is blank, and there is no title")
    return passage


def _id(line: InputLine, field: str) -> str:
    """A passage's id; some mirrors write it as a number."""
    value = line.fields.get(field)
    return str(value) if type(value) is int else line.string(field)


def _joined(line: InputLine) -> str:
    """The text of a line whose ``text`` is a list of sentences."""
    sentences = line.fields.get("text")
    if not isinstance(sentences, list) or not all(isinstance(part, str) for part in sentences):
        raise line.error("text", "is not a list of sentences")
    text = "".join(sentences)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise line.error("text", "holds half of a surrogate pair, not text") from None
    return text
