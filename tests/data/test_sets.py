"""Published sets: rows of their files, built and opened by TFDS; a new set; malformed files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tensorflow_datasets as tfds

from jaxrag.data import sets
from jaxrag.data.benchmark import Benchmark, set_directory
from jaxrag.data.building import build_set, published_files
from jaxrag.data.corpora import corpus_directory
from jaxrag.data.dataset import FIELDS
from jaxrag.data.downloads import Downloads, is_address, published_name
from jaxrag.data.sets import SETS, PublishedSet
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.types import InputError, Passage
from tests.data import published_sets as good
from tests.data.published_sets import CASES, dpr_training, flashrag, jsonl, parquet, plain, write


def files_of(name: str, tmp_path: Path) -> dict[str, dict[str, Path]]:
    return published_files(SETS[name], Downloads(tmp_path / "files", tmp_path / "source"))


def build(name: str, tmp_path: Path) -> Path:
    build_set(SETS[name], files_of(name, tmp_path), tmp_path / "cache", any_size=True)
    return tmp_path / "cache"


@pytest.mark.parametrize("name", CASES)
def test_rows(tmp_path, name):
    write(CASES[name].files, tmp_path / "source")
    files, rows = files_of(name, tmp_path), CASES[name].rows
    assert set(files) == set(rows)
    for split, found in files.items():
        assert list(SETS[name].rows(found, split)) == list(rows[split]), split


@pytest.mark.parametrize("name", ["boolq", "2wiki", "msmarco"])
def test_built_rows(tmp_path, name):
    """Questions, contexts and their gold passages as a run opens them, and as TFDS does."""
    write(CASES[name].files, tmp_path / "source")
    cache, splits = build(name, tmp_path), CASES[name].rows
    contexts = [one for rows in splits.values() for row in rows for one in row.contexts]
    builder = tfds.builder_from_directory(str(set_directory(name, cache)))
    for split, rows in splits.items():
        source: Any = builder.as_data_source(split=split)
        assert [one["text"].decode() for one in source] == [row.question.text for row in rows]
        assert set(source[0]) == set(FIELDS)
        if contexts:
            data = Benchmark(name, split=split, corpus="contexts").load(cache)
            assert list(data.passages) == list(dict.fromkeys(contexts))
            assert data.questions == tuple(row.question for row in rows)
            own = {r.question.id: tuple(g.id for g in r.gold if not g.corpus) for r in rows}
            assert data.gold == {question: ids for question, ids in own.items() if ids}


@pytest.mark.parametrize("name", SETS)
def test_sets_are_described_whole(name):
    published = SETS[name]
    assert name == published.name and published.evaluated in published.splits
    for split in published.splits:
        addresses = [*published.addresses(split), *published.gold.get(split, ())]
        assert all(map(is_address, addresses)) or name == "pubhealth"
        assert len({*map(published_name, addresses)}) == len(addresses)
    assert published.licence and published.citation and published.source.startswith("https://")
    assert published.contexts_name in (f"{name}-contexts", "2wiki_contexts")


def test_a_set_of_ones_own_is_one_row(tmp_path, monkeypatch):
    """Its file is found by the name in its address, built, and opened by name."""
    row = PublishedSet(
        "mine",
        "Questions of mine",
        {"dev": 2},
        "I, 2026",
        files="hf:me/all:mine/{split}.jsonl",
    )
    monkeypatch.setattr(sets, "SETS", {**SETS, "mine": row})
    write({"mine/dev.jsonl": jsonl(*good.NQ)}, tmp_path / "source")
    files = published_files(row, Downloads(tmp_path / "files", tmp_path / "source"))
    build_set(row, files, tmp_path / "cache")
    corpus = corpus_directory("psgs_w100", tmp_path / "cache")
    sets_corpus = Passages.open(write_passages(corpus, [Passage("1", "", "text")]).directory)
    data = Benchmark("mine").load(tmp_path / "cache")
    assert [one.answers[0] for one in data.questions] == ["Röntgen", "2,718"]
    assert data.passages.identity == sets_corpus.identity


class Bad(NamedTuple):
    """Files of a set, the wrong one first, and a pattern of what the error says after its path."""

    name: str
    files: dict[str, bytes]
    expected: str


def hotpot(**changed: Any) -> dict[str, bytes]:
    return {"hotpotqa/dev.jsonl": jsonl(good.HOTPOT, {**good.HOTPOT, "id": "x", **changed})}


def two_wiki(*rows: dict) -> dict[str, bytes]:
    return {"dev.json": json.dumps(rows).encode(), "id_aliases.json": jsonl({"Q_id": "Q1"})}


def changed(row: dict, **fields: Any) -> dict:
    return {key: value for key, value in {**row, **fields}.items() if value is not ...}


def strategy(**fields: Any) -> dict[str, bytes]:
    return {
        "strategyqa_train.json": json.dumps([changed(good.STRATEGY[1], **fields)]).encode(),
        "strategyqa_train_paragraphs.json": json.dumps(good.STRATEGY_PARAGRAPHS).encode(),
    }


def med(*rows: dict[str, Any]) -> dict[str, bytes]:
    found = [{**good.MEDMCQA[1], "id": str(n), **one} for n, one in enumerate(rows)]
    return {"data/validation-00000-of-00001.parquet": parquet(*found)}


def judged(*lines: tuple, queries: bytes = b"1\ta query\n") -> dict[str, bytes]:
    return {"qrels.dev.small.tsv": plain(*lines), "queries.dev.small.tsv": queries}


_WIKI = good.TWO_WIKI[1]
BAD = {
    "id twice": Bad(
        "boolq", {"boolq/dev.jsonl": jsonl(*good.BOOLQ[:1] * 2)}, "'0' is the id of two questions"
    ),
    "choice": Bad(
        "hotpotqa",
        hotpot(golden_answers=[2], choices=["x", "y"]),
        "line 2: field 'golden_answers' has 2; .* position of one, from 0 to 1",
    ),
    "letters": Bad(
        "hotpotqa",
        hotpot(golden_answers=[0], choices=["A", "B"]),
        "line 2: field 'choices' has the letters of the options only",
    ),
    "no choices": Bad(
        "siqa", {"siqa/dev.jsonl": jsonl(flashrag("1", "q", 0))}, "field 'choices' is missing"
    ),
    "no verdict": Bad(
        "fever",
        {"fever/dev.jsonl": jsonl(flashrag("1", "q", "NOT ENOUGH INFO"))},
        r"line 1: field 'golden_answers' is \['NOT ENOUGH INFO'\]; SUPPORTS or REFUTES",
    ),
    "paragraphs": Bad(
        "hotpotqa",
        hotpot(
            metadata={
                "supporting_facts": {"title": ["T"]},
                "context": {"title": ["T", "U"], "content": [["one"]]},
            }
        ),
        "line 2: field 'metadata.context.content' has 1 paragraphs for 2 titles",
    ),
    "training file cut": Bad(
        "nq",
        {
            "biencoder-nq-train.json": dpr_training(("q", ["1"]))[:-30],
            "nq/train.jsonl": jsonl(*good.NQ),
        },
        "element 1 is not JSON",
    ),
    "test file": Bad(
        "2wiki",
        two_wiki(changed(_WIKI, answer=...)),
        "element 1: field 'answer' is missing; is this the test file",
    ),
    "paragraph no pair": Bad(
        "2wiki",
        two_wiki(_WIKI, changed(_WIKI, context=[["T"]])),
        r"element 2: field 'context' item 1 is a list of 1; \[title, ...\] is needed",
    ),
    "sentences no texts": Bad(
        "2wiki",
        two_wiki(changed(_WIKI, context=[["T", [1]]])),
        "element 1: field 'context' has a paragraph that is not a list of sentences",
    ),
    "verdict a word": Bad(
        "strategyqa",
        strategy(answer="yes"),
        "element 1: field 'answer' is a string; true or false is needed",
    ),
    "paragraph missing": Bad(
        "strategyqa",
        strategy(evidence=[[[["Gone-1"]]]]),
        "element 1: field 'evidence' names 'Gone-1', which .*paragraphs.json does not have",
    ),
    "evidence a number": Bad(
        "strategyqa",
        strategy(evidence=[[7]]),
        "element 1: field 'evidence' has a number where a name is needed",
    ),
    "paragraphs cut": Bad(
        "strategyqa",
        {"strategyqa_train_paragraphs.json": b'{"One-1": {', "strategyqa_train.json": b"[]"},
        "not one JSON object",
    ),
    "option of five": Bad(
        "medmcqa", med({}, {"cop": 4}), "row 2: field 'cop' is 4; .* an option, from 0 to 3"
    ),
    "option blank": Bad(
        "medmcqa", med({"opd": " "}), "row 1: field 'cop' is 3, whose option is blank"
    ),
    "counted from 1": Bad(
        "medmcqa",
        med({"cop": 1, "exp": "Ans. (a)"}, {"cop": 2, "exp": "Ans is 'b'"}, {"exp": "Ans. d"}),
        "1 agree with 'cop' counted from 0 and 2 from 1: get the copy that counts from 0",
    ),
    "no such label": Bad(
        "arc_challenge",
        {"ARC-Challenge-Dev.jsonl": jsonl({**good.ARC[0], "answerKey": "D"})},
        "line 1: field 'answerKey' is 'D'; the labels are A, B, C",
    ),
    "judged twice": Bad(
        "msmarco",
        judged((1, 0, 7, 1), (1, 0, 7, 2)),
        "line 2: field 'grade' is 2, but passage '7' of query '1' has 1 on an earlier line",
    ),
    "query missing": Bad(
        "msmarco", judged((2, 0, 7, 1)), r": query '2' \(1 in all\) is not in .*queries.dev.small"
    ),
    "query twice": Bad(
        "msmarco",
        {**dict(reversed(judged((1, 0, 7, 1), queries=b"1\ta\n1\tb\n").items()))},
        "line 2: field 'id' '1' is the id of an earlier line too",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_files_are_refused_by_place_and_field(tmp_path: Path, name: str) -> None:
    bad = BAD[name]
    write(bad.files, tmp_path / "source")
    with pytest.raises(InputError, match=bad.expected) as caught:
        build(bad.name, tmp_path)
    message = str(caught.value)
    del caught  # it holds the frames of generators, and they files, until garbage is collected
    assert str(tmp_path / "source" / next(iter(bad.files))) in message
    assert not (tmp_path / "cache" / "sets").exists()
