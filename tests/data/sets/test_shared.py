"""Real questions, written in the published form of their set, are read back the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxrag.data.benchmark import Benchmark
from jaxrag.data.building import build_set, published_files
from jaxrag.data.dataset import Dataset
from jaxrag.data.downloads import Downloads
from jaxrag.data.question_kinds import gold_option
from jaxrag.data.sets import SETS
from jaxrag.retrieval.corpus.passages import write_passages
from jaxrag.types import Passage
from tests.data.sets.published import dpr_table, jsonl

SHARED = Path(
    os.environ.get("JAXRAG_SHARED_DATA", Path(__file__).parents[3].parent / "shared" / "data")
)


def read(name: str) -> list[dict]:
    """The first questions of a folder."""
    text = (SHARED / name / "queries.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.split("\n", 400)[:400]]


def passages_of(name: str) -> dict[str, Passage]:
    """The first gold passage of each question."""
    lines = (SHARED / name / "corpus.jsonl").read_text("utf-8").splitlines()
    corpus = {row["id"]: Passage(**row) for row in map(json.loads, lines)}
    lines = (SHARED / name / "qrels.jsonl").read_text("utf-8").splitlines()
    return {row["query_id"]: corpus[row["passage_ids"][0]] for row in map(json.loads, lines)}


def table(name: str) -> dict[str, bytes]:
    """DPR's table."""
    file = {"nq": "nq-test.qa.csv", "triviaqa": "trivia-test.qa.csv"}.get(name)
    rows = [(row["question"], row["answers"]) for row in read(name)]
    return {file or "webquestions-test.qa.csv": dpr_table(*rows)}


def boolq(name: str) -> dict[str, bytes]:
    gold = passages_of(name)
    rows = [
        {
            "question": row["question"],
            "title": gold[row["id"]].title,
            "answer": row["label"],
            "passage": gold[row["id"]].text,
        }
        for row in read(name)
    ]
    return {"boolq/dev.jsonl": jsonl(*rows)}


def squad(name: str) -> dict[str, bytes]:
    gold = passages_of(name)
    articles = [
        {
            "title": gold[row["id"]].title.replace(" ", "_"),
            "paragraphs": [
                {
                    "context": gold[row["id"]].text,
                    "qas": [
                        {
                            "id": row["id"],
                            "question": row["question"],
                            "answers": [{"text": one, "answer_start": 0} for one in row["answers"]],
                        }
                    ],
                }
            ],
        }
        for row in read(name)
    ]
    return {"dev-v1.1.json": json.dumps({"data": articles, "version": "1.1"}).encode()}


def arc(name: str) -> dict[str, bytes]:
    rows = []
    for number, row in enumerate(read(name)):
        labels = "ABCDE" if number % 10 else "12345"
        choices = [
            {"text": t, "label": label} for t, label in zip(row["choices"], labels, strict=False)
        ]
        key = labels["ABCDE".index(row["label"])]
        stem = {"stem": row["question"], "choices": choices}
        rows.append({"id": row["id"], "question": stem, "answerKey": key})
    return {"ARC-Challenge-Test.jsonl": jsonl(*rows)}


WRITERS: dict[str, tuple[str, Callable[[str], dict[str, bytes]]]] = {
    "nq": ("nq", table),
    "triviaqa": ("triviaqa", table),
    "webquestions": ("webq", table),
    "boolq": ("boolq", boolq),
    "squad": ("squad", squad),
    "arc_challenge": ("arc_challenge", arc),
}


@pytest.mark.parametrize("folder", WRITERS)
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is not there")
def test_real_questions(tmp_path, folder):
    name, writer = WRITERS[folder]
    for file, content in writer(folder).items():
        path = tmp_path / "source" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    files = published_files(SETS[name], Downloads(tmp_path / "files", tmp_path / "source"))
    build_set(SETS[name], files, tmp_path / "cache", any_size=True)
    rows = read(folder)
    found = questions_of(name, tmp_path)
    assert [q.text for q in found.questions] == [row["question"] for row in rows]
    assert [list(q.answers) for q in found.questions] == [
        list(dict.fromkeys(row["answers"])) for row in rows
    ]
    if name == "arc_challenge":
        assert [gold_option(q) for q in found.questions] == [
            "ABCDE".index(row["label"]) for row in rows
        ]
    if name in ("boolq", "squad"):
        gold = passages_of(folder)
        wanted = [(gold[row["id"]].title, gold[row["id"]].text) for row in rows]
        ids = [found.gold[q.id][0] for q in found.questions]
        assert [(p.title, p.text) for p in found.passages.find(ids)] == wanted


def questions_of(name: str, tmp_path: Path) -> Dataset:
    """The built questions, over the set's contexts, or over any passages where it has none."""
    own = tmp_path / "cache" / "corpora" / f"{name}-contexts"
    if own.is_dir():
        return Benchmark(name, corpus="contexts").load(tmp_path / "cache")
    write_passages(tmp_path / "any", [Passage("1", "", "text")])
    return Benchmark(name, corpus=str(tmp_path / "any")).load(tmp_path / "cache")
