"""Files that change while something is made of them, or that keep their sizes and times."""

from __future__ import annotations

import dataclasses
import os
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxrag.data import conversion, corpora, folder
from jaxrag.data.corpora import CORPORA, build_corpus, open_corpus
from jaxrag.data.dataset import Dataset, SetRow
from jaxrag.data.folder import Folder
from jaxrag.data.formats.dpr import with_dpr_gold
from jaxrag.models.checkpoint.files import read_tensors
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.wiki_dpr.index import import_published
from jaxrag.retrieval.wiki_dpr.sources import ParquetVectors
from jaxrag.types import InputError, Question
from tests.data import test_building as sets
from tests.faults.damage import overwrite
from tests.models.checkpoint import small_gguf

pytestmark = pytest.mark.usefixtures("settled")


class Case(NamedTuple):
    """What is made of a file that holds "one" and for a moment "two".

    ``reader`` is the attribute of ``owner`` by which the file is read.
    """

    file: Path
    owner: Any
    reader: str
    make: Callable[[], str]


def shown(dataset: Dataset) -> str:
    return str([dataset.questions, dataset.gold, dataset.grades, *dataset.passages])


def of_folder(here: Path, name: str) -> Case:
    rows = {
        "queries": '{"id": "q", "question": "one?", "answers": ["a"]}\n',
        "corpus": '{"id": "p", "text": "one"}\n',
    }
    if name == "qrels":
        rows["corpus"] = '{"id": "one", "text": "1"}\n{"id": "two", "text": "2"}\n'
        rows["qrels"] = '{"query_id": "q", "passage_ids": ["one"]}\n'
    for file, text in rows.items():
        (here / f"{file}.jsonl").write_text(text)
    load = Folder(str(here)).load
    reader = conversion if name == "corpus" else folder
    return Case(here / f"{name}.jsonl", reader, "read_input", lambda: shown(load(here / "cache")))


def of_built_set(here: Path) -> Case:
    file = sets.source(here, train=sets.TRAIN) / "train.small"
    file.write_text(file.read_text().replace('"Y"', '"one"'))

    def make() -> str:
        sets.build(here)
        return str([*Passages.open(here / "cache/corpora/small-contexts")])

    return Case(file, sets, "read_input", make)


def of_corpus(here: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    file = here / "psgs_w100.tsv"
    file.write_text("id\ttext\ttitle\n1\tone\tone\n")
    own = dataclasses.replace(CORPORA["psgs_w100"], passages=1)
    reads = types.SimpleNamespace(read=own.read)
    own = dataclasses.replace(own, read=lambda path: reads.read(path))
    monkeypatch.setattr(corpora, "CORPORA", {"psgs_w100": own})

    def make() -> str:
        build_corpus("psgs_w100", here, file, workers=1)
        return str([*open_corpus("psgs_w100", here)])

    return Case(file, reads, "read", make)


def of_vectors(here: Path) -> Case:
    (here / "from").mkdir()
    texts = {name: ["one"] for name in ("id", "text", "title")}
    vectors = pa.array([[1.0] * 4], pa.list_(pa.float32()))
    rows, file = pa.table({**texts, "embeddings": vectors}), here / "from/a.parquet"
    pq.write_table(rows, file, compression="none", use_dictionary=False, write_statistics=False)

    def make() -> str:
        import_published(here / "from", here / "to", dimension=4)
        return str([*Passages.open(here / "to/passages")])

    return Case(file, ParquetVectors, "passages", make)


CASES: dict[str, Callable[[Path, pytest.MonkeyPatch], Case]] = {
    "questions": lambda here, _: of_folder(here, "queries"),
    "corpus": lambda here, _: of_folder(here, "corpus"),
    "judgements": lambda here, _: of_folder(here, "qrels"),
    "built set": lambda here, _: of_built_set(here),
    "built corpus": of_corpus,
    "published vectors": lambda here, _: of_vectors(here),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_made_of_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Even if it is as before in the end: what was read is that of the moment between."""
    case = CASES[name](tmp_path, monkeypatch)
    whole, real = case.file.read_bytes(), getattr(case.owner, case.reader)
    between = whole.replace(b"one", b"two")

    def read(*given: Any, **named: Any) -> Any:
        overwrite(case.file, between)
        found = real(*given, **named)
        found = list(found) if isinstance(found, Iterator) else found
        overwrite(case.file, whole)
        return iter(found) if isinstance(found, list) else found

    with monkeypatch.context() as patch:
        patch.setattr(case.owner, case.reader, read)
        with pytest.raises(InputError, match="changed while it was read: run the same command"):
            case.make()
    made = case.make()
    assert "one" in made
    overwrite(case.file, between)
    if name not in ("built corpus", "published vectors"):  # these are built once
        assert case.make().count("two") > made.count("two")


def test_a_gguf_file_of_equal_size_and_time_is_read_again(tmp_path: Path) -> None:
    first, other = tmp_path / "a.gguf", tmp_path / "b.gguf"
    tensors = small_gguf.random_tensors()
    name = "output_norm.weight"
    small_gguf.write(first, tensors=tensors)
    small_gguf.write(other, tensors={**tensors, name: tensors[name] + 1})
    before = read_tensors(first)["model.norm.weight"].copy()
    stat = first.stat()
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(first)  # what is written into the file itself shows in its mapped memory
    assert (read_tensors(first)["model.norm.weight"] == before + 1).all()


def test_gold_passages_of_a_file_of_equal_size_and_time_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    file.write_text(
        '[{"question": "who?", "answers": [], "positive_ctxs":'
        ' [{"title": "", "text": "x", "passage_id": "1"}]}]'
    )

    def gold() -> list[str]:
        rows = with_dpr_gold(iter([SetRow(Question("q", "who?", ()))]), [file])
        return [one.id for row in rows for one in row.gold]

    assert gold() == ["1"]
    overwrite(file, file.read_bytes().replace(b'"1"', b'"2"'))
    assert gold() == ["2"]
