"""Real questions written in their sets' published forms are read as they are."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxrag.data.benchmark import Benchmark
from jaxrag.data.building import build_set, published_files
from jaxrag.data.downloads import Downloads
from jaxrag.data.sets import SETS
from tests.data.sets.more_published import table
from tests.data.sets.published import jsonl

SHARED = Path(
    os.environ.get("JAXRAG_SHARED_DATA", Path(__file__).parents[3].parent / "shared" / "data")
)
pytestmark = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"no data at {SHARED}; set JAXRAG_SHARED_DATA to its folder"
)


def rows_of(name: str, file: str = "queries") -> list[dict[str, Any]]:
    lines = (SHARED / name / f"{file}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def build(name: str, tmp_path: Path, **files: bytes) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    for file, data in files.items():
        (source / file).write_bytes(data)
    published = SETS[name]
    found = published_files(published, Downloads(tmp_path / "files", source))
    build_set(published, found, tmp_path / "cache", any_size=True)
    return tmp_path / "cache"


def test_hotpotqa(tmp_path):
    """Paragraphs become official [title, sentences]; gold passages have the supporting titles."""
    passages = {row["id"]: row for row in rows_of("hotpotqa", "corpus")}
    gold = {row["query_id"]: row["passage_ids"] for row in rows_of("hotpotqa", "qrels")}
    others = [row["id"] for row in rows_of("hotpotqa", "corpus")[:8]]
    questions = [row for row in rows_of("hotpotqa") if row["id"] in gold]
    official = [
        {
            "_id": row["id"],
            "answer": row["answers"][0],
            "question": row["question"],
            "supporting_facts": [[title, 0] for title in row["supporting_titles"]],
            "context": [
                [passages[one]["title"], [f"{part}." for part in passages[one]["text"].split(".")]]
                for one in dict.fromkeys([*others, *gold[row["id"]]])
            ],
            "type": row["type"],
            "level": row["level"],
        }
        for row in questions
    ]
    data = json.dumps(official).encode()
    cache = build("hotpotqa", tmp_path, **{"hotpot_dev_distractor_v1.json": data})
    dataset = Benchmark("hotpotqa", corpus="contexts").load(cache)
    assert [(one.id, one.text) for one in dataset.questions] == [
        (row["id"], row["question"]) for row in questions
    ]
    titles = {one.id: one.title for one in dataset.passages}
    for row in questions:
        found = {titles[one] for one in dataset.gold[row["id"]]}
        assert found == set(row["supporting_titles"])


def test_2wiki(tmp_path):
    """A passage's id is its title; of real paragraphs with one title the first is kept."""
    passages, questions = rows_of("2wikimultihopqa", "corpus"), rows_of("2wikimultihopqa")
    official = [
        {
            "_id": row["id"],
            "type": "compositional",
            "question": row["question"],
            "context": [[one["title"], [one["text"]]] for one in passages[number::1000]],
            "supporting_facts": [[passages[number]["title"], 0]],
            "evidences": [],
            "answer": row["answers"][0],
        }
        for number, row in enumerate(questions)
    ]
    cache = build("2wiki", tmp_path, **{"dev.json": json.dumps(official).encode()})
    dataset = Benchmark("2wiki").load(cache)
    assert [(one.id, one.text, one.answers) for one in dataset.questions] == [
        (row["id"], row["question"], (row["answers"][0],)) for row in questions
    ]
    written = (one for row in official for one in row["context"])
    first = {title: text for title, (text,) in reversed([*written])}
    assert {one.id: one.text for one in dataset.passages} == first
    assert dataset.gold == {row["_id"]: (row["supporting_facts"][0][0],) for row in official}


