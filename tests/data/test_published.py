"""`Published`: files in published forms, told by their fields; converted once; refused clearly."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from jaxrag.data.published import Published, find_source
from jaxrag.retrieval.corpus.passages import write_passages
from jaxrag.types import InputError, Passage


def jsonl(path: Path, *rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


FLASHRAG = [
    {"id": "test_0", "question": "who?", "golden_answers": ["A", "B"]},
    {"id": "test_1", "question": "which?", "golden_answers": [1], "choices": ["x", "y"]},
]
CTX = {"title": "T", "text": "text", "passage_id": "9"}
NO = {"title": "N", "text": "no", "psg_id": "30"}
DPR = [{"question": "who?", "answers": ["A"], "positive_ctxs": [CTX], "negative_ctxs": [NO]}]
HOTPOT = [
    {
        "_id": "h1",
        "question": "q",
        "answer": "yes",
        "supporting_facts": [["T", 0], ["gone", 0]],
        "context": [["T", ["text"]], ["U", ["other"]]],
    }
]


@pytest.fixture
def cache(tmp_path):
    """A cache with a small corpus called psgs_w100."""
    passages = [Passage("9", "T", "text"), Passage("10", "U", "other")]
    write_passages(tmp_path / "cache" / "corpora" / "psgs_w100", passages)
    return tmp_path / "cache"


def forms(tmp_path: Path) -> dict[str, Path]:
    """A file of each form, under one name that tells nothing."""
    found = {}
    for form, text in {
        "FlashRAG's JSONL": "".join(json.dumps(row) + "\n" for row in FLASHRAG),
        "KILT's JSONL": '{"id": "k", "input": "who?", "output": [{"answer": "A"}]}\n',
        "DPR's table": "who?\t['A', 'B']\n",
        "DPR's training JSON": json.dumps(DPR, indent=2),
        "HotpotQA's JSON": json.dumps(HOTPOT),
    }.items():
        path = tmp_path / form.split()[0] / form.split()[-1] / "data.test"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        found[form] = path
    return found


def test_the_form_is_told_by_the_fields(tmp_path):
    for form, path in forms(tmp_path).items():
        assert find_source(path, "test").form == form
        packed = path.with_name("packed")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert find_source(packed, "test").form == form


def test_questions_over_a_built_corpus(cache, tmp_path):
    path = jsonl(tmp_path / "nq" / "test.jsonl", *FLASHRAG)
    dataset = Published(str(path.parent), corpus="psgs_w100").load(cache)
    assert dataset.name == "nq"
    assert [question.answers for question in dataset.questions] == [("A", "B"), ("y",)]
    assert dataset.gold == {}
    assert [passage.id for passage in dataset.passages] == ["9", "10"]
    by_path = Published(str(path), corpus=str(cache / "corpora" / "psgs_w100")).load(cache)
    assert by_path.questions == dataset.questions
    own = jsonl(tmp_path / "mine" / "corpus.jsonl", {"id": "9", "text": "A"}).parent
    by_folder = Published(str(path), corpus=str(own)).load(cache)
    assert [passage.id for passage in by_folder.passages] == ["9"]


def test_gold_passages_are_those_of_the_corpus(cache, tmp_path):
    path = tmp_path / "biencoder-nq-dev.json"
    positive = [{**CTX, "passage_id": name} for name in ("77", "78")]
    path.write_text(json.dumps([*DPR, {**DPR[0], "positive_ctxs": positive}]))
    searched = Published(str(path), split="dev", corpus="psgs_w100").load(cache)
    assert searched.gold == {"dev_0": ("9",), "dev_1": ("77",)}  # 77 is not in the corpus
    own = Published(str(path), split="dev").load(cache)
    assert own.gold == {"dev_0": ("9",), "dev_1": ("77",)}
    assert [passage.id for passage in own.passages] == ["9", "30", "77", "78"]
    assert own.identity != searched.identity


def test_supporting_titles_are_gold_of_a_corpus_of_titles(tmp_path):
    cache = tmp_path / "cache"
    write_passages(cache / "corpora" / "hotpotqa_abstracts", [Passage("T", "T", "text")])
    path = tmp_path / "hotpot_dev_distractor_v1.json"
    path.write_text(json.dumps(HOTPOT))
    found = Published(str(tmp_path), split="dev", corpus="hotpotqa_abstracts").load(cache)
    assert found.gold == {"h1": ("T", "gone")}  # "gone" is not in the corpus
    own = Published(str(path), split="dev").load(cache)
    assert [passage.title for passage in own.passages] == ["T", "U"]
    assert own.gold == {"h1": (own.passages[0].id, "gone")}


def test_a_supporting_paragraph_may_be_the_context_of_another_question(tmp_path):
    """HotpotQA's fullwiki files, and FlashRAG's: what was not retrieved for a question is gold."""
    other = HOTPOT[0] | {"_id": "h2", "context": [["gone", ["found"]]], "supporting_facts": []}
    path = tmp_path / "fullwiki.json"
    path.write_text(json.dumps([*HOTPOT, other]))
    metadata = [
        {"supporting_facts": {"title": titles}, "context": {"title": [t], "sentences": [[s]]}}
        for titles, t, s in ((["T", "gone"], "T", "text"), (["gone"], "gone", "found"))
    ]
    rows = [FLASHRAG[0] | {"id": f"f{i}", "metadata": one} for i, one in enumerate(metadata)]
    for file in (path, jsonl(tmp_path / "test.jsonl", *rows)):
        found = Published(str(file)).load(tmp_path / "cache")
        ids = {passage.title: passage.id for passage in found.passages}
        assert found.gold[found.questions[0].id] == (ids["T"], ids["gone"])


def beir(folder: Path) -> Path:
    jsonl(
        folder / "corpus.jsonl",
        {"_id": "d1", "title": "", "text": "one"},
        {"_id": "d2", "title": "Two", "text": ""},
    )
    jsonl(folder / "queries.jsonl", {"_id": "q1", "text": "which?"}, {"_id": "q2", "text": "?"})
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text(
        'query-id\tcorpus-id\tscore\nq1\td1\t0\n"q1"\td2\t2\nq1\t"""Lost"" one"\t1\nq1\t"L"x"\t1\n'
    )
    return folder


