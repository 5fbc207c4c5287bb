"""Malformed published files: every error names the file, the place in it and the field."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from jaxrag.data.building import build_set, published_files
from jaxrag.data.downloads import Downloads
from jaxrag.data.sets import SETS
from jaxrag.types import InputError
from tests.data.sets.published import dpr_training, jsonl


class Bad(NamedTuple):
    """A set, its file, the content, and what the error must name besides the file."""

    name: str
    file: str
    content: bytes
    named: tuple[str, ...]


_QUESTION = {"question": "q", "title": "t", "answer": True, "passage": "p"}
_ARC = {
    "id": "a",
    "question": {
        "stem": "s",
        "choices": [{"text": "x", "label": "A"}, {"text": "y", "label": "B"}],
    },
    "answerKey": "A",
}
_TRIVIA = {"Question": "q", "QuestionId": "tc_1", "Answer": {"Value": "v", "Aliases": ["v"]}}
_SQUAD = {"id": "s", "question": "q", "answers": [{"text": "a", "answer_start": 0}]}


def squad(question: dict, **paragraph) -> bytes:
    whole = {"context": "a text", "qas": [_SQUAD, {**question, "id": "t"}], **paragraph}
    articles = [{"title": "One", "paragraphs": [whole]}]
    return json.dumps({"data": articles, "version": "1.1"}).encode()


def without(fields: dict, name: str) -> dict:
    return {key: value for key, value in fields.items() if key != name}


BAD = {
    "blank line": Bad("boolq", "dev.jsonl", jsonl(_QUESTION) + b"\n", ("line 2", "blank")),
    "not JSON": Bad("boolq", "dev.jsonl", jsonl(_QUESTION) + b"{'a': 1}\n", ("line 2", "not JSON")),
    "not an object": Bad("boolq", "dev.jsonl", jsonl(_QUESTION, [1]), ("line 2", "a list")),
    "not UTF-8": Bad("boolq", "dev.jsonl", jsonl(_QUESTION) + b"\xff\xfe\n", ("line 2", "UTF-8")),
    "no field": Bad(
        "boolq",
        "dev.jsonl",
        jsonl(_QUESTION, without(_QUESTION, "passage")),
        ("line 2", "'passage'"),
    ),
    "no boolean": Bad(
        "boolq",
        "dev.jsonl",
        jsonl({**_QUESTION, "answer": "yes"}),
        ("line 1", "'answer'", "true or"),
    ),
    "blank question": Bad(
        "boolq",
        "dev.jsonl",
        jsonl(_QUESTION, {**_QUESTION, "question": " "}),
        ("line 2", "'question'"),
    ),
    "half a surrogate": Bad(
        "boolq",
        "dev.jsonl",
        b'{"question": "\\ud800", "title": "", "answer": true, "passage": "p"}\n',
        ("line 1", "'question'", "surrogate"),
    ),
    "cut gzip": Bad(
        "boolq", "dev.jsonl.gz", gzip.compress(jsonl(*[_QUESTION] * 500))[:-20], ("cut short",)
    ),
    "cut bzip2": Bad(
        "webq",
        "webquestions.examples.test.json.bz2",
        bz2.compress(b"[{}]" * 99)[:-20],
        ("cut short",),
    ),
    "FlashRAG without answers": Bad(
        "nq",
        "nq/dev.jsonl",
        jsonl({"id": "1", "question": "q", "golden_answers": []}),
        ("line 1", "'golden_answers'"),
    ),
    "answer no list": Bad(
        "nq", "NQ-open.dev.jsonl", jsonl({"question": "q", "answer": "one"}), ("line 1", "'answer'")
    ),
    "table with one column": Bad(
        "nq", "nq-test.qa.csv", b"who\t['a']\nwhat\n", ("line 2", "1 columns", "answers")
    ),
    "list of no strings": Bad(
        "nq", "nq-test.qa.csv", b"who\t['a']\nwhat\t[1]\n", ("line 2", "'answers'")
    ),
    "no Python list": Bad(
        "nq", "nq-test.qa.csv", b"who\t['a']\nwhat\t['a\n", ("line 2", "'answers'")
    ),
    "open quote": Bad("nq", "nq-test.qa.csv", b"who\t['a']\n\"what\t['a']\n", ("line 2", "quot")),
    "training file of something else": Bad(
        "nq",
        "biencoder-nq-train.json",
        b'[{"answers": ["a"], "positive_ctxs": [{"text": "t"}]}]',
        ("element 1", "positive_ctxs[1].psg_id"),
    ),
    "training file cut": Bad(
        "nq", "biencoder-nq-train.json", dpr_training(("q", ["1"]))[:-30], ("byte", "element 1")
    ),
    "no Data": Bad(
        "triviaqa", "unfiltered-web-dev.json", b'{"Domain": "Web"}', ("no field 'Data'",)
    ),
    "test file without answers": Bad(
        "triviaqa",
        "unfiltered-web-dev.json",
        json.dumps({"Data": [_TRIVIA, without(_TRIVIA, "Answer")]}).encode(),
        ("element 2", "'Answer'"),
    ),
    "aliases no list": Bad(
        "triviaqa",
        "unfiltered-web-dev.json",
        json.dumps({"Data": [{**_TRIVIA, "Answer": {"Value": "v", "Aliases": "v"}}]}).encode(),
        ("element 1", "'Answer.Aliases'"),
    ),
    "no Lisp": Bad(
        "webq",
        "webquestions.examples.test.json",
        b'[{"utterance": "q", "targetValue": "(list (description \\"a)"}]',
        ("element 1", "'targetValue'", "(list (description NAME)"),
    ),
    "empty list of names": Bad(
        "webq",
        "webquestions.examples.test.json",
        b'[{"utterance": "q", "targetValue": "(list)"}]',
        ("element 1", "'targetValue'", "no answer"),
    ),
    "SQuAD 2.0": Bad(
        "squad",
        "dev-v1.1.json",
        squad({**_SQUAD, "is_impossible": False}),
        ("element 1", "paragraphs[1].qas[2].is_impossible", "SQuAD 1.1"),
    ),
    "no context": Bad(
        "squad",
        "dev-v1.1.json",
        squad(_SQUAD, context=None),
        ("element 1", "'paragraphs[1].context'"),
    ),
    "no answer text": Bad(
        "squad",
        "dev-v1.1.json",
        squad({**_SQUAD, "answers": [{"answer_start": 0}]}),
        ("element 1", "paragraphs[1].qas[2].answers[1].text"),
    ),
    "JSON cut": Bad("squad", "dev-v1.1.json", squad(_SQUAD)[:150], ("byte", "cut short")),
    "text after JSON": Bad(
        "squad", "dev-v1.1.json", squad(_SQUAD) + b"]", ("byte", "after the end")
    ),
    "unknown key": Bad(
        "arc_challenge",
        "ARC-Challenge-Test.jsonl",
        jsonl(_ARC, {**_ARC, "answerKey": "C"}),
        ("line 2", "'answerKey'", "A, B"),
    ),
    "choice without text": Bad(
        "arc_challenge",
        "ARC-Challenge-Test.jsonl",
        jsonl({**_ARC, "question": {"stem": "s", "choices": [{"label": "A"}]}}),
        ("line 1", "'question.choices[1].text'"),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_files(tmp_path: Path, name: str) -> None:
    bad = BAD[name]
    path = tmp_path / "source" / bad.file
    path.parent.mkdir(parents=True)
    path.write_bytes(bad.content)
    if bad.file.startswith("biencoder"):  # it comes beside the questions
        (path.parent / "nq-train.qa.csv").write_text("q\t['a']\n")
    published = SETS[bad.name]
    with pytest.raises(InputError) as error:
        files = published_files(published, Downloads(tmp_path / "files", tmp_path / "source"))
        build_set(published, files, tmp_path / "cache", any_size=True)
    message = str(error.value)
    del error  # it holds the frames of generators, and they files, until garbage is collected
    for part in (str(path), *bad.named):
        assert part in message, message
    assert len(message.splitlines()) == 1
    assert not (tmp_path / "cache" / "sets" / bad.name).exists()


def test_at_least_25_malformed_files():
    assert len(BAD) >= 25
