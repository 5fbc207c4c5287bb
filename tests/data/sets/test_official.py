"""Sets read from a few rows in exactly their published forms, by our command and through TFDS."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import tensorflow_datasets as tfds
from etils import epath

from jaxrag.core.packed_files import open_packed
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.building import build_set, published_files
from jaxrag.data.dataset import GoldPassage
from jaxrag.data.downloads import Downloads, archive_of
from jaxrag.data.question_kinds import gold_option
from jaxrag.data.set_row import SetRow
from jaxrag.data.sets import SETS
from jaxrag.types import Passage, Question
from tests.data.sets import more_published, published
from tests.data.sets.published import Case, Published, write
from tests.local_http import serving

CASES = published.CASES | more_published.CASES


@pytest.fixture(params=CASES)
def case(request, tmp_path) -> Case:
    found = CASES[request.param]
    write(found, tmp_path / "source")
    return found


def files_of(case: Case, tmp_path: Path):
    published = SETS[case.name]
    return published_files(published, Downloads(tmp_path / "files", tmp_path / "source"))


def test_rows(case, tmp_path):
    files = files_of(case, tmp_path)
    assert set(files) == set(case.rows)
    for split, found in files.items():
        assert list(SETS[case.name].rows(found, split)) == list(case.rows[split]), split


def test_built_rows(case, tmp_path):
    cache = tmp_path / "cache"
    built = build_set(SETS[case.name], files_of(case, tmp_path), cache, any_size=True)
    assert {s: f.questions for s, f in built.splits.items()} == {
        s: len(rows) for s, rows in case.rows.items()
    }
    contexts = [one for rows in case.rows.values() for row in rows for one in row.contexts]
    for split, rows in case.rows.items():
        if contexts:
            data = Benchmark(case.name, split=split, corpus="contexts").load(cache)
            assert list(data.passages) == list(dict.fromkeys(contexts))
            assert data.questions == tuple(row.question for row in rows)
            own = {r.question.id: tuple(g.id for g in r.gold if not g.corpus) for r in rows}
            assert data.gold == {name: ids for name, ids in own.items() if ids}


def test_rows_through_tfds(case, tmp_path):
    """`download_and_prepare` of the set as an ordinary TFDS builder, without TensorFlow."""
    builder: Any = SETS[case.name](data_dir=tmp_path / "tfds", file_format="array_record")
    config = tfds.download.DownloadConfig(manual_dir=unpacked(case, tmp_path))
    builder.download_and_prepare(download_config=config)
    for split, rows in case.rows.items():
        source: Any = builder.as_data_source(split=split)
        found = [row_of(one) for one in source]
        assert found == list(rows), split


def unpacked(case: Case, tmp_path: Path) -> Path:
    """The case's files with those of archives beside them, as TFDS's manual directory needs."""
    directory = tmp_path / "manual"
    directory.mkdir()
    for found in files_of(case, tmp_path).values():
        for name, path in found.items():
            target = directory / Path(name).parent / path.name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    return directory


def row_of(stored) -> SetRow:
    """A row as TFDS reads it."""

    def texts(values):
        return tuple(value.decode() for value in values)

    gold = zip(
        texts(stored["gold"]),
        texts(stored["gold_corpora"]),
        map(int, texts(stored["gold_grades"])),
        strict=True,
    )
    parts = [texts(stored["contexts"][name]) for name in ("id", "title", "text")]
    return SetRow(
        Question(
            stored["id"].decode(),
            stored["text"].decode(),
            texts(stored["answers"]),
            texts(stored["choices"]),
            stored["task"].decode(),
        ),
        tuple(GoldPassage(*one) for one in gold),
        tuple(Passage(*one) for one in zip(*parts, strict=True)),
    )


@pytest.mark.parametrize("name", ["boolq", "arc_challenge"])
def test_tfds_downloads_the_files(tmp_path, monkeypatch, name):
    """`download_and_prepare` without a manual directory, of plain files and of an archive."""
    case = CASES[name]
    files = {path.rpartition("/")[2]: data for path, data in case.files.items()}
    with serving(Published, None, asked=[], files=files) as server:
        addresses = {
            file: f"{server.url}/{(archive_of(file, address) or file).rpartition('/')[2]}"
            for file, address in SETS[name].FILES.items()
        }
        monkeypatch.setattr(SETS[name], "FILES", addresses)
        builder: Any = SETS[name](data_dir=tmp_path, file_format="array_record")
        builder.download_and_prepare()
    for split, rows in case.rows.items():
        source: Any = builder.as_data_source(split=split)
        assert [row_of(one) for one in source] == list(rows)


def test_the_right_one_of_choices_that_differ_in_case():
    """The genotypes of the second question: the answer is "TT", the third choice."""
    first, second = (row.question for row in CASES["arc_challenge"].rows["test"])
    assert (gold_option(first), gold_option(second)) == (2, 2)


def examples(name: str, path: epath.Path, tmp_path: Path, config: str | None = None):
    """The rows that TFDS's own builder reads from a file."""
    importlib.import_module("tensorflow_datasets.question_answering")
    builder: Any = tfds.builder_cls(name)(data_dir=tmp_path / "tfds", config=config)
    files = [path] if name == "trivia_qa" else path
    extra = (None, None) if name == "trivia_qa" else ()
    return [example for _, example in builder._generate_examples(files, *extra)]