def test_a_folder_of_beir_with_grades(tmp_path):
    dataset = Published(str(beir(tmp_path / "nfcorpus"))).load(tmp_path / "cache")
    assert [(one.id, one.text, one.answers) for one in dataset.questions] == [("q1", "which?", ())]
    assert [passage.id for passage in dataset.passages] == ["d1", "d2"]
    assert dataset.gold == {"q1": ("d2", '"Lost" one', '"L"x"')}
    assert dataset.grades == {"q1": {"d1": 0, "d2": 2, '"Lost" one': 1, '"L"x"': 1}}
    assert dataset.questions[0].hidden == ()
    jsonl(tmp_path / "nfcorpus/queries.jsonl", {"_id": "d1", "text": "one"})
    (tmp_path / "nfcorpus/qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\nd1\td2\t1\n")
    dataset = Published(str(tmp_path / "nfcorpus"), split="dev").load(tmp_path / "cache")
    assert dataset.questions[0].hidden == ("d1",)  # the query is a passage, too


def test_trec_queries_with_judgements_beside(tmp_path):
    cache = tmp_path / "cache"
    write_passages(cache / "corpora" / "msmarco", [Passage("7", "", "seven")])
    (tmp_path / "queries.dev.tsv").write_text('q1\twhat "is" it\nq2\tother\n')
    (tmp_path / "qrels.dev.tsv").write_text("q1\t0\t7\t1\n")
    dataset = Published(str(tmp_path), split="dev", corpus="msmarco").load(cache)
    assert [(one.id, one.text) for one in dataset.questions] == [("q1", 'what "is" it')]
    assert dataset.gold == {"q1": ("7",)}


@pytest.mark.parametrize("first", ['"open quote', "[official video] song", "['a']", "[] {}"])
def test_the_first_query_does_not_decide_the_form(tmp_path, first):
    """TREC's tables have no quotes; DPR's table is told by most of its rows."""
    rows = [first, "other", "third"]
    (tmp_path / "queries.test.tsv").write_text("".join(f"q{i}\t{t}\n" for i, t in enumerate(rows)))
    (tmp_path / "qrels.test.tsv").write_text("".join(f"q{i}\t0\td\t1\n" for i in range(3)))
    source = find_source(tmp_path, "test")
    assert [row.question.text for row in source.rows()] == rows
    for opening in ("[live] who", '{"a"} who', "who"):
        (tmp_path / "qrels.test.tsv").unlink(missing_ok=True)
        (tmp_path / "queries.test.tsv").unlink(missing_ok=True)
        table = f'''{opening}\t['a']\n"b ""x"""\t"[""a"", 'b']"\n'''
        (tmp_path / "nq-test.qa.csv").write_text(table)
        (row, _) = find_source(tmp_path, "test").rows()
        assert (row.question.text, row.question.answers) == (opening, ("a",))


