"""Answers stated at the end of a chain of thought."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.text.sentences import last_sentence, stated_answer


@pytest.mark.parametrize(
    "text, expected",
    [
        ("It is big. So the answer is Rome.", "Rome"),
        ("So the answer is: **Rome**.", "Rome"),
        ("Answer: Rome", "Rome"),
        ("It is old.\n**Answer\uff1a**\n\nRome.", "Rome"),
        ('The answer is "Rome."', "Rome"),
        ("The answer is B. Then again, the answer is (C).", "(C)"),  # the last counts
        ("the answer is 3.5.", "3.5"),
        ("The answer is 1,204 m. It is a mountain.", "1,204 m"),
        ("The answer is no. The sea is.", "no"),
        ("The answer is 1876. The telephone came then.", "1876"),
        ("The answer is St. Petersburg.", "St. Petersburg"),
        ("The answer is J. K. Rowling. She wrote it.", "J. K. Rowling"),
        ("The answer is Rome.\nIt is in Italy.", "Rome"),
        ("The answer is 12 May 1830!", "12 May 1830"),
        ("THE ANSWER IS yes", "yes"),
        ("The final answer is $\\boxed{\\text{Rome}}$.", "Rome"),
        ("The answer is", None),
        ("The answer is ...", None),
        ("Rome", None),
        ("", None),
        ("The answers is Rome", None),
    ],
)
def test_stated_answer(text, expected):
    assert stated_answer(text) == expected


@pytest.mark.parametrize(
    "text, last",
    [
        ("", ""),
        (" \n ", ""),
        ("Rome", "Rome"),
        ("It is big. It is Rome.", "It is Rome."),
        ("One.\nTwo. Three\n\n", "Three"),
        ("It is St. Petersburg", "It is St. Petersburg"),
    ],
)
def test_the_last_sentence(text, last):
    assert last_sentence(text) == last


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_accepted(text):
    said = stated_answer(text)
    assert said is None or (said and "\n" not in said)
    assert last_sentence(text).strip() in text
    stated = stated_answer(f"{text}\nSo the answer is Rome.")
    assert stated == "Rome"