def unique(answers):
    return tuple(dict.fromkeys(answers))


# TFDS's name and configuration, a split, its file, and a row's comparable part in both forms
TFDS = {
    "boolq": (
        ("bool_q", None, "dev", "boolq/dev.jsonl"),
        lambda e: (e["question"], "yes" if e["answer"] else "no", e["title"], e["passage"]),
        lambda r: (r.question.text, *r.question.answers, r.contexts[0].title, r.contexts[0].text),
    ),
    "nq": (
        ("natural_questions_open", None, "test", "NQ-open.dev.jsonl"),
        lambda e: (e["question"], unique(e["answer"])),
        lambda r: (r.question.text, r.question.answers),
    ),
    "triviaqa": (
        ("trivia_qa", "unfiltered.nocontext", "test", "unfiltered-web-dev.json"),
        lambda e: (e["question_id"], e["question"], unique(e["answer"]["aliases"])),
        lambda r: (r.question.id, r.question.text, r.question.answers),
    ),
    "webq": (
        ("web_questions", None, "train", "webquestions.examples.train.json"),
        lambda e: (e["question"], unique(e["answers"])),
        lambda r: (r.question.text, r.question.answers),
    ),
    "squad": (
        ("squad", "v1.1", "dev", "dev-v1.1.json"),
        lambda e: (e["id"], e["question"], e["context"], unique(e["answers"]["text"])),
        lambda r: (r.question.id, r.question.text, r.contexts[0].text, r.question.answers),
    ),
    "arc_challenge": (
        ("ai2_arc", "ARC-Challenge", "test", "ARC-Challenge-Test.jsonl"),
        lambda e: (
            e["id"],
            e["question"],
            tuple(e["choices"]["text"]),
            "ABCDE".index(e["answerKey"]),
        ),
        lambda r: (r.question.id, r.question.text, r.question.choices, gold_option(r.question)),
    ),
}


@pytest.mark.parametrize("name", TFDS)
def test_rows_are_those_of_the_builder_of_tfds(tmp_path, name):
    """TFDS's own builder reads the same questions, answers, choices and paragraphs."""
    (builder, config, split, file), theirs, ours = TFDS[name]
    case = CASES[name]
    write(case, tmp_path / "source")
    path = files_of(case, tmp_path)[split][file]
    plain = tmp_path / Path(file).name
    with open_packed(path) as stream:
        plain.write_bytes(stream.read())
    wanted = [theirs(one) for one in examples(builder, epath.Path(plain), tmp_path, config)]
    rows = SETS[name].rows({file: plain}, split)
    assert [ours(row) for row in rows] == wanted and wanted
