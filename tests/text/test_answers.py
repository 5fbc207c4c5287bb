import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.text.answers import contains, exact_match, normalize, token_f1
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


@pytest.mark.parametrize("score", [exact_match, contains])
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
    if normalize(answer):
        assert exact_match(prediction, [answer]) <= contains(prediction, [answer])
