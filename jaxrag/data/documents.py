"""Passages from a folder of documents, and the folder of JSONL files that they are written to.

- A document is a file that ends in .txt, .md or .html, or a row of a .jsonl or .csv file: its
  ``text`` and optionally ``id`` and ``title``. Other files are left out.
- Its title is the row's, the first heading of Markdown, the ``<title>`` of HTML; else the name of
  the file without its ending.
- A passage has as many whole paragraphs, in their order, as fit into a number of words. A longer
  paragraph is cut at ends of sentences, a longer sentence between words. A heading begins one.
- Its id is the file's path below the folder (or the row's id), "#", and the first eight hex digits
  of its text's SHA-256. A row with an id of its own that fits into one passage keeps it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from jaxrag.core import jsonl
from jaxrag.core.bounded import Bounded
from jaxrag.core.durable_files import make_directory
from jaxrag.core.hashing import digest, digest_bytes
from jaxrag.core.json_stream import read_elements
from jaxrag.core.json_text import first_twice
from jaxrag.core.jsonl_input import InputLine, read_input
from jaxrag.core.packed_files import LONGEST
from jaxrag.core.tables import read_table
from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.text.sentences import sentences
from jaxrag.types import InputError, Passage, Question

ENDINGS = (".txt", ".md", ".html", ".htm", ".jsonl", ".csv")
WORDS = 100
"""Most words of a passage."""

_HEADING = re.compile(r"^#{1,6} +(.*)$", re.M)
_UNDERLINED = re.compile(r"^(\w.*)\n={2,}[ \t]*$", re.M)
_CODE = re.compile(  # a fence in a list stands after its mark or blanks, so does its end
    r"^( {1,3}| {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})(?![`~])[^`\n]*\n"
    r".*?^(?(1)[-*+\d.) \t]*| {0,3})\2",
    re.M | re.S,
)
_HTML = Bounded("jaxrag.data.documents", "html_text", seconds=10.0)  # some take quadratic time


class Document(NamedTuple):
    """A document's id, title and text, in which "# " begins a heading; ``own``: the id is given."""

    id: str
    title: str
    text: str
    own: bool = False


def documents(folder: Path, *, leave: Path | None = None) -> Iterator[Document]:
    """The documents in and below a folder, by path, but for those below ``leave``."""
    leave, whole = leave and Path(os.path.realpath(leave)), Path(os.path.realpath(folder))
    if leave in (whole, *whole.parents):
        raise InputError(f"{leave} holds the documents: write the data set to another directory.")
    found = (file for file in sorted(folder.rglob("*")) if file.suffix.lower() in ENDINGS)
    files = [file for file in found if file.is_file() and leave not in file.resolve().parents]
    if not files:
        raise InputError(f"{folder} has no document: no file ends in {', '.join(ENDINGS)}.")
    for file in files:
        name, ending = str(file.relative_to(folder)), file.suffix.lower()
        if ending in (".jsonl", ".csv"):
            for row in _rows(file):
                own, title = "id" in row.fields, row.string("title", optional=True) or file.stem
                place = row.identifier("id") if own else name
                yield Document(place, title, row.string("text"), own)
            continue
        text, title = _read(file), ""
        if ending == ".md":  # a comment in code is no heading, an underlined line is one
            text = re.sub(r"^ {1,3}(?=#{1,6} )", "", text, flags=re.M)
            text = _CODE.sub(lambda code: re.sub(r"\n(?=[#=])", "\n ", code[0]), text)
            text = _UNDERLINED.sub(r"# \1", text)
        if ending.startswith(".htm"):
            try:
                text, title = _HTML(text=text)
            except InputError as error:
                raise InputError(f"{file}: its HTML cannot be read: {error}.") from None
        elif ending == ".md" and (first := _HEADING.search(text)):
            text, title = text[: first.start()] + text[first.end() :], first.group(1)
        else:
            text = _HEADING.sub(r"\1", text)
        yield Document(name, title or file.stem, text)


def passages(document: Document, words: int = WORDS) -> list[Passage]:
    """The passages of a document by the rule above, those with the same text once."""
    chunks: list[list[str]] = [[]]
    for part in re.split(r"\n\s*\n", _HEADING.sub(r"\n\n\g<0>\n\n", document.text)):
        heading = _HEADING.match(part)
        for unit in _units(heading.group(1) if heading else part, words):
            if heading or len(chunks[-1]) + len(unit) > words:
                chunks.append([])
            chunks[-1] += unit
    texts = dict.fromkeys(" ".join(chunk) for chunk in chunks if chunk)
    hashed = [f"{document.id}#{digest_bytes(text.encode())[:8]}" for text in texts]
    ids = [document.id] if document.own and len(texts) == 1 else hashed
    return [Passage(name, document.title, text) for name, text in zip(ids, texts, strict=True)]


