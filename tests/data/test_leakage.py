"""Questions that are trained on and evaluated: found by their text, refused, dropped or kept."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrag.data import benchmark, leakage
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.dataset import LabelledQuestion, write_questions
from jaxrag.data.draw import Draw
from jaxrag.data.folder import Folder
from jaxrag.types import InputError, Question

TRAINING = ["Who wrote Emma?", "where is Rome", "When was it?", "What is the red one"]
EVALUATED = leakage.question_set("nq test", ["who wrote the emma", "Is it so?", "WHEN was it"])


def kept(texts: list[str], how: leakage.Leakage, *sets: leakage.QuestionSet) -> list[str]:
    return leakage.without_leaks(texts, texts, sets or [EVALUATED], name="mine", leakage=how)


def test_shared_questions_are_refused_with_their_texts() -> None:
    """Case, punctuation and articles do not count, so the first and the third are shared."""
    with pytest.raises(InputError) as caught:
        kept(TRAINING, "refuse")
    message = str(caught.value)
    assert "2 of 4 training questions of mine are questions of nq test, too" in message
    assert "\n  Who wrote Emma?\n  When was it?\n" in message and "Rome" not in message
    assert "--config.leakage=drop" in message and "--config.leakage=keep" in message
    assert kept(TRAINING[1:2], "refuse") == ["where is Rome"]
    many = [f"question {number}" for number in range(100)]
    with pytest.raises(InputError) as caught:
        kept(many, "refuse", leakage.question_set("test", many))
    assert str(caught.value).count("\n  ") == 5  # the first few


def test_they_are_dropped_or_kept_knowingly(caplog: pytest.LogCaptureFixture) -> None:
    assert kept(TRAINING, "drop") == [TRAINING[1], TRAINING[3]]
    assert "2 of 4 questions of mine are questions of nq test, too: left out" in caplog.text
    assert kept(TRAINING, "keep") == TRAINING
    assert "trained on knowingly" in caplog.text
    with pytest.raises(InputError, match="All questions of mine are evaluated, too"):
        kept(TRAINING[:1], "drop")
    assert kept([], "refuse") == []


@given(st.lists(st.text(max_size=6), max_size=20), st.lists(st.text(max_size=6), max_size=20))
def test_what_is_left_shares_nothing(training: list[str], evaluated: list[str]) -> None:
    other = leakage.question_set("other", evaluated)
    try:
        left = kept(training, "drop", other)
    except InputError:
        left = []
    assert kept(left, "refuse", other) == left
    assert all(text in left or text in training for text in training)
    assert not {*left} & {*evaluated}


def test_texts_without_words_are_compared_as_they_are() -> None:
    marks = leakage.question_set("marks", ["?!"])
    assert kept(["the", "?!", "!?"], "drop", marks) == ["the", "!?"]


def build(cache: Path, name: str, **splits: list[str]) -> None:
    """A set as `jaxrag data` builds it, with these questions."""
    rows = {
        split: [LabelledQuestion(Question(f"{split}{i}", text, ("a",))) for i, text in enumerate(t)]
        for split, t in splits.items()
    }
    write_questions(benchmark.set_directory(name, cache), rows)


def test_the_split_that_papers_evaluate_counts_for_a_published_set(tmp_path: Path) -> None:
    build(tmp_path, "nq", train=["Who is it?", "what is it"], test=["who is it", "where is it"])
    (found,) = leakage.evaluated_sets((), (Benchmark("nq", "train"),), tmp_path)
    assert found.name == "nq test, which papers evaluate" and len(found.hashes) == 2
    assert kept(["Who is it?", "what is it"], "drop", found) == ["what is it"]
    assert leakage.evaluated_sets((), (Benchmark("webq", "train"),), tmp_path) == []  # not built
    assert leakage.evaluated_sets((), (Folder("x"),), tmp_path) == []


def test_checkpoints_remember_what_they_were_trained_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        directory.mkdir()
    leakage.write_trained_on(first, ["Who is it?"])
    leakage.write_trained_on(second, ["what is it", "what is it"], begun_with=str(first))
    assert len(np.load(second / leakage.TRAINED_ON)) == 2
    questions = [Question("q", "who is it", ()), Question("r", "is it", ())]

    def check(directory: Path | str, how: leakage.Leakage = "refuse") -> None:
        named = [("config.index", str(directory))]
        leakage.check_evaluation(questions, named, name="nq", leakage=how)

    for how in ("refuse", "drop"):
        with pytest.raises(InputError, match=r"trained on 1 of the 2 questions of nq .*\n  who is"):
            check(second, how)
    check(second, "keep")
    assert "was trained on 1 of the 2" in caplog.text
    check(tmp_path)  # no record
    check("")
    check("hub:facebook/contriever")


def folder(tmp_path: Path, texts: list[str]) -> Folder:
    here = tmp_path / "mine"
    here.mkdir()
    rows = [{"id": f"q{i}", "question": text, "answers": ["a"]} for i, text in enumerate(texts)]
    (here / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (here / "corpus.jsonl").write_text('{"id": "p", "text": "a text"}\n')
    return Folder(str(here))


def test_a_draw_never_trains_on_its_test_questions(tmp_path: Path) -> None:
    """Ten texts, each twice. A draw of 10 and 10 has all of them, so none is spare."""
    texts = [f"question {number % 10}" for number in range(20)]
    draw = Draw(folder(tmp_path, texts), train=10, test=10)
    for part in ("both", "train"):
        with pytest.raises(InputError, match=r"its test part \(data.seed=0\).*\n  question"):
            dataclasses.replace(draw, part=part).load(tmp_path / "cache")
    test = dataclasses.replace(draw, part="test").load(tmp_path / "cache")  # says nothing of both
    assert len(test.questions) == 10
    kept_all = dataclasses.replace(draw, leakage="keep").load(tmp_path / "cache")
    assert len(kept_all.questions) == 20
    with pytest.raises(InputError, match=r"has \d of 10 train questions"):
        dataclasses.replace(draw, leakage="drop").load(tmp_path / "cache")
    few = Draw(draw.source, train=4, test=3, leakage="drop").load(tmp_path / "cache")
    train, tested = few.questions[:4], few.questions[4:]
    assert len(tested) == 3 and not {q.text for q in train} & {q.text for q in tested}
    same: Any = Draw(draw.source, train=4, test=3, leakage="keep").load(tmp_path / "cache")
    assert same.questions[4:] == tested  # the test part does not depend on the setting


def test_spare_questions_replace_leaks_even_if_all_drawn_ones_leak(tmp_path: Path) -> None:
    """Of 8 equal texts and 4 others at least two train, whichever three are tested."""
    source = folder(tmp_path, ["the same"] * 8 + [f"question {i}" for i in range(4)])
    for seed in range(10):
        draw = Draw(source, train=2, test=3, seed=seed, leakage="drop")
        texts = [question.text for question in draw.load(tmp_path / "cache").questions]
        assert len(texts) == 5 and not set(texts[:2]) & set(texts[2:])