def test_strategyqa(tmp_path):
    """The paragraphs that any annotator named are a question's contexts, and gold."""
    judged = {row["query_id"]: row["annotator_sets"] for row in rows_of("strategyqa", "qrels")}
    questions = [row for row in rows_of("strategyqa") if row["id"] in judged][:300]
    paragraphs = {
        row["id"]: {"title": row["title"], "section": "", "content": row["text"]}
        for row in rows_of("strategyqa", "corpus")
    }
    official = [
        {
            "qid": row["id"],
            "term": row["term"],
            "question": row["question"],
            "answer": row["label"],
            "facts": row["facts"],
            "decomposition": row["decomposition"],
            "evidence": [[[names], ["operation"], "no_evidence"] for names in judged[row["id"]]],
        }
        for row in questions
    ]
    files = {
        "strategyqa_train.json": json.dumps(official).encode(),
        "strategyqa_train_paragraphs.json": json.dumps(paragraphs).encode(),
    }
    dataset = Benchmark("strategyqa").load(build("strategyqa", tmp_path, **files))
    assert [(one.id, one.text, one.answers) for one in dataset.questions] == [
        (row["id"], row["question"], tuple(row["answers"])) for row in questions
    ]
    for row in questions:
        assert {*dataset.gold[row["id"]]} == {*itertools.chain(*judged[row["id"]])}
    for passage in dataset.passages:
        fields = paragraphs[passage.id]
        assert (passage.title, passage.text) == (fields["title"], fields["content"])


def test_pubhealth(tmp_path):
    """Real claims, whose labels are not at hand: true and false in turns, one in five neither."""
    claims = [row["question"] for row in rows_of("pubhealth_unlabelled", "claims")]
    labels = [("true", "false", "true", "false", "mixture")[i % 5] for i in range(len(claims))]
    data = table(("claim_id", "claim", "label"), *zip(range(987), claims, labels, strict=True))
    published = SETS["pubhealth"]
    (tmp_path / "source" / "pubhealth").mkdir(parents=True)
    (tmp_path / "source" / "pubhealth" / "test.tsv").write_bytes(data)
    files = published_files(published, Downloads(tmp_path / "files", tmp_path / "source"))
    found = [row.question for row in published.rows(files["test"], "test")]
    assert [(one.id, one.text, one.answers) for one in found] == [
        (f"test_{i}", claim, (label,))
        for i, (claim, label) in enumerate(zip(claims, labels, strict=True))
        if label != "mixture"
    ]


def _popqa(row: dict[str, Any]) -> list[Any]:
    answers = json.dumps(row["answers"])
    return [row["id"], row["s_pop"], row["question"], answers]


def _ambigqa(row: dict[str, Any]) -> dict[str, Any]:
    pairs = [{"question": one["question"], "answer": one["answers"]} for one in row["qa_pairs"]]
    single = {"type": "singleAnswer", "answer": row["answers"]}
    several = [{"type": "multipleQAs", "qaPairs": pairs}] if pairs else []
    return {"id": row["id"], "question": row["question"], "annotations": [single, *several]}


def _medmcqa(row: dict[str, Any]) -> dict[str, Any]:
    options = dict(zip(("opa", "opb", "opc", "opd"), row["choices"], strict=True))
    explanation = f"Ans. ({row['label'].lower()})"
    return {
        "id": row["id"],
        "question": row["question"],
        "cop": "ABCD".index(row["label"]) + 1,
        "exp": explanation,
        "subject_name": row["subject"],
        **options,
    }


WRITERS: dict[str, tuple[str, Callable[[list[dict[str, Any]]], bytes]]] = {
    "popqa": (
        "popQA.tsv",
        lambda rows: table(("id", "s_pop", "question", "possible_answers"), *map(_popqa, rows)),
    ),
    "ambigqa": ("dev_light.json", lambda rows: json.dumps([*map(_ambigqa, rows)]).encode()),
    "medmcqa": ("dev.json", lambda rows: jsonl(*map(_medmcqa, rows))),
}


@pytest.mark.parametrize("name", WRITERS)
def test_questions_and_answers(tmp_path, name):
    file, write = WRITERS[name]
    rows = [row for row in rows_of(name) if "s_pop" in row or name != "popqa"]
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / file).write_bytes(write(rows))
    published = SETS[name]
    files = published_files(published, Downloads(tmp_path / "files", tmp_path / "source"))
    split = published.EVALUATED
    found = [row.question for row in published.rows(files[split], split)]
    assert len(found) == len(rows) > 900
    for question, row in zip(found, rows, strict=True):
        assert (question.id, question.text) == (row["id"], row["question"])
        assert set(question.answers) == set(row["answers"])
        assert list(question.choices) == row.get("choices", [])