def questions(file: Path) -> Iterator[Question]:
    """The questions of a file: .jsonl, .json, .csv, or lines of a question, tab and answers.

    A record has ``question`` and optionally ``id`` and ``answers``, in a .csv one ``answer``. A
    question without an id gets one that depends on its text alone. InputError names the line and
    the field that are damaged.
    """
    if not file.is_file():
        raise InputError(f"there is no file of questions {file}.")
    if file.suffix.lower() in (".jsonl", ".json", ".csv"):
        for row in _rows(file):
            text, one = row.string("question"), row.fields.get("answer")
            one = row.answer("answer") if one else ()
            answers = row.answers("answers") if "answers" in row.fields else one
            name = row.identifier("id") if "id" in row.fields else question_id(text)
            yield Question(name, text, answers)
        return
    for number, line in enumerate(filter(str.strip, _read(file).split("\n"))):
        text, *answers = (cell.strip() for cell in line.split("\t"))
        if not text or (number == 0 and text.lower() in ("question", "id")):  # a line of names
            raise InputError(f"{file}: the line {line[:100]!r} begins with no question.")
        yield Question(question_id(text), text, tuple(filter(None, answers)))


@dataclasses.dataclass(frozen=True)
class QuestionFile:
    """Questions of a ``file`` (`questions`), without gold answers, over a ``source``'s passages."""

    file: str
    source: DataSettings

    def load(self, cache: Path) -> Dataset:
        """The passages of the source, and the questions of the file in place of its own."""
        asked: dict[str, Question] = {}
        for one in questions(Path(self.file)):
            if asked.setdefault(one.id, Question(one.id, one.text, ())).text != one.text:
                raise InputError(f"{self.file} has two questions with the id {one.id!r}.")
        if not asked:
            raise InputError(f"{self.file} has no question.")
        passages = self.source.load(cache).passages
        identity = digest(passages.identity, repr(asked))
        return Dataset(Path(self.file).stem, tuple(asked.values()), passages, {}, identity)


def question_id(text: str) -> str:
    """An id that depends on the question's text alone."""
    return f"q{digest_bytes(text.encode())[:8]}"


def write_folder(
    folder: Path, corpus: Iterable[Passage], asked: Sequence[Question] = ()
) -> tuple[int, int]:
    """Writes corpus.jsonl, and queries.jsonl if there are questions; returns the row counts."""
    kept = dict.fromkeys(corpus)
    if (twice := first_twice(one.id for one in kept)) is not None:
        raise InputError(f"Two passages have the id {twice!r}: give documents other ids.")
    rows = [dataclasses.asdict(one) for one in kept]
    if not rows:
        raise InputError("There is no passage: the documents have no text.")
    make_directory(folder, "a directory for the data set")
    jsonl.write(folder / "corpus.jsonl", rows)
    if asked:
        answers = [{"answers": list(one.answers)} if one.answers else {} for one in asked]
        lines = [{"id": q.id, "question": q.text} | a for q, a in zip(asked, answers, strict=True)]
        jsonl.write(folder / "queries.jsonl", lines)
    return len(rows), len(asked)


def _rows(file: Path) -> Iterator[InputLine]:
    """The records of a .csv, .jsonl or .json file."""
    if file.suffix.lower() == ".csv":
        return read_table(file, separator=",", quoted=True)
    return read_elements(file) if file.suffix.lower() == ".json" else read_input(file)


def _read(file: Path) -> str:
    if (size := file.stat().st_size) > LONGEST:
        raise InputError(f"{file} has {size:,} bytes, of at most {LONGEST:,}: divide it.")
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 ({error.reason}): save it as UTF-8.") from None


def _units(paragraph: str, words: int) -> Iterator[list[str]]:
    """Words of a paragraph that fits, else of its sentences, of which a longer one is cut."""
    whole = paragraph.split()
    for one in sentences(" ".join(whole)) if len(whole) > words else [" ".join(whole)]:
        run = one.split()
        yield from (run[i : i + words] for i in range(0, len(run), words))


def html_text(text: str) -> tuple[str, str]:
    """The text of a page, with blank lines between its blocks, and its title."""
    page = _Page()
    page.feed(text)
    page.close()
    return "".join(page.parts), " ".join("".join(page.titles[:1]).split())


class _Page(HTMLParser):
    """The title and the text of an HTML page, with a blank line between its blocks."""

    _INLINE = re.compile(
        "a|abbr|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|q|s|samp|small|"
        "span|strike|strong|sub|sup|time|tt|u|var|wbr"
    )
    _HIDDEN = frozenset(("script", "style", "template", "noscript", "title"))

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.titles: list[str] = []  # the page's, then those of drawings in it
        self._open = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in self._HIDDEN:
            self.titles += [""] * (tag == "title" and not self._open)
            self._open = tag if self._open in ("", "title") else self._open
        elif not self._INLINE.fullmatch(tag):
            self.parts.append("\n\n# " if re.fullmatch("h[1-6]", tag) else "\n\n")

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag == self._open else self._open
        self.parts += ["\n\n"] * (not self._INLINE.fullmatch(tag))

    def handle_data(self, data: str) -> None:
        if self._open == "title":
            self.titles[-1] += data
        elif not self._open:
            self.parts.append(re.sub(r"\s+", " ", data))
