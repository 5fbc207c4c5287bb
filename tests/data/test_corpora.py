"""Published corpora: built from their files, checked, opened by name, and parts of them."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from jaxrag.data import corpora
from jaxrag.data.corpora import (
    CORPORA,
    Subset,
    build_arguments,
    build_corpus,
    corpus_directory,
    named_part,
    open_corpus,
)
from jaxrag.data.downloads import published_name
from jaxrag.retrieval.corpus import rows as row_files
from jaxrag.types import InputError, Passage
from tests.retrieval.corpus import published

HOTPOTQA = "enwiki-20171001-pages-meta-current-withlinks-abstracts.tar.bz2"


def sized(monkeypatch: pytest.MonkeyPatch, name: str, passages: int) -> None:
    """Makes the published number of passages another one."""
    small = dataclasses.replace(CORPORA[name], passages=passages)
    monkeypatch.setattr(corpora, "CORPORA", {**CORPORA, name: small})


@pytest.fixture
def table(tmp_path, monkeypatch):
    """psgs_w100 with 20 passages, p1 to p20."""
    lines = "".join(f"p{i}\ttext {i}\ttitle {i}\n" for i in range(1, 21))
    path = tmp_path / "psgs_w100.tsv.gz"
    path.write_bytes(gzip.compress(f"id\ttext\ttitle\n{lines}".encode()))
    sized(monkeypatch, "psgs_w100", 20)
    return path


def ids(passages) -> list[str]:
    return [passage.id for passage in passages]


@pytest.mark.parametrize(
    ("name", "file", "found"),
    [
        ("psgs_w100", "psgs_w100.tsv.gz", published.DPR_PASSAGES),
        ("wiki18_100w", "wiki18_100w.jsonl", published.WIKI18_PASSAGES),
        ("msmarco", "collection.tsv", published.COLLECTION_PASSAGES),
        ("hotpotqa_abstracts", HOTPOTQA, [Passage("Anarchism", "Anarchism", "A. B.")]),
    ],
)
def test_every_corpus_is_built_from_its_published_file(tmp_path, monkeypatch, name, file, found):
    assert published_name(CORPORA[name].file) == file
    path = tmp_path / "download"
    if name == "psgs_w100":
        path.write_bytes(gzip.compress(published.DPR.encode()))
    elif name == "wiki18_100w":
        published.zipped(path, published.WIKI18.encode(), "wiki18_100w.jsonl")
    elif name == "msmarco":
        published.tarred(path, published.COLLECTION.encode(), "collection.tsv")
    else:
        published.hotpotqa(
            path, {"AA/wiki_00.bz2": published.abstract(12, "Anarchism", "A.", " B.")}
        )
        found = [Passage("Anarchism", "Anarchism", "A. B.")]
    sized(monkeypatch, name, len(found))
    built = build_corpus(name, tmp_path, path)
    assert list(built) == found
    assert built.directory == tmp_path / "corpora" / name
    about = row_files.read_manifest(built.directory, kind="passages").about
    assert (about["corpus"], about["part"]) == (name, "all")
    assert about["files"] == {file: path.stat().st_size}


def test_a_built_corpus_is_opened_without_its_files(table, tmp_path):
    built = build_corpus("psgs_w100", tmp_path, table)
    again = build_corpus("psgs_w100", tmp_path)
    assert again.identity == built.identity == open_corpus("psgs_w100", tmp_path).identity


def test_another_size_stops_with_both_numbers(table, tmp_path, monkeypatch):
    sized(monkeypatch, "psgs_w100", 21)
    with pytest.raises(InputError, match=r"has 20 passages, the published corpus 21;.*any_size"):
        build_corpus("psgs_w100", tmp_path, table)
    assert not corpus_directory("psgs_w100", tmp_path).exists()
    assert len(build_corpus("psgs_w100", tmp_path, table, any_size=True)) == 20
    # what was built so is refused without --any_size, and kept with it
    with pytest.raises(InputError, match=r"has 20 passages, the published corpus 21: .*any_size"):
        build_corpus("psgs_w100", tmp_path)
    assert len(build_corpus("psgs_w100", tmp_path, any_size=True)) == 20


def test_files_that_were_written_before_the_size_was_found_wrong_are_kept(
    table, tmp_path, monkeypatch
):
    monkeypatch.setattr(row_files, "_ROWS_PER_FILE", 8)
    sized(monkeypatch, "psgs_w100", 21)
    with pytest.raises(InputError, match="21"):
        build_corpus("psgs_w100", tmp_path, table)
    partial = corpus_directory("psgs_w100", tmp_path).with_name(".psgs_w100.partial")
    inode = (partial / "passages-corpus.array_record-00000").stat().st_ino
    built = build_corpus("psgs_w100", tmp_path, table, any_size=True)
    assert (built.directory / "passages-corpus.array_record-00000").stat().st_ino == inode
    assert ids(built) == [f"p{i}" for i in range(1, 21)]


def test_a_corpus_that_is_not_built_is_named_with_the_command(table, tmp_path):
    build_corpus("psgs_w100", tmp_path, table, subset=Subset(first=3))
    with pytest.raises(InputError) as caught:
        open_corpus("msmarco", tmp_path)
    assert f"`jaxrag data msmarco --workdir={tmp_path}`" in str(caught.value)
    assert str(caught.value).endswith("Built there: psgs_w100-first3")
    with pytest.raises(InputError, match=r"jaxrag data nq --workdir"):
        open_corpus("nq-contexts", tmp_path)


def test_the_first_passages(table, tmp_path):
    built = build_corpus("psgs_w100", tmp_path, table, subset=Subset(first=3))
    assert ids(built) == ["p1", "p2", "p3"]
    assert ids(open_corpus("psgs_w100-first3", tmp_path)) == ["p1", "p2", "p3"]
    with pytest.raises(InputError, match="has 20 passages, fewer than first=21"):
        build_corpus("psgs_w100", tmp_path, table, subset=Subset(first=21))


def test_named_passages_and_others(table, tmp_path, caplog):
    subset = Subset(ids=frozenset({"p17", "p2", "px"}), ids_of="nq", others=5)
    built = build_corpus("psgs_w100", tmp_path, table, subset=subset)
    found = ids(built)
    assert built.directory.name == "psgs_w100-nq+5"
    assert len(found) == 7
    assert {"p2", "p17"} <= set(found)
    assert found == sorted(found, key=lambda one: int(one[1:]))
    assert "1 passages named by nq are not in the corpus" in caplog.text
    other = build_corpus("psgs_w100", tmp_path, table, subset=dataclasses.replace(subset, seed=1))
    assert set(ids(other)) != set(found)
    assert other.identity != built.identity


def test_ids_of_another_corpus_are_refused(table, tmp_path):
    subset = Subset(ids=frozenset({"x2", "x1"}), ids_of="nq")
    with pytest.raises(InputError, match="none of the 2 passages named by nq, such as 'x1'"):
        build_corpus("psgs_w100", tmp_path, table, subset=subset)


def test_more_others_than_there_are_is_refused(table, tmp_path):
    with pytest.raises(InputError, match="only 20 others, fewer than 21"):
        build_corpus("psgs_w100", tmp_path, table, subset=Subset(others=21))


@pytest.mark.parametrize(
    "wrong",
    [{}, {"first": -1}, {"first": 1, "others": 1}, {"ids": frozenset("a")}, {"ids_of": "nq"}],
)
def test_parts_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError):
        Subset(**wrong)


CORPUS = [Passage(f"p{i}", "", "t") for i in range(40)]


@hypothesis.settings(deadline=None)
@hypothesis.given(
    small=st.integers(1, 30), more=st.integers(0, 10), seed=st.integers(0, 5), order=st.randoms()
)
def test_a_larger_draw_has_the_smaller_one_whatever_the_order(small, more, seed, order):
    first = ids(Subset(others=small, seed=seed).of(CORPUS))
    shuffled = order.sample(CORPUS, len(CORPUS))
    second = ids(Subset(others=small + more, seed=seed).of(shuffled))
    assert len(first) == small
    assert set(first) <= set(second)
    assert second == [one.id for one in shuffled if one.id in set(second)]


def test_the_command_of_a_part_of_a_corpus(tmp_path: Path) -> None:
    """The name that a part has, and the arguments that build it again."""
    part = Subset(ids=frozenset({"1"}), ids_of="nq+webq", others=1000)
    name = corpus_directory("psgs_w100", tmp_path, part).name
    assert named_part(name) == ("psgs_w100", "nq+webq", 1000)
    assert build_arguments(name) == "psgs_w100 --gold_of=nq,webq --others=1000"
    assert named_part("nq-contexts") is None and build_arguments("psgs_w100") == "psgs_w100"
    with pytest.raises(InputError, match=r"jaxrag data psgs_w100 --gold_of=nq,webq"):
        open_corpus(name, tmp_path)
