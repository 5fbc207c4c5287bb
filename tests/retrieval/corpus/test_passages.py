"""Passages on disk: row access, identity, and what happens to builds and files that break."""

from __future__ import annotations

import json
import subprocess
import sys

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from jaxrag.retrieval.corpus import rows as row_files
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.types import InputError, Passage

RECORDS = "passages-corpus.array_record-00000"


def corpus(count: int) -> list[Passage]:
    return [
        Passage(f"p{i}", f"Title {i}", f"Text {i} é, 中文, \N{DROMEDARY CAMEL}")
        for i in range(count)
    ]


def test_passages_are_read_back_in_order(tmp_path):
    written = corpus(50)
    passages = write_passages(tmp_path / "corpus", written)
    assert len(passages) == 50
    assert list(passages) == written
    assert passages[7] == written[7]
    assert passages.get(np.array([49, 0, 0, 12])) == [written[i] for i in (49, 0, 0, 12)]
    assert passages.get([]) == []


@pytest.mark.parametrize("row", [-1, 3])
def test_a_row_out_of_range_is_an_index_error(tmp_path, row):
    passages = write_passages(tmp_path / "corpus", corpus(3))
    with pytest.raises(IndexError, match=f"row {row} of 3 passages"):
        passages.get([0, row])


def test_rows_of_ids(tmp_path):
    passages = write_passages(tmp_path / "corpus", corpus(300))
    assert passages.rows_of([f"p{i}" for i in range(300)]) == {f"p{i}": i for i in range(300)}
    assert passages.rows_of(["p9", "lost", "p2", "p9"]) == {"p9": 9, "p2": 2}


@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=8)
)
def test_any_text_is_read_back_unchanged(tmp_path_factory, texts):
    written = [Passage(str(i), text[::-1], text) for i, text in enumerate(texts)]
    assert list(write_passages(tmp_path_factory.mktemp("p") / "c", written)) == written


def test_identity_is_the_content(tmp_path):
    first = write_passages(tmp_path / "a", corpus(5)).identity
    assert write_passages(tmp_path / "b", corpus(5)).identity == first
    assert write_passages(tmp_path / "c", corpus(5)[::-1]).identity != first
    moved = [*corpus(4), Passage("p4", "", "Title 4" + corpus(5)[4].text)]
    assert write_passages(tmp_path / "d", moved).identity != first
    assert Passages.open(tmp_path / "a").identity == first


def test_reading_needs_no_tensorflow():
    code = "import sys, jaxrag.retrieval.corpus.passages; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("passages", "says"),
    [
        ([], "no passages to write: 'corpus' is empty"),
        (
            [Passage("a", "", "1"), Passage("b", "", "2"), Passage("a", "", "3")],
            r"field 'id': 'a' is the id of rows 1 and 3",
        ),
        ([Passage("a", "", "fine"), Passage("b", "", "half \ud800")], "row 2 .*not valid Unicode"),
    ],
)
def test_invalid_passages_are_refused_and_leave_no_files(tmp_path, passages, says):
    with pytest.raises(InputError, match=says):
        write_passages(tmp_path / "corpus", passages)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "is unfinished .*build it first"),
        ({"kind": "questions"}, "holds questions in format 1, wanted passages"),
        ({"format": 99}, "in format 99, wanted passages in format 1"),
    ],
)
def test_a_damaged_directory_is_refused(tmp_path, change, says):
    write_passages(tmp_path / "corpus", corpus(20))
    manifest = tmp_path / "corpus" / row_files.MANIFEST
    document = json.loads(manifest.read_text())
    manifest.unlink()
    if change:
        manifest.write_text(json.dumps(document | change))
    with pytest.raises(InputError, match=says):
        Passages.open(tmp_path / "corpus")


def test_a_flipped_bit_is_found_when_its_row_is_read(tmp_path):
    passages = write_passages(tmp_path / "corpus", corpus(200))
    records = tmp_path / "corpus" / RECORDS
    content = bytearray(records.read_bytes())
    content[2000] ^= 0xFF
    records.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read rows of 'corpus'.*damaged"):
        list(Passages.open(passages.directory))


def test_two_builders_of_different_corpora_are_refused(tmp_path):
    directory = tmp_path / "corpus"

    def passages():
        yield from corpus(5)
        other = write_passages(tmp_path / "elsewhere" / "corpus", corpus(6)).directory
        other.rename(directory)

    with pytest.raises(InputError, match="another process wrote other passages here"):
        write_passages(directory, passages())
    assert len(Passages.open(directory)) == 6


def test_finds_passages_by_their_ids_in_one_batch(tmp_path):
    written = corpus(300)
    passages = write_passages(tmp_path / "corpus", written)
    assert passages.find(["p299", "p0", "p299"]) == [written[299], written[0], written[299]]
    assert passages.find([]) == []
    with pytest.raises(KeyError, match="p300"):
        passages.find(["p1", "p300"])
