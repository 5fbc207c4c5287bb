"""Published sets by name: splits, corpora, first questions, gold passages, draws."""

from __future__ import annotations

import pytest

from jaxrag.data.benchmark import Benchmark, gold_of
from jaxrag.data.corpora import corpus_directory
from jaxrag.data.dataset import OTHERS, OWN, GoldPassage, LabelledQuestion, lacking, write_questions
from jaxrag.retrieval.corpus.passages import write_passages
from jaxrag.types import InputError, Passage, Question

ROWS = 40


def labelled(number: int, split: str = "dev") -> LabelledQuestion:
    """Question n: gold is the context c(n // 2), and passage n of psgs_w100 if n is even."""
    own = GoldPassage(f"c{number // 2}")
    wiki = (GoldPassage(str(number), "psgs_w100"),) if number % 2 == 0 else ()
    question = Question(f"{split}{number}", f"is {number} even?", ("yes",), task="yes_no")
    return LabelledQuestion(question, (own, *wiki))


@pytest.fixture
def cache(tmp_path):
    """BoolQ's directory with own questions, its contexts, psgs_w100 and a part of it."""
    write_questions(
        tmp_path / "sets" / "boolq",
        {split: [labelled(n, split) for n in range(ROWS)] for split in ("train", "dev")},
    )
    contexts = [Passage(f"c{n}", "", f"context {n}") for n in range(ROWS // 2)]
    write_passages(corpus_directory("boolq-contexts", tmp_path), contexts)
    wiki = [Passage(str(n), "T", f"text {n}") for n in range(ROWS)]
    write_passages(corpus_directory("psgs_w100", tmp_path), wiki)
    write_passages(corpus_directory("psgs_w100-first11", tmp_path), wiki[:11])
    return tmp_path


def test_the_papers_split_and_corpus_are_the_default(cache):
    data = Benchmark("boolq").load(cache)
    assert data == Benchmark("boolq", split="dev", corpus=OWN).load(cache)._replace(
        passages=data.passages
    )
    assert [q.id for q in data.questions] == [f"dev{n}" for n in range(ROWS)]
    assert len(data.passages) == ROWS // 2
    assert data.gold == {f"dev{n}": (f"c{n // 2}",) for n in range(ROWS)}
    assert data.grades == {}


def test_a_question_does_not_find_its_own_passages(cache):
    whole = Benchmark("boolq").load(cache)
    data = Benchmark("boolq", corpus=OTHERS, first=3).load(cache)
    assert [q.hidden for q in data.questions] == [("c0",), ("c0",), ("c1",)] and data.gold == {}
    assert data.passages.identity == whole.passages.identity
    assert data.identity != Benchmark("boolq", first=3).load(cache).identity


def test_other_sizes_than_the_published_ones_are_told(cache, caplog):
    Benchmark("boolq", corpus="psgs_w100").load(cache)
    assert caplog.messages[:2] == [
        "boolq dev has 40 questions here, the published split 3,270",
        "the corpus psgs_w100 has 40 passages here, the published one 21,015,324",
    ]


def test_another_corpus_has_its_own_gold_passages(cache):
    data = Benchmark("boolq", split="train", corpus="psgs_w100").load(cache)
    assert data.gold == {f"train{n}": (str(n),) for n in range(0, ROWS, 2)}
    path = str(corpus_directory("psgs_w100", cache))
    assert Benchmark("boolq", split="train", corpus=path).load(cache).gold == data.gold


def test_gold_passages_that_a_part_of_a_corpus_lacks_stay(cache):
    data = Benchmark("boolq", corpus="psgs_w100-first11").load(cache)
    # even numbers up to 10 of the even numbers up to 38: 14 of 20 are missing
    assert data.gold == {f"dev{n}": (str(n),) for n in range(0, ROWS, 2)}
    assert lacking(data, data.questions).startswith("14 of 20 gold passages of boolq dev are not")
    named = f"{corpus_directory('psgs_w100-first11', cache)}/"
    assert Benchmark("boolq", corpus=named).load(cache).gold == data.gold


def test_first_questions(cache):
    whole, some = Benchmark("boolq").load(cache), Benchmark("boolq", first=7).load(cache)
    assert some.questions == whole.questions[:7]
    assert list(some.gold) == [q.id for q in some.questions]
    settings = (
        Benchmark("boolq"),
        Benchmark("boolq", first=7),
        Benchmark("boolq", first=8),
        Benchmark("boolq", split="train"),
        Benchmark("boolq", corpus="psgs_w100"),
        Benchmark("boolq", corpus="psgs_w100-first11"),
    )
    identities = {one.load(cache).identity for one in settings}
    assert len(identities) == 6


def test_opening_reads_no_passage(cache):
    """With all records of the corpus destroyed, questions and gold passages still load."""
    for path in corpus_directory("psgs_w100", cache).glob("*array_record*"):
        path.write_bytes(b"\xff" * path.stat().st_size)
    data = Benchmark("boolq", corpus="psgs_w100").load(cache)
    assert len(data.passages) == ROWS and len(data.gold) == ROWS // 2
    with pytest.raises(InputError, match="cannot read rows"):
        data.passages[0]


def test_gold_passages_of_all_splits(cache):
    assert gold_of("boolq", "psgs_w100", cache) == {str(n) for n in range(0, ROWS, 2)}
    with pytest.raises(InputError, match="the set nq is not built"):
        gold_of("nq", "psgs_w100", cache)


BAD = {
    "unknown set": ({"name": "bolq"}, "'bolq' is no published set.*Nearest: boolq"),
    "unknown split": ({"split": "test"}, "data.split is 'test'; boolq has dev, train"),
    "negative": ({"first": -1}, "data.first is -1"),
    "too many": ({"first": 41}, "data.first is 41, but dev of boolq has 40 questions"),
    "no set": ({"name": "squad"}, "set squad is not built.*jaxrag data squad --workdir"),
    "no corpus": ({"corpus": "msmarco"}, "corpus msmarco is not built.*jaxrag data msmarco"),
    "no directory": ({"corpus": "./none"}, "none: this directory of passages does not exist"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors(cache, name):
    settings, message = BAD[name]
    with pytest.raises(InputError, match=message):
        Benchmark(**{"name": "boolq", **settings}).load(cache)


def test_a_split_that_was_not_built(tmp_path):
    write_questions(tmp_path / "sets" / "boolq", {"train": [labelled(0)]})
    with pytest.raises(InputError, match="boolq was built without its split 'dev'"):
        Benchmark("boolq").load(tmp_path)
