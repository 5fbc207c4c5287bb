"""Random training and test questions."""

import dataclasses
import json
from pathlib import Path

import pytest

from jaxrag.data.draw import Draw
from jaxrag.data.folder import Folder
from jaxrag.types import InputError


def write_folder(path: Path) -> Folder:
    path.mkdir(parents=True)
    names = [f"{path.name}{i}" for i in range(12)]
    rows = [{"id": one, "question": f"is it {one}", "answers": ["yes"]} for one in names]
    corpus = [{"id": f"p{i}", "title": "t", "text": f"text {i}"} for i in range(3)]
    gold = [{"query_id": one, "passage_ids": ["p1"]} for one in names[:6]]
    for name, lines in (("queries", rows), ("corpus", corpus), ("qrels", gold)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Folder(str(path))


def ids(data: Draw, cache: Path) -> list[str]:
    return [question.id for question in data.load(cache).questions]


def test_parts_share_no_question(tmp_path: Path) -> None:
    draw = Draw(write_folder(tmp_path / "a"), train=7, test=4)
    both = ids(draw, tmp_path / "cache")
    train, test = (ids(dataclasses.replace(draw, part=part), tmp_path / "cache")
                   for part in ("train", "test"))  # fmt: skip
    assert both == train + test and len(set(both)) == 11 and len(train) == 7
    assert [draw.part_of(i) for i in (0, 6, 7, 10)] == ["train", "train", "test", "test"]
    assert dataclasses.replace(draw, part="test").part_of(0) == "test"
    assert both != sorted(both)  # not in the order of the source


def test_the_seed_determines_the_draw(tmp_path: Path) -> None:
    folder, cache = write_folder(tmp_path / "a"), tmp_path / "cache"
    first, again, other = (Draw(folder, train=7, test=4, seed=seed) for seed in (0, 0, 1))
    assert ids(first, cache) == ids(again, cache) != ids(other, cache)
    identities = {
        dataclasses.replace(first, **change).load(cache).identity
        for change in (
            {},
            {"seed": 1},
            {"part": "test"},
            {"train": 6},
            {"only_gold": True, "train": 2},
        )
    }
    assert len(identities) == 5
    assert first.load(cache).identity == again.load(cache).identity


def test_test_questions_of_other_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_folder(tmp_path / "a")
    other = dataclasses.replace(write_folder(tmp_path / "b"), corpus=folder.path)
    draw = Draw(folder, other, train=3, test=12)
    found = ids(draw, tmp_path / "cache")
    assert all(name.startswith("a") for name in found[:3])
    assert all(name.startswith("b") for name in found[3:]) and len(set(found)) == 15
    # all of fewer questions, if they are of one part
    for part, source in (("test", "b"), ("train", "a")):
        fewer = dataclasses.replace(draw, part=part, train=99, test=99)
        assert sorted(ids(fewer, tmp_path / "cache")) == sorted(f"{source}{i}" for i in range(12))
        assert f"{source} has 12 of 99 {part} questions" in caplog.messages
    with pytest.raises(InputError, match=r"b has 12 of 99 test questions: lower data\.train or"):
        dataclasses.replace(draw, test=99).load(tmp_path / "cache")
    third = write_folder(tmp_path / "c")
    (tmp_path / "c" / "corpus.jsonl").write_text('{"id": "p1", "text": "other"}\n')
    with pytest.raises(InputError, match="have different corpora"):
        Draw(folder, third, train=3, test=3).load(tmp_path / "cache")


def test_only_questions_with_gold(tmp_path: Path) -> None:
    draw = Draw(write_folder(tmp_path / "a"), train=4, test=2, only_gold=True)
    found = draw.load(tmp_path / "cache")
    assert all(found.gold[question.id] == ("p1",) for question in found.questions)
    with pytest.raises(InputError, match=r"has 1 of 2 test questions with gold passages"):
        dataclasses.replace(draw, train=5, part="train").load(tmp_path / "cache")
    assert len(ids(dataclasses.replace(draw, train=7, test=0), tmp_path / "cache")) == 6
    no_gold = dataclasses.replace(draw.source, corpus="", split="queries")
    (tmp_path / "a" / "qrels.jsonl").unlink()
    with pytest.raises(InputError, match="has 0 of 4 train questions with gold passages"):
        dataclasses.replace(draw, source=no_gold, test=0).load(tmp_path / "cache")


def test_gold_passages_are_those_of_each_part(tmp_path: Path) -> None:
    source, other = (write_folder(tmp_path / name / "a") for name in ("x", "y"))
    gold = tmp_path / "y" / "a" / "qrels.jsonl"
    gold.write_text('{"query_id": "a0", "passage_ids": ["p2"]}\n')
    draw = Draw(source, other, part="test", train=3, test=12)
    assert draw.load(tmp_path / "cache").gold == {"a0": ("p2",)}
