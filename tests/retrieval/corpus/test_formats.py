"""Corpora in exactly their published forms: odd rows, packings, and what is refused."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from jaxrag.core import packed_files
from jaxrag.core.jsonl_input import read_input
from jaxrag.retrieval.corpus.formats import (
    read_beir,
    read_collection,
    read_dpr,
    read_hotpotqa,
    read_wiki18,
)
from jaxrag.types import InputError, Passage
from tests.retrieval.corpus.published import (
    COLLECTION,
    COLLECTION_PASSAGES,
    DPR,
    DPR_PASSAGES,
    WIKI18,
    WIKI18_PASSAGES,
    abstract,
    hotpotqa,
    tarred,
    zipped,
)


def plain(path: Path, data: bytes, _: str) -> None:
    path.write_bytes(data)


PACKINGS: dict[str, Callable[[Path, bytes, str], None]] = {
    "plain": plain,
    "gz": lambda path, data, _: path.write_bytes(gzip.compress(data)) and None,
    "gz of two members": lambda path, data, _: (
        path.write_bytes(gzip.compress(data[:40]) + gzip.compress(data[40:])) and None
    ),
    "bz2": lambda path, data, _: path.write_bytes(bz2.compress(data)) and None,
    "xz": lambda path, data, _: path.write_bytes(lzma.compress(data)) and None,
    "zip": zipped,
    "tar.gz": tarred,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_psgs_w100(tmp_path, packing):
    PACKINGS[packing](tmp_path / "file", DPR.encode(), "psgs_w100.tsv")
    assert list(read_dpr(tmp_path / "file")) == DPR_PASSAGES


def test_psgs_w100_with_a_byte_order_mark(tmp_path):
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbf" + DPR.encode())
    assert list(read_dpr(tmp_path / "f")) == DPR_PASSAGES


# that writer leaves a lone carriage return unquoted, which no reader of CSV takes
CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=20)


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(st.tuples(CELL, CELL), max_size=5), st.sampled_from(["\n", "\r\n"]))
def test_tables_of_pythons_csv_writer_are_read_back(tmp_path_factory, cells, newline):
    path = tmp_path_factory.mktemp("t") / "psgs_w100.tsv"
    passages = [Passage(str(i), title, f"x{text}") for i, (title, text) in enumerate(cells, 1)]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator=newline)
        writer.writerow(["id", "text", "title"])
        writer.writerows([p.id, p.text, p.title] for p in passages)
    assert list(read_dpr(path)) == passages


@pytest.mark.parametrize("packing", ["plain", "zip"])
def test_wiki18_100w(tmp_path, packing):
    PACKINGS[packing](tmp_path / "file", WIKI18.encode(), "wiki18_100w.jsonl")
    assert list(read_wiki18(tmp_path / "file")) == WIKI18_PASSAGES


@pytest.mark.parametrize("packing", ["plain", "zip"])
def test_collection_of_ms_marco(tmp_path, packing):
    PACKINGS[packing](tmp_path / "file", COLLECTION.encode(), "collection.tsv")
    assert list(read_collection(tmp_path / "file")) == COLLECTION_PASSAGES


@pytest.mark.parametrize("mode", ["w:bz2", "w:gz", "w"])
def test_hotpotqa_abstracts(tmp_path, mode):
    files = {
        "enwiki/AA/wiki_00.bz2": abstract(12, "Anarchism", "Anarchism is.", " It “was”.")
        + abstract(25, "Autism & é", "Autism."),
        "enwiki/AB/wiki_00.bz2": abstract(39, "Albedo") + abstract(40, "Anarchism", "Another."),
    }
    hotpotqa(tmp_path / "file", files, mode)
    assert list(read_hotpotqa(tmp_path / "file")) == [
        Passage("Anarchism", "Anarchism", "Anarchism is. It “was”."),
        Passage("Autism & é", "Autism & é", "Autism."),
        Passage("Albedo", "Albedo", ""),
        Passage("Anarchism#40", "Anarchism", "Another."),
    ]


BEIR = (
    '{"_id": "4983", "title": "Microstructural \\"x\\"", "text": "Alterations", "metadata": {}}\r\n'
    '{"_id": 5836, "text": "no title"}\n'
    '{"_id": "7912", "title": "", "text": ""}\n'
)


@pytest.mark.parametrize("packing", ["plain", "zip"])
def test_beir(tmp_path, packing):
    PACKINGS[packing](tmp_path / "file", BEIR.encode(), "corpus.jsonl")
    assert list(read_beir(tmp_path / "file")) == [
        Passage("4983", 'Microstructural "x"', "Alterations"),
        Passage("5836", "", "no title"),
        Passage("7912", "", ""),
    ]


HEADER = "id\ttext\ttitle\n"
MALFORMED = {
    "no header": (
        read_dpr,
        "1\ta\tb\n2\tc\td\n",
        "line 1: the columns are '1, a, b'; they must be",
    ),
    "blank id": (read_dpr, f"{HEADER} \ta\tb\n", "line 2: field 'id' is blank"),
    "blank text and title": (
        read_dpr,
        f"{HEADER}1\ta\tb\n2\t \t\n",
        "line 3: field 'text' of passage '2' is blank, and there is no title",
    ),
    "no break after the title": (
        read_wiki18,
        '{"id": "0", "contents": "one line"}',
        "line 1: field 'contents' has one line; it must be",
    ),
    "BEIR without text": (
        read_beir,
        '{"_id": "0", "title": "a"}',
        "line 1: field 'text' is missing; the line has _id, title",
    ),
    "BEIR with id": (read_beir, '{"id": "0", "text": "a"}', "line 1: field '_id' is missing"),
    "no tab": (read_collection, "0 a\n", "line 1: 1 columns; 2 are needed"),
    "empty text": (read_collection, "0\t \n", "line 1: field 'text' of passage '0' is blank"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_rows_are_named_by_file_line_and_field(tmp_path, case):
    read, content, says = MALFORMED[case]
    path = tmp_path / "published"
    path.write_text(content)
    refused(read(path), path, says)


def refused(passages: Iterator[Passage], path: Path, says: str) -> None:
    with pytest.raises(InputError) as caught:
        list(passages)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert says in message


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz", "zip", "tar.gz"])
def test_a_packed_file_that_is_cut_short_is_one_clear_error(tmp_path, packing):
    path = tmp_path / "published"
    long = HEADER + "".join(f"{i}\ttext {i * 7919 % 10_007}\tt\n" for i in range(20_000))
    PACKINGS[packing](path, long.encode(), "psgs_w100.tsv")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    refused(read_dpr(path), path, "" if packing == "zip" else "cut short or damaged")


HOTPOTQA = {
    "no title": (b'{"id": "1", "text": ["a"]}\n', "line 1: field 'title' is missing"),
    "text a string": (
        abstract(1, "A", "a") + b'{"id": "2", "title": "B", "text": "b"}\n',
        "line 2: field 'text' is not a list of sentences",
    ),
    "a sentence null": (
        b'{"id": "2", "title": "B", "text": ["b", null]}\n',
        "line 1: field 'text' is not a list of sentences",
    ),
    "half a character": (
        b'{"id": "2", "title": "B", "text": ["\\ud800"]}\n',
        "line 1: field 'text' holds half of a surrogate pair",
    ),
    "not JSON": (b"{\n", "line 1: not JSON"),
}


@pytest.mark.parametrize("case", HOTPOTQA)
def test_malformed_abstracts_are_named_by_their_file_in_the_archive(tmp_path, case):
    lines, says = HOTPOTQA[case]
    hotpotqa(tmp_path / "f", {"AA/wiki_00.bz2": abstract(9, "Z", "z"), "AA/wiki_01.bz2": lines})
    refused(read_hotpotqa(tmp_path / "f"), tmp_path / "f" / "AA" / "wiki_01.bz2", says)


@pytest.mark.parametrize("share", [0.3, 0.95])
def test_an_archive_of_abstracts_that_is_cut_short(tmp_path, share):
    lines = b"".join(abstract(i, f"T{i}", os.urandom(50).hex()) for i in range(500))
    hotpotqa(tmp_path / "f", {f"AA/wiki_{i:02}.bz2": lines for i in range(5)}, "w")
    data = (tmp_path / "f").read_bytes()
    (tmp_path / "f").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(InputError, match=r"cut short or damaged"):
        list(read_hotpotqa(tmp_path / "f"))


def test_no_file_and_an_archive_without_the_file(tmp_path):
    refused(read_dpr(tmp_path / "none"), tmp_path / "none", "no such file")
    zipped(tmp_path / "z.zip", b"x", "wiki18_100w.jsonl")
    refused(read_dpr(tmp_path / "z.zip"), tmp_path / "z.zip", "this archive has no file psgs_w100")


def test_a_field_given_twice_is_refused(tmp_path):
    (tmp_path / "f").write_text('{"id": "1", "answers": ["a"], "answers": ["b"]}\n')
    with pytest.raises(InputError, match=r"line 1: .*names 'answers' twice"):
        list(read_input(tmp_path / "f"))


def test_a_line_without_end_is_not_read_whole(tmp_path, monkeypatch):
    """A packed file of some kB can hold a line of gigabytes."""
    monkeypatch.setattr(packed_files, "LONGEST", 1 << 20)
    with gzip.open(tmp_path / "f", "wb") as stream:
        stream.write(b'{"id": "1"}\n{"id": "' + b"x" * (1 << 25))
    lines = read_input(tmp_path / "f")
    assert next(lines).fields == {"id": "1"}
    with pytest.raises(InputError, match="line 2: it has over 1 MiB"):
        next(lines)
