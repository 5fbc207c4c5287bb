import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.text.answers import (
    contains,
    exact_match,
    has_answer,
    normalize,
    sub_em,
    token_f1,
    unify,
)
from jaxrag.types import InputError

WORDS = st.sampled_from(["yes", "no", "the", "a", "Paris", "paris.", "1,000", "New", "York", "!"])
TEXTS = st.one_of(st.text(max_size=20), st.lists(WORDS, max_size=6).map(" ".join))
FEW = settings(max_examples=100, deadline=None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel\tTower!", "eiffel tower"),
        ("U.S.", "us"),
        ("1,000", "1000"),
        ("an apple, a day", "apple day"),
        ("Theatre", "theatre"),  # an article only as a whole word
        ("a-b", "ab"),  # punctuation goes before the articles do
        ("São Paulo", "são paulo"),
        ("The", ""),
        ("", ""),
    ],
)
def test_normalize(text: str, expected: str) -> None:
    assert normalize(text) == expected


def test_exact_match_takes_any_alias() -> None:
    assert exact_match("the UK.", ("United Kingdom", "UK")) == 1.0
    assert exact_match("UK now", ("United Kingdom", "UK")) == 0.0
    assert exact_match("UK", ()) == 0.0


def test_token_f1_worked_by_hand() -> None:
    # 2 shared of 3 predicted and 2 gold: P = 2/3, R = 1, F1 = 4/5.
    assert token_f1("big new york", "the New York") == pytest.approx(0.8)
    # "x" is shared once although the prediction has it twice: P = 1/2, R = 1/2.
    assert token_f1("x x", "x y") == pytest.approx(0.5)
    assert token_f1("", "x") == 0.0


def test_token_f1_knows_verdicts() -> None:
    assert token_f1("yes it is", "yes") == 0.0
    assert token_f1("no", "no one") == 0.0
    assert token_f1("yes", "no") == 0.0
    assert token_f1("Yes.", "yes") == 1.0
    assert token_f1("noanswer", "noanswer given") == 0.0


def test_contains_whole_tokens_only() -> None:
    assert contains("It is the city of Paris, France.", ("Lyon", "Paris")) == 1.0
    assert contains("parishes", ("Paris",)) == 0.0
    assert contains("the new york times", ("New York",)) == 1.0
    assert contains("new, the york", ("New York",)) == 1.0  # what normalising makes adjacent
    assert contains("anything", ("The", "!")) == 0.0
    assert contains("anything", ()) == 0.0


@pytest.mark.parametrize(
    ("prediction", "answer", "right"),
    [
        ("The The", "the the", 1.0),
        ("the", "A", 1.0),  # as in SQuAD's script
        ("!!!", "!!!", 1.0),
        ("", "The The", 0.0),
        (" \n", "!!!", 0.0),
        ("\u200b", "A", 0.0),
        ("...", "The The", 0.0),
    ],
)
def test_answers_of_articles_or_signs_only(prediction: str, answer: str, right: float) -> None:
    scores = exact_match, contains, sub_em
    assert [score(prediction, [answer]) for score in scores] == [right] * 3
    assert token_f1(prediction, answer) == right


def test_such_an_answer_is_contained_as_it_is_written() -> None:
    assert contains("It is vitamin A.", ["A"]) == 1.0
    assert contains("a band called The The", ["The The"]) == 1.0
    assert contains("it is a dog", ["A"]) == sub_em("it is a dog", ["A"]) == 0.0


def test_sub_em_looks_for_characters() -> None:
    assert (sub_em("the party", ["Art"]), contains("the party", ["Art"])) == (1.0, 0.0)
    assert sub_em("x", ["xy"]) == 0.0


@pytest.mark.parametrize(
    ("text", "answer", "has"),
    [
        ("It is S\u00e3o Tom\u00e9.", "Sa\u0303o Tome\u0301", True),  # NFC and NFD
        ("the BLUE-Nile", "blue - nile", True),  # tokens, whatever their case
        ("the U.S. army", "U.S.", True),
        ("the US army", "U.S.", False),  # punctuation counts
        ("Beatles", "the Beatles", False),  # so do articles
        ("Nile", "Nil", False),
        ("snake_case", "snake", True),  # an underscore is no letter
        ("anything", "\u200b", False),  # no token
    ],
)
def test_dprs_rule(text: str, answer: str, has: bool) -> None:
    assert has_answer(text, ["other", answer]) is has


@pytest.mark.parametrize("score", [exact_match, contains, sub_em, has_answer])
def test_a_bare_string_is_refused(score) -> None:
    with pytest.raises(InputError, match=r"pass \('Paris',\)"):
        score("Paris", "Paris")


@FEW
@given(TEXTS)
def test_normalize_is_idempotent(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)


@FEW
@given(TEXTS, TEXTS)
def test_scores_are_ordered(prediction: str, answer: str) -> None:
    f1 = token_f1(prediction, answer)
    assert 0.0 <= exact_match(prediction, [answer]) <= f1 <= 1.0
    assert f1 == token_f1(answer, prediction)
    assert exact_match(prediction, [answer]) <= contains(prediction, [answer])
    assert contains(prediction, [answer]) <= sub_em(prediction, [answer])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Beyonc\u00e9", "Beyonce"),
        ("Beyonce\u0301", "BEYONC\u00c9"),
        ("\u201cO\u2019Brien\u201d", "'O'Brien'"),
        ("1990\u20131995", "1990-1995"),
        ("\u22125", "-5"),
        ("\uff21\uff22\uff11", "AB1"),
        ("Stra\u00dfe", "STRASSE"),
        ("\ufb01n\u3002", "fin."),
    ],
)
def test_unicode_normalisation(one: str, other: str) -> None:
    first, second = unify("unicode", one, other)
    assert exact_match(first, [second]) == has_answer(first, [second]) == 1.0
    assert unify("squad", one, other) == (one, other)


@pytest.mark.parametrize(
    "pair", ["\u304c \u304b", "\u0916\u0947 \u0916", "\u0e02\u0e49 \u0e02", "!!! ?!"]
)
def test_marks_of_letters_stay(pair: str) -> None:
    """Kana voicing, Indic vowels, Thai tones; and texts of signs alone are kept."""
    first, second = unify("unicode", *pair.split())
    assert first != second
