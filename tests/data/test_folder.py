"""JSONL folders: loading, error messages, and conversion once for each content."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jaxrag.data import conversion, question_kinds
from jaxrag.data.dataset import lacking, unanswered
from jaxrag.data.folder import Folder
from jaxrag.types import InputError, Passage, Question

QUERIES = [
    {"id": "q1", "question": "Who wrote Emma?", "answers": ["Jane Austen", "Austen"]},
    {"id": "q2", "question": "Is water wet?", "answers": ["yes"], "choices": ["yes", "no"]},
]
CORPUS = [
    {"id": "p1", "title": "Emma", "text": "Emma is a novel by Jane Austen."},
    {"id": "p2", "title": "Water", "text": "Water is wet.", "source": "ignored"},
    {"id": "p3", "text": "No title."},
]
QRELS = [{"query_id": "q1", "passage_ids": ["p1", "p3"]}, {"query_id": "t1", "passage_ids": ["p2"]}]
TRAIN = [{"id": "t1", "question": "Wet?", "answers": ["yes"]}]


def jsonl(path: Path, rows: list) -> None:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.mkdir()
    for name, rows in (
        ("queries", QUERIES),
        ("corpus", CORPUS),
        ("qrels", QRELS),
        ("train", TRAIN),
    ):
        jsonl(path / f"{name}.jsonl", rows)
    return path


def test_reads_questions_passages_and_gold(source, tmp_path):
    dataset = Folder(str(source)).load(tmp_path / "cache")
    assert dataset.name == "source"
    assert dataset.questions == (
        Question("q1", "Who wrote Emma?", ("Jane Austen", "Austen")),
        Question("q2", "Is water wet?", ("yes",), ("yes", "no")),
    )
    assert list(dataset.passages) == [
        Passage("p1", "Emma", "Emma is a novel by Jane Austen."),
        Passage("p2", "Water", "Water is wet."),
        Passage("p3", "", "No title."),
    ]
    assert dataset.gold == {"q1": ("p1", "p3")}
    train = Folder(str(source), split="train").load(tmp_path / "cache")
    assert [question.id for question in train.questions] == ["t1"]
    assert train.gold == {"t1": ("p2",)}
    assert train.passages.identity == dataset.passages.identity
    assert train.identity != dataset.identity


def test_converts_once(source, tmp_path, monkeypatch):
    first = Folder(str(source)).load(tmp_path / "cache")

    def never(*args, **kwargs):
        raise AssertionError("converted again")

    monkeypatch.setattr(conversion, "write_passages", never)
    monkeypatch.setattr(conversion, "write_questions", never)
    again = Folder(str(source)).load(tmp_path / "cache")
    assert again.identity == first.identity
    assert again.questions == first.questions


def test_gold_passages_that_another_corpus_lacks_stay(source, tmp_path):
    pool = tmp_path / "pool"
    pool.mkdir()
    jsonl(pool / "corpus.jsonl", CORPUS[1:])
    dataset = Folder(str(source), corpus=str(pool)).load(tmp_path / "cache")
    assert [passage.id for passage in dataset.passages] == ["p2", "p3"]
    assert dataset.gold == {"q1": ("p1", "p3")}
    assert lacking(dataset, dataset.questions) == (
        "1 of 2 gold passages of source queries are not in the corpus: they count as not found in "
        "recall and nDCG, as in trec_eval"
    )
    whole = Folder(str(source)).load(tmp_path / "cache")
    assert lacking(whole, whole.questions) == ""


@pytest.mark.parametrize(
    ("file", "row", "said"),
    [
        ("queries", {"answer": ["x"]}, "line 2: field 'answer' is 'answers' on other lines"),
        ("queries", {"Answers": ["x"]}, "line 2: field 'Answers' is 'answers'"),
        ("queries", {"golden_answers": ["x"]}, "field 'golden_answers' is 'answers'"),
        ("queries", {"target": "x"}, "field 'target' is 'answers'"),
        ("queries", {"answerKey": "B"}, "field 'answerKey' is 'answers'"),
        ("queries", {"answers": ["yes"], "options": ["yes", "no"]}, "'options' is 'choices'"),
        ("queries", {"answers": ["yes"], "choice": ["yes", "no"]}, "'choice' is 'choices'"),
        ("corpus", {"text": "t", "titel": "T"}, "corpus.jsonl, line 2: field 'titel' is 'title'"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_field_that_one_line_misspells(source, tmp_path, file, row, said, first):
    other = {
        "id": "o",
        "question": "?",
        "answers": ["no"],
        "choices": ["yes", "no"],
        "text": "t",
        "title": "T",
    }
    rows = [other, {"id": "m", "question": "?"} | row]
    jsonl(source / f"{file}.jsonl", rows if first else [*rows[::-1], other | {"id": "p"}])
    (source / "qrels.jsonl").unlink()
    with pytest.raises(InputError, match=said if first else said.replace("line 2", "line 1")):
        Folder(str(source)).load(tmp_path / "cache")


def test_fields_that_all_lines_have_are_no_misspellings(source, tmp_path):
    rows = [
        QUERIES[0] | {"answer_type": "person"},
        {"id": "m", "question": "?", "answer_type": "x"},
    ]
    jsonl(source / "queries.jsonl", rows)
    dataset = Folder(str(source)).load(tmp_path / "cache")
    assert [question.answers for question in dataset.questions] == [("Jane Austen", "Austen"), ()]
    assert unanswered(dataset, dataset.questions).startswith(
        "1 of 2 questions of source queries have no gold answer"
    )
    assert unanswered(dataset, dataset.questions[:1]) == ""


@pytest.mark.parametrize("name", ["answer", "golden_answers", "label", "answerKey"])
def test_a_field_that_all_lines_misspell(source, tmp_path, name):
    jsonl(source / "queries.jsonl", [{"id": "q1", "question": "?", name: "x"}])
    with pytest.raises(InputError, match=f"line 1: field '{name}' is called 'answers' here"):
        Folder(str(source)).load(tmp_path / "cache")
    row = {"id": "q1", "question": "?", name: 1, "answer_type": "person"}  # of a classifier
    jsonl(source / "queries.jsonl", [row])
    assert Folder(str(source)).load(tmp_path / "cache").questions[0].answers == ()


@pytest.mark.parametrize(
    "written",
    [
        '["Lund", "City"]',
        "['Lund', 'City']",
        "('Lund', 'City')",
        "{'Lund'}",
        "array(['Lund', 'City'], dtype=object)",
        "{'text': ['Lund'], 'answer_start': [5]}",
        "['Lund', nan]",
        "[]",
    ],
)
def test_a_list_that_is_written_as_a_string_is_refused(source, tmp_path, written):
    jsonl(source / "queries.jsonl", [QUERIES[0] | {"answers": [written]}])
    with pytest.raises(InputError, match=r"'answers' item 1 is .*a list written as a string"):
        Folder(str(source)).load(tmp_path / "cache")
    jsonl(source / "queries.jsonl", [QUERIES[0] | {"answers": ["[Fe]", "(a, b)", "[1, 2]"]}])
    assert len(Folder(str(source)).load(tmp_path / "cache").questions[0].answers) == 3


@pytest.mark.parametrize(
    ("answers", "choices", "gold"),
    [
        (["B"], ["Oslo", "Lima"], ("Lima",)),
        (["(b)", "lima"], ["Oslo", "Lima"], ("Lima", "lima")),
        (["Option B"], ["Oslo", "Lima"], ("Lima",)),
        (["[\uff22]"], ["Oslo", "Lima"], ("Lima",)),
        (["A"], ["B", "A"], ("A",)),  # the text of a choice is no letter
        (["B) Lima"], ["(A)Oslo", "B) Lima"], ("Lima",)),  # their own letters are no part
        (["b) lima "], ["A) Oslo", "B) Lima"], ("Lima",)),
        (["b.c."], ["A.D.", "B.C."], ("b.c.",)),  # no letters
        (["C"], ["Oslo", "Lima"], None),
        (["Rome"], ["Oslo", "Lima"], None),
        (["lima", "the town"], ["Oslo", "Lima"], ("lima", "the town")),
    ],
)
def test_letters_of_choices(source, tmp_path, answers, choices, gold):
    jsonl(source / "queries.jsonl", [QUERIES[0] | {"answers": answers, "choices": choices}])
    if gold is None:
        with pytest.raises(InputError, match=r"Question q1: .* is none of its choices"):
            Folder(str(source)).load(tmp_path / "cache")
        return
    dataset = Folder(str(source)).load(tmp_path / "cache")
    assert dataset.questions[0].answers == gold


@pytest.mark.parametrize("task", ["open", "multiple_choice"])
def test_choices_without_their_letters_are_other_data(source, tmp_path, monkeypatch, task):
    """A run on choices with letters is not continued on the same without them."""
    row = QUERIES[0] | {"answers": ["B"], "choices": ["A. Oslo", "B. Lima"]}
    jsonl(source / "queries.jsonl", [row])
    bare = Folder(str(source), task=task).load(tmp_path / "cache")
    monkeypatch.setattr(question_kinds, "_OWN_LETTER", re.compile("(?!)"))
    lettered = Folder(str(source), task=task).load(tmp_path / "cache")
    assert bare.questions[0].answers == ("Lima",) and bare.identity != lettered.identity


def test_the_task_gives_letters_and_labels_of_fever_their_meanings(source, tmp_path):
    row = QUERIES[0] | {"answers": ["B"], "choices": ["Oslo", "Lima"]}
    jsonl(source / "queries.jsonl", [row])
    found = Folder(str(source), task="multiple_choice").load(tmp_path / "cache")
    assert found.questions[0].answers == ("Lima",)
    jsonl(source / "queries.jsonl", [QUERIES[0] | {"answers": ["REFUTES"]}])
    found = Folder(str(source), task="fact_checking").load(tmp_path / "cache")
    assert found.questions[0].answers == ("false",)
    jsonl(source / "queries.jsonl", [QUERIES[0] | {"answers": ["NOT ENOUGH INFO"]}])
    with pytest.raises(InputError, match=r"task fact_checking, but .*not true or false"):
        Folder(str(source), task="fact_checking").load(tmp_path / "cache")


LABELS = ("yes", "no", "maybe")


def test_labels_of_a_folder(source, tmp_path):
    rows = [
        {"id": "1", "question": "Wet?", "answers": ["Yes"]},
        {"id": "2", "question": "Dry?", "answers": ["maybe"], "choices": ["ignored"]},
    ]
    jsonl(source / "train.jsonl", rows)
    jsonl(source / "qrels.jsonl", [])
    settings = Folder(str(source), split="train", task="labels", labels=LABELS)
    dataset = settings.load(tmp_path / "cache")
    assert [(q.choices, q.task) for q in dataset.questions] == [(LABELS, "labels")] * 2
    others = Folder(str(source), split="train", task="labels", labels=("maybe", "no", "yes"))
    assert others.load(tmp_path / "cache").identity != dataset.identity
    for labels, said in ((("yes", "no"), "2: its gold answer 'maybe' is none of the labels"),
                         ((), r"1 has the labels \[\]")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            Folder(str(source), split="train", task="labels", labels=labels).load(tmp_path / "c")


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"task": "label"}, r"data.task is 'label'; allowed: open, .*labels"),
        ({"labels": LABELS}, r"data.labels is \['yes', 'no', 'maybe'\], and data.task 'open'"),
        ({"task": "labels", "labels": ("yes",)}, r"data.labels.*at least two"),
    ],
)
def test_settings_of_the_task_are_checked_at_once(settings, said):
    with pytest.raises(InputError, match=said):
        Folder("nowhere", **settings)


MALFORMED = {
    "half a character": (
        "queries",
        ['{"id": "q", "question": "\\ud800?", "answers": ["a"]}'],
        "line 1: field 'question' holds half of a surrogate pair",
    ),
    "same question id": (
        "queries",
        [QUERIES[0], QUERIES[0]],
        r"line 2: field 'id' 'q1' is the id of an earlier line",
    ),
    "no questions": ("queries", [], r"queries.jsonl: no questions; the file is empty"),
    "empty corpus": ("corpus", [], r"corpus.jsonl: no passages to write"),
    "same passage id": (
        "corpus",
        [*CORPUS, CORPUS[1]],
        r"corpus.jsonl: field 'id': 'p2' is the id of rows 2 and 4",
    ),
    "gold passage unknown": (
        "qrels",
        [QRELS[0] | {"passage_ids": ["p1", "p9"]}],
        r"qrels.jsonl: field 'passage_ids' of query 'q1': .* no passage 'p9'",
    ),
    "gold of unknown question": (
        "qrels",
        [*QRELS, {"query_id": "q9", "passage_ids": ["p1"]}],
        r"qrels.jsonl: field 'query_id': 'q9' \(1 in all\) is the id of no question",
    ),
    "gold twice": (
        "qrels",
        [QRELS[0], QRELS[0]],
        r"qrels.jsonl, line 2: field 'query_id' 'q1' has an earlier line",
    ),
}


def test_a_folder_of_documents_is_no_data_set(tmp_path):
    with pytest.raises(InputError, match=r"as jaxrag import makes it\); the folder has no JSONL"):
        Folder(str(tmp_path)).load(tmp_path / "cache")


@pytest.mark.parametrize("case", MALFORMED, ids=str)
def test_malformed_files_are_refused_by_line_and_field(source, tmp_path, case):
    name, rows, expected = MALFORMED[case]
    jsonl(source / f"{name}.jsonl", rows)
    with pytest.raises(InputError, match=expected) as caught:
        Folder(str(source)).load(tmp_path / "cache")
    assert str(source / f"{name}.jsonl") in str(caught.value)
    # A failed conversion leaves nothing behind.
    jsonl(source / "queries.jsonl", QUERIES)
    jsonl(source / "corpus.jsonl", CORPUS)
    jsonl(source / "qrels.jsonl", QRELS)
    assert len(Folder(str(source)).load(tmp_path / "cache").questions) == 2
