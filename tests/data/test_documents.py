"""Documents become passages by the stated rule, with ids that stay."""

import hashlib
from pathlib import Path

import pytest

from jaxrag.api.rag import load
from jaxrag.data.documents import QuestionFile, documents, passages, questions, write_folder
from jaxrag.data.folder import Folder
from jaxrag.types import InputError, Passage, Question

MARKDOWN = """```
# Bees
hive
==
```
Bees
====

Bees live
in hives.

    # s
    calms

1. ```
   # h
    ```

 ## Honey
Honey is made in June.
"""
PAGE = """<html><head><title>The
 mill</title><style>p {}</style></head><body><h1>Rye</h1><p>The <b>mill</b> grinds
rye.<script>bad()</script></p><noscript><style>p {}</style>no</noscript><ul><li>CO<sub>2</sub></li>
<li><u>t</u>wo<wbr>s<svg><title>drawn</title></svg></li></ul>"""


def with_hash(name: str, title: str, text: str) -> tuple[str, str, str]:
    return f"{name}#{hashlib.sha256(text.encode()).hexdigest()[:8]}", title, text


def found(folder: Path, words: int = 100) -> list[tuple[str, str, str]]:
    every = (one for document in documents(folder) for one in passages(document, words))
    return [(one.id, one.title, one.text) for one in every]


def test_each_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "bees.md").write_text(MARKDOWN)
    (tmp_path / "grain.csv").write_text('id,title,text\n7,Rye,"Rye, a ""grain""."\n8,,Oats\n')
    (tmp_path / "rows.jsonl").write_text('{"text": "No id."}\n')
    (tmp_path / "sub" / "mill.html").write_text(PAGE)
    (tmp_path / "open.html").write_text("<title>Oat<script>bad()</script></head><p>grows")
    (tmp_path / "words.txt").write_text("\ufeffA word.\n\n\nTwo\nwords.\n")
    (tmp_path / "left.out").write_text("x")
    assert found(tmp_path) == [
        with_hash(
            "bees.md", "Bees", "``` # Bees hive == ``` Bees live in hives. # s calms 1. ``` # h ```"
        ),
        with_hash("bees.md", "Bees", "Honey Honey is made in June."),
        ("7", "Rye", 'Rye, a "grain".'),
        ("8", "grain", "Oats"),
        with_hash("open.html", "Oat", "grows"),
        with_hash("rows.jsonl", "rows", "No id."),
        with_hash("sub/mill.html", "The mill", "Rye The mill grinds rye. CO2 twos"),
        with_hash("words.txt", "words", "A word. Two words."),
    ]


def test_passages_have_whole_paragraphs_then_sentences_then_words(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("One two.\n\nThree.\n\nFour five. Six seven eight nine ten. Eleven.\n")
    texts = [text for *_, text in found(tmp_path, 4)]
    assert texts == ["One two. Three.", "Four five.", "Six seven eight nine", "ten. Eleven."]
    before = found(tmp_path, 4)
    file.write_text("Zero one two three.\n\n" + file.read_text())
    assert found(tmp_path, 4)[1:] == before  # ids stay


def test_questions_of_each_kind_of_file(tmp_path: Path) -> None:
    rows = {
        "q.txt": "Who?\tI\tmyself\nWhere?\n",
        "q.csv": "question,answer\nWho?,I\nWhere?,\n",
        "q.jsonl": '{"id": 3, "question": "Who?", "answers": ["I"]}\n{"question": "Where?"}\n',
    }
    for name, text in rows.items():
        (tmp_path / name).write_text(text)
        who, where = questions(tmp_path / name)
        assert (who.text, who.answers[:1]) == ("Who?", ("I",))
        assert (where.text, where.answers) == ("Where?", ())
        assert where.id == f"q{hashlib.sha256(b'Where?').hexdigest()[:8]}"
        assert who.id == {"q.jsonl": "3"}.get(name, who.id)
    (tmp_path / "q.csv").write_text("question,answer\nWho?,['I']\n")
    with pytest.raises(InputError, match=r"'answer' item 1 is .* a list written as a string"):
        list(questions(tmp_path / "q.csv"))


def test_a_folder_is_written_and_loaded(tmp_path: Path) -> None:
    one = Passage("a", "t", "Text.")
    asked = [Question("q", "Who?", ("I",)), Question("r", "Where?", ())]
    assert write_folder(tmp_path / "data", [one, one], asked) == (1, 2)
    loaded = Folder(str(tmp_path / "data")).load(tmp_path / "cache")
    assert [(q.id, q.answers) for q in loaded.questions] == [("q", ("I",)), ("r", ())]
    assert loaded.passages.get([0]) == [one]
    with pytest.raises(InputError, match="Two passages have the id 'a'"):
        write_folder(tmp_path / "data", [one, Passage("a", "t", "Other.")])
    (tmp_path / "data" / "queries.jsonl").unlink()
    assert not Folder(str(tmp_path / "data")).load(tmp_path / "cache").questions


def test_what_is_no_document_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no document: no file ends in \.txt"):
        list(documents(tmp_path))
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"a\.txt: not UTF-8"):
        list(documents(tmp_path))
    (tmp_path / "a.txt").write_text(" \n")
    with pytest.raises(InputError, match="There is no passage"):
        write_folder(tmp_path / "data", (p for one in documents(tmp_path) for p in passages(one)))
    for above in (tmp_path, tmp_path / "a" / "..", tmp_path.parent):
        with pytest.raises(InputError, match=r"holds the documents: write .* to another directory"):
            list(documents(tmp_path, leave=above))
    (tmp_path / "a.txt").write_text("Text.")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "b.txt").write_text("Made of it.")
    leave = tmp_path / "x" / ".." / "data"
    assert [one.id for one in documents(tmp_path, leave=leave)] == ["a.txt"]
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match=r"a\.txt has 1,099,511,627,776 bytes, of at most"):
        list(documents(tmp_path))


