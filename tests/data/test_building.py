"""Building published sets: figures, sizes, contexts, interruptions, other files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from jaxrag.core.hashing import digest_file
from jaxrag.core.jsonl_input import read_input
from jaxrag.data import building
from jaxrag.data.benchmark import set_directory
from jaxrag.data.building import BuiltSet, build_set, published_files
from jaxrag.data.corpora import open_corpus
from jaxrag.data.dataset import OWN, GoldPassage, SetRow
from jaxrag.data.downloads import Downloads
from jaxrag.data.sets import PublishedSet
from jaxrag.types import InputError, Passage, Question


def read_small(paths: Sequence[Path], split: str) -> Iterator[SetRow]:
    """JSON lines with ids, answers, contexts as [id, text] and ids of gold contexts."""
    for line in read_input(paths[0]):
        question = Question(line.string("id"), line.string("q"), line.strings("a"))
        contexts = tuple(Passage(one, "", text) for one, text in line.fields.get("c", []))
        gold = tuple(map(GoldPassage, line.fields.get("g", [])))
        yield SetRow(question, gold, contexts)


SMALL = PublishedSet(
    "small",
    "a small set",
    {"train": 3, "dev": 2, "test": 1},
    "none",
    evaluated="dev",
    files="https://example.org/{split}.small",
    corpus=OWN,
    read=read_small,
)


TRAIN = [
    {"id": "1", "q": "Who is the man?", "a": ["A", "B"], "c": [["x", "X"], ["y", "Y"]], "g": ["y"]},
    {"id": "2", "q": "who is man", "a": ["A"], "c": [["x", "X"]]},
    {"id": "3", "q": "Where?", "a": ["C"], "c": [["z", "Z"]], "g": ["z"]},
]
DEV = [
    {"id": "1", "q": "WHERE", "a": ["C"], "c": [["y", "Y"], ["w", "W"]], "g": ["w"]},
    {"id": "2", "q": "When?", "a": ["D", "E", "F"]},
]


def source(tmp_path: Path, **splits: list) -> Path:
    directory = tmp_path / "source"
    directory.mkdir(exist_ok=True)
    for split, rows in splits.items():
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (directory / f"{split}.small").write_text(text)
    return directory


def build(tmp_path: Path, published: PublishedSet = SMALL, **kwargs) -> BuiltSet:
    files = published_files(published, Downloads(tmp_path / "files", tmp_path / "source"))
    return build_set(published, files, tmp_path / "cache", **kwargs)


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): digest_file(path)
        for path in sorted(directory.glob("[cs]*/**/*"))
        if path.is_file() and path.name != ".lock"
    }


def test_figures(tmp_path):
    """Question 3 of train and the first of dev are equal without case and punctuation."""
    source(tmp_path, train=TRAIN, dev=DEV)
    built = build(tmp_path)
    train, dev = built.splits["train"], built.splits["dev"]
    assert (train.questions, train.published, train.answers) == (3, 3, 4)
    assert (dev.questions, dev.answers, dev.choices) == (2, 4, 0)
    assert (train.gold, dev.gold) == ({"": 2}, {"": 1})
    assert built.shared == {"train/dev": 1}
    assert built.absent == ("test",)
    assert built.contexts == {"passages": 4}
    assert BuiltSet.read(set_directory("small", tmp_path / "cache")) == built


def test_another_size_than_the_published_one_stops_with_both(tmp_path):
    source(tmp_path, train=TRAIN[:2])
    with pytest.raises(
        InputError,
        match=r"train of small \(.*train.small\) has 2 questions, but "
        r"the published split has 3.*--any_size",
    ):
        build(tmp_path)
    assert not set_directory("small", tmp_path / "cache").exists()
    built = build(tmp_path, any_size=True)
    assert (built.splits["train"].questions, built.splits["train"].published) == (2, 3)
    # what was built so is refused without --any_size, and kept with it
    told = r"train of small \(.*sets/small, built with --any_size\) has 2 questions, but the publ"
    with pytest.raises(InputError, match=told):
        build(tmp_path)
    assert build(tmp_path, any_size=True) == built


def test_contexts_far_from_their_known_number_stop_with_both(tmp_path):
    """Train and dev have 4 contexts; of a known number a twentieth may lack."""
    source(tmp_path, train=TRAIN, dev=DEV)
    sized = dataclasses.replace(SMALL, contexts_size=5)
    with pytest.raises(
        InputError,
        match=r"small has 4 different contexts, but its corpus small-contexts has about 5, over "
        r"all of train, dev, test: .*--any_size",
    ):
        build(tmp_path, sized)
    assert not (tmp_path / "cache" / "sets").exists()
    assert build(tmp_path, sized, any_size=True).contexts["passages"] == 4
    with pytest.raises(InputError, match="small has 4 different contexts, but its corpus"):
        build(tmp_path, sized)  # nor is it kept


def test_a_set_without_the_passages_that_papers_search_stops(tmp_path):
    source(tmp_path, test=[{**DEV[1], "id": "1"}])
    with pytest.raises(InputError, match="small: no question brings a passage, and papers search"):
        build(tmp_path)
    assert build(tmp_path, any_size=True).contexts["passages"] == 0


def test_the_same_files_are_not_built_again(tmp_path, monkeypatch):
    source(tmp_path, train=TRAIN, dev=DEV)
    built = build(tmp_path)
    monkeypatch.setattr(building, "_survey", None)
    assert build(tmp_path) == built


def test_other_files_replace_the_set(tmp_path, caplog):
    source(tmp_path, train=TRAIN)
    build(tmp_path)
    before = open_corpus("small-contexts", tmp_path / "cache").identity
    source(tmp_path, dev=DEV)
    built = build(tmp_path)
    assert list(built.splits) == ["train", "dev"] and "is replaced" in caplog.text
    assert open_corpus("small-contexts", tmp_path / "cache").identity != before
    names = sorted(path.name for path in (tmp_path / "cache" / "sets").iterdir())
    assert names == ["small"]


def test_only_some_splits(tmp_path):
    source(tmp_path, train=TRAIN, dev=DEV)
    downloads = Downloads(tmp_path / "files", tmp_path / "source")
    files = published_files(SMALL, downloads, splits=["dev"])
    built = build_set(SMALL, files, tmp_path / "cache")
    assert list(built.splits) == ["dev"] and built.absent == ("train", "test")
    assert list(build(tmp_path).splits) == ["train", "dev"]
    with pytest.raises(InputError, match="'none' is no split of small; it has train, dev, test"):
        published_files(SMALL, downloads, splits=["none"])
    with pytest.raises(InputError, match=r"test: test\.small"):
        published_files(SMALL, downloads, splits=["dev", "test"])


class _Stop(BaseException):
    """As an interruption from the keyboard."""


@pytest.mark.parametrize("at", [1, 4, 7, 12, 14])
def test_interrupted_builds_do_no_harm(tmp_path, at):
    """Stopped at a row of each pass (5 rows each: checking, contexts, questions)."""
    source(tmp_path, train=TRAIN, dev=DEV)
    count = 0

    def stopping(paths, split):
        nonlocal count
        for row in read_small(paths, split):
            count += 1
            if count == at:
                raise _Stop
            yield row

    with pytest.raises(_Stop):
        build(tmp_path, dataclasses.replace(SMALL, read=stopping))
    assert not set_directory("small", tmp_path / "cache").exists()
    built = build(tmp_path)
    assert built.contexts["passages"] == 4
    names = [p.name for p in (tmp_path / "cache").glob("[cs]*/*")]
    assert sorted(names) == ["small", "small-contexts"]


def test_what_a_killed_build_left_is_replaced(tmp_path):
    for name in ("quiet", "killed"):
        (tmp_path / name).mkdir()
        source(tmp_path / name, train=TRAIN, dev=DEV)
    build(tmp_path / "quiet")
    for name in ("sets/small.new", "corpora/small-contexts.new"):
        (tmp_path / "killed" / "cache" / name).mkdir(parents=True)
        (tmp_path / "killed" / "cache" / name / "manifest.json").write_text("{")
    build(tmp_path / "killed")
    assert contents(tmp_path / "killed" / "cache") == contents(tmp_path / "quiet" / "cache")


def test_a_set_that_an_earlier_version_built_is_read_and_another_directory_refused(tmp_path):
    """Earlier versions kept more figures."""
    source(tmp_path, train=TRAIN)
    built = build(tmp_path)
    manifest = set_directory("small", tmp_path / "cache") / "manifest.json"
    document = json.loads(manifest.read_text())
    document["about"]["splits"]["train"] |= {"repeated": 1, "unanswered": 0}
    manifest.write_text(json.dumps(document))
    assert build(tmp_path) == built
    manifest.write_text(json.dumps({**document, "about": {}}))
    with pytest.raises(InputError, match=r"was not built by jaxrag data"):
        build(tmp_path)
