"""Rows of corpora in exactly the forms in which they are published, with odd ones."""

from __future__ import annotations

import bz2
import io
import json
import tarfile
import zipfile
from pathlib import Path

from jaxrag.types import Passage

# As in psgs_w100.tsv: texts are quoted, quotes in them doubled, titles only where need be.
DPR = (
    "id\ttext\ttitle\n"
    '1\t"Aaron Aaron ( or ; ""Ahärôn"") is a prophet, high priest."\tAaron\n'
    '2\t"God at Sinai granted\tAaron\nthe priesthood."\t"""Heroes"" (song)"\n'
    "3\tunquoted, 'apostrophes' \\n 中文 \u2028 \x85 \N{DROMEDARY CAMEL}\tA\r\n"
    '4\t"no title"\t\n'
    '5\t""\tonly a title\n'
)
DPR_PASSAGES = [
    Passage("1", "Aaron", 'Aaron Aaron ( or ; "Ahärôn") is a prophet, high priest.'),
    Passage("2", '"Heroes" (song)', "God at Sinai granted\tAaron\nthe priesthood."),
    Passage("3", "A", "unquoted, 'apostrophes' \\n 中文 \u2028 \x85 \N{DROMEDARY CAMEL}"),
    Passage("4", "", "no title"),
    Passage("5", "only a title", ""),
]


WIKI18 = (
    r'{"id": "0", "contents": "\"Aaron\"\nAaron Aaron ( or ; \"Ahärôn\") is a prophet."}'
    "\n"
    r'{"id": "1", "contents": "\"\"Heroes\" (song)\"\nsecond\nthird \ud83d\ude00"}'
    "\n"
    r'{"id": 2, "contents": "\"\"\nno title"}'
)
WIKI18_PASSAGES = [
    Passage("0", "Aaron", 'Aaron Aaron ( or ; "Ahärôn") is a prophet.'),
    Passage("1", '"Heroes" (song)', "second\nthird \U0001f600"),
    Passage("2", "", "no title"),
]


# No header and no quoting: quotes are characters like others.
COLLECTION = '0\tThe "presence" of communication.\n1\t"unbalanced \x85 é\r\n2\t  spaces  \n'


COLLECTION_PASSAGES = [
    Passage("0", "", 'The "presence" of communication.'),
    Passage("1", "", '"unbalanced \x85 é'),
    Passage("2", "", "  spaces  "),
]


def zipped(path: Path, data: bytes, name: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"__MACOSX/{name}", b"junk")
        archive.writestr(f"folder/{name}", data)


def tarred(path: Path, data: bytes, name: str) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for member, content in ((f"./other-{name}", b"junk"), (f"./{name}", data)):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def hotpotqa(path: Path, files: dict[str, bytes], mode: str = "w:bz2") -> None:
    with tarfile.open(path, mode) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType]
        folder = tarfile.TarInfo("enwiki/AA")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, lines in files.items():
            data = bz2.compress(lines)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def abstract(number: int, title: str, *sentences: str) -> bytes:
    line = {
        "id": str(number),
        "url": f"https://en.wikipedia.org/wiki?curid={number}",
        "title": title,
        "text": sentences,
        "charoffset": [[[0, 9]]],
        "text_with_links": ['<a href="x">'],
        "charoffset_with_links": [[[0, 12]]],
    }
    return json.dumps(line).encode() + b"\n"