def test_a_page_that_would_take_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxrag.data.documents._HTML._limits", (1.0, 1 << 29))
    monkeypatch.setattr("jaxrag.data.documents._HTML._process", None)
    (tmp_path / "a.html").write_text("<a<" * 100_000)
    with pytest.raises(InputError, match=r"a\.html: its HTML cannot be read: it takes over 1 s"):
        list(documents(tmp_path))


def test_questions_of_a_file_are_each_answered(tmp_path: Path) -> None:
    file = tmp_path / "q.csv"
    file.write_text("id,question\n1,Who?\n1,Where?\n")
    asked = QuestionFile(str(file), Folder(str(tmp_path)))
    with pytest.raises(InputError, match=r"q\.csv has two questions with the id '1'"):
        asked.load(tmp_path)
    (tmp_path / "q.txt").write_text("Who\u2028is\x0cit?\tAda\n")
    assert [one.answers for one in questions(tmp_path / "q.txt")] == [("Ada",)]
    for line in ("\tAda", "question\tanswer", "ID\tquestion"):
        (tmp_path / "q.txt").write_text(f"{line}\nWho?\nid\n")
        with pytest.raises(InputError, match=rf"q\.txt: the line .*{line[-3:]}' begins with no"):
            list(questions(tmp_path / "q.txt"))
    (tmp_path / "q.json").write_text('[{"question": "Who?",\n "answer": "Ada"}]')
    assert [(q.text, q.answers) for q in questions(tmp_path / "q.json")] == [("Who?", ("Ada",))]
    file.write_text("id,question\n")
    with pytest.raises(InputError, match=r"q\.csv has no question"):
        asked.load(tmp_path)
    with pytest.raises(InputError, match="there is no file of questions"):
        list(questions(tmp_path / "none.txt"))


def test_passages_and_questions_from_python(tmp_path: Path) -> None:
    given = ["Bees live in hives.", Passage("m", "Mill", "The mill grinds rye.")]
    cache = {"cache": str(tmp_path)}
    asked = [Question("q", "Who?", ("I",)), "Where?"]
    rag = load("configs/dtr.py:dtr@tiny", cache, passages=given, questions=asked)
    loaded = rag.settings.data.load(tmp_path)
    assert [one.title for one in loaded.passages.get([0, 1])] == ["", "Mill"]
    assert [q.text for q in loaded.questions] == ["Who?", "Where?"] and rag.settings.limit == 0
    again = load("configs/dtr.py:dtr@tiny", cache, passages=given, questions=asked)
    assert again.settings == rag.settings
    with pytest.raises(InputError, match="questions come with passages"):
        load("configs/dtr.py:dtr@tiny", questions=asked)