REFUSED = {
    "unknown fields": ({"test.jsonl": '{"a": 1}'}, r"test.jsonl: in no known form. .* has a; for "
        r"FlashRAG's JSONL lacks id, question, golden_answers; KILT's JSONL lacks id, input"),
    "unknown list": ({"test.json": '[{"question": "q"}]'}, "element has question; for DPR's "
        "training JSON lacks answers, positive_ctxs; HotpotQA's"),
    "own form": ({"test.jsonl": '{"id": "1", "question": "q", "answers": ["a"]}'}, "own form"),
    "beir file": ({"test.jsonl": '{"_id": "1", "text": "q"}'}, "a file of BEIR .* name the folder"),
    "columns": ({"test.tsv": "a\tb\tc\n"}, r"first line has 3 columns between tabs \(a \| b"),
    "empty": ({"test.csv": " \n"}, "test.csv: the file is empty"),
    "no split": ({"dev.jsonl": "{}"}, "no file of the split 'test' .* it has dev.jsonl"),
    "nothing": ({}, "it has nothing"),
    "several": ({"test.jsonl": "{}", "nq-test.qa.csv": ""}, r"several files .* \(nq-test.qa.csv"),
    "no judgements": ({"queries.test.tsv": "1\tq\n"}, "its judgements are needed beside it, as "
        "qrels.test.tsv .*; found: none"),
    "an open list": ({"test.csv": "q\t['a'\n"}, "line 1: field 'answers' .* as Python writes it"),
    "judgements twice": (
        {"queries.test.tsv": "1\tq\n", "a.qrels.tsv": "", "b.qrels.tsv": ""},
        "its judgements are needed .*; found: a.qrels.tsv, b.qrels.tsv",
    ),
    "a mixture": (
        {"test.jsonl": json.dumps(FLASHRAG[0]) + '\n{"id": "k", "input": "q", "output": []}\n'},
        "test.jsonl, line 2: field 'question' is missing; the line has id, input, output",
    ),
    "an id twice": (
        {"test.jsonl": 2 * (json.dumps(FLASHRAG[0]) + "\n")},
        "test.jsonl: question 2 has the id 'test_0' of an earlier one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_other_files_are_refused(cache, tmp_path, case):
    files, expected = REFUSED[case]
    folder = tmp_path / "data"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(InputError, match=expected):
        Published(str(folder), corpus="psgs_w100").load(cache)


def test_what_brings_no_passages_needs_a_corpus(cache, tmp_path):
    path = jsonl(tmp_path / "test.jsonl", *FLASHRAG)
    with pytest.raises(InputError, match=r"brings no passages: name the corpus"):
        Published(str(path)).load(cache)
    with pytest.raises(InputError, match="the corpus wiki18_100w is not built"):
        Published(str(path), corpus="wiki18_100w").load(cache)
    with pytest.raises(InputError, match="nowhere: no such file or folder"):
        Published(str(tmp_path / "nowhere")).load(cache)


@pytest.mark.parametrize("rows", ["q1\td1\t1\n", "1\t2\t1\n", "query_id\tcorpus_id\tscore\n", ""])
def test_judgements_of_beir_without_their_header(tmp_path, rows):
    folder = beir(tmp_path / "nfcorpus")
    (folder / "qrels/test.tsv").write_text(rows)
    with pytest.raises(InputError, match=r"test\.tsv.* header line .*query-id, corpus-id, score"):
        Published(str(folder)).load(tmp_path / "cache")


def test_a_folder_of_beir_without_the_split(tmp_path):
    folder = beir(tmp_path / "nfcorpus")
    with pytest.raises(InputError, match=r"needs qrels/dev.tsv; its qrels/ has test.tsv"):
        Published(str(folder), split="dev").load(tmp_path / "cache")
