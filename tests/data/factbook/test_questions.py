"""Questions about three small made-up countries, worked by hand."""

from __future__ import annotations

from jaxrag.data.factbook.articles import Article, Place
from jaxrag.data.factbook.questions import (
    contains_any,
    country_names,
    questions_about,
    with_article,
)

CAPITAL = Place("Government", "Capital", "name")
CURRENCY = Place("Economy", "Exchange rates", "Currency")
BORDERS = Place("Geography", "Land boundaries", "border countries")


def country(code: str, name: str, texts: dict[Place, str]) -> Article:
    return Article(code, name, texts, country=True, sovereign=True)


ALBA = country(
    "aa",
    "Alba",
    {
        CAPITAL: "Altown",
        CURRENCY: "crowns (ALC) per US dollar -",
        BORDERS: "Bela 10 km",
        Place("Government", "Country name", "conventional long form"): "Republic of Alba",
    },
)
BELA = country(
    "bb",
    "Bela",
    {
        CAPITAL: "Bela City",
        CURRENCY: "crowns (ALC) per US dollar -",
        BORDERS: "Alba 10 km; Ceta 4 km",
    },
)
CETA = country("cc", "Ceta", {CAPITAL: "Ceta", BORDERS: "Bela 4 km"})


CROWN = ("crown", "crowns", "ALC")
THE_ALBA = ("Alba", "Republic of Alba")


def test_every_question_of_three_countries():
    questions, left_out = questions_about([ALBA, BELA, CETA])
    found = {question.id: (question.text, question.answers) for question in questions}
    via = {id_: found.pop(id_) for id_ in list(found) if id_.startswith("two_hop_via_only")}
    bordering = "the country that shares the longest land border with Bela"
    assert found == {
        "capital:aa": ("What is the capital of Alba?", ("Altown",)),
        "capital:bb": ("What is the capital of Bela?", ("Bela City",)),
        # Ceta's capital is Ceta: the answer would occur in the question.
        "currency:aa": ("What is the currency of Alba?", CROWN),
        "currency:bb": ("What is the currency of Bela?", CROWN),
        "only_neighbour:aa": (
            "Which is the only country that shares a land border with Alba?",
            ("Bela",),
        ),
        "only_neighbour:cc": (
            "Which is the only country that shares a land border with Ceta?",
            ("Bela",),
        ),
        "longest_border:bb": (
            "With which country does Bela share its longest land border?",
            THE_ALBA,
        ),
        "official_name:aa": (
            "What is the conventional long form of the name of Alba?",
            ("Republic of Alba",),
        ),
        # Not by currency, which two have, nor by the capitals that name their countries.
        "country_by_capital:aa": (
            "What is the name of the country whose capital is Altown?",
            THE_ALBA,
        ),
        "two_hop_by_capital:aa:currency": (
            "What is the currency of the country whose capital is Altown?",
            CROWN,
        ),
        "two_hop_via_longest_border:bb:capital": (
            f"What is the capital of {bordering}?",
            ("Altown",),
        ),
        "two_hop_via_longest_border:bb:currency": (f"What is the currency of {bordering}?", CROWN),
    }
    # Each asks for two of Bela's three facts, chosen by hash.
    assert 3 <= len(via) <= 4
    neighbour = "the country that is the only land neighbour of Ceta"
    assert via["two_hop_via_only_neighbour:cc:capital"] == (
        f"What is the capital of {neighbour}?",
        ("Bela City",),
    )
    assert left_out["description names its country"] == 2
    assert left_out["description fits several countries"] == 2
    assert left_out["answer occurs in the question"] >= 1


def test_two_hop_questions_have_evidence_from_both_articles():
    questions, _ = questions_about([ALBA, BELA, CETA])
    by_id = {question.id: question for question in questions}
    via = by_id["two_hop_via_only_neighbour:cc:capital"]
    assert [(one.code, one.place) for one in via.evidence] == [("cc", BORDERS), ("bb", CAPITAL)]
    assert via.countries == {"bb", "cc"}
    assert via.kind == "two_hop_via_only_neighbour"
    described = by_id["two_hop_by_capital:aa:currency"]
    assert [(one.code, one.place) for one in described.evidence] == [
        ("aa", CAPITAL),
        ("aa", CURRENCY),
    ]


def test_a_description_that_fits_an_unreadable_field_elsewhere_is_left_out():
    lion = {Place("Government", "National symbol(s)"): "lion"}
    lions = {Place("Government", "National symbol(s)"): "red lion, oak"}
    questions, left_out = questions_about(
        [country("aa", "Alba", lion), country("bb", "Bela", lions)]
    )
    assert [question.id for question in questions] == ["national_symbol:aa"]
    assert left_out == {"description fits several countries": 1}


def test_long_answers_are_left_out():
    long = {Place("Government", "National anthem(s)", "title"): '"One two three four five six"'}
    questions, left_out = questions_about([country("aa", "Alba", long)])
    assert left_out["answer longer than 5 words"] == 1
    assert [question.kind for question in questions] == ["country_by_national_anthem"]


def test_a_royal_anthem_is_no_national_anthem():
    anthem = {
        Place("Government", "National anthem(s)", "title"): '"Song of the King"',
        Place("Government", "National anthem(s)", "history"): "royal anthem; adopted 1844",
    }
    assert questions_about([country("aa", "Alba", anthem)])[0] == []


def test_articles_of_no_country_give_no_questions():
    world = Article("xx", "World", ALBA.texts, country=False, sovereign=False)
    assert questions_about([world])[0] == []


def test_country_names_and_articles():
    assert country_names(ALBA) == ("Alba", "Republic of Alba")
    assert [
        with_article(name) for name in ("Netherlands", "The Gambia", "Chad", "Cook Islands")
    ] == [
        "the Netherlands",
        "the Gambia",
        "Chad",
        "the Cook Islands",
    ]
    assert with_article("Republic of the Congo") == "the Republic of the Congo"
    assert with_article("Isle of Man") == "the Isle of Man"


def test_contains_any_finds_whole_words_regardless_of_case_and_diacritics():
    assert contains_any("Major urban areas: 1 million YAOUNDÉ (capital)", ("Yaounde",))
    assert contains_any("Code: .no.", (".no",))
    assert not contains_any("There is no code.", (".no",))
    assert not contains_any("Nigeria", ("Niger",))
    assert not contains_any("anything", ())
