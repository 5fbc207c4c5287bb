"""Kinds of questions: told apart, and read out of what a model writes."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrag.data import question_kinds
from jaxrag.steps import kinds, prompts
from jaxrag.types import InputError
from tests.steps.closed_questions import CHOICE, CLAIM, OPEN, YES_NO


@pytest.mark.parametrize(
    "question, role, options",
    [
        (OPEN, "context", ()),
        (CLAIM, "fact_checking", ("true", "false")),
        (dataclasses.replace(OPEN, choices=("False", "True")), "fact_checking", ("true", "false")),
        (CHOICE, "multiple_choice", ("A", "B", "C")),
        (dataclasses.replace(CHOICE, task="multiple_choice"), "multiple_choice", ("A", "B", "C")),
        (dataclasses.replace(OPEN, choices=("yes", "no")), "multiple_choice", ("A", "B")),
    ],
)
def test_kinds_are_told_apart(question, role, options):
    assert question_kinds.role_of(question) == role and question_kinds.options(question) == options


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"task": "essay"}, r"Question o: its task is 'essay'; allowed: open, fact_checking"),
        ({"task": "multiple_choice"}, r"Question o has 0 choices; 2 to 26"),
        ({"choices": ("yes",)}, r"has 1 choices"),
        ({"choices": tuple(map(str, range(27)))}, r"has 27 choices"),
    ],
)
def test_bad_questions_are_refused(changes, said):
    with pytest.raises(InputError, match=said):
        question_kinds.role_of(dataclasses.replace(OPEN, **changes))


def test_the_gold_option():
    assert question_kinds.gold_option(CHOICE) == 1
    assert question_kinds.gold_option(CLAIM) == 1
    assert question_kinds.gold_option(dataclasses.replace(CLAIM, answers=("True",))) == 0
    letters = dataclasses.replace(CHOICE, answers=("B",))
    for question in (letters, OPEN):
        with pytest.raises(InputError, match="none of its options"):
            question_kinds.gold_option(question)


@pytest.mark.parametrize(
    "text, said",
    [
        ("B", "a rose"),
        ("(B) because it is", "a rose"),
        ("B: a rose", "a rose"),
        ("The sky.", "the sky"),
        ("the sky, so C", "the sky"),
        ("A or C", "the sea; the sky"),  # both count, as where only occurrence is looked for
        ("D", "D"),  # there is no such option
        ("ABC", "ABC"),
        ("It's a rosebush", "It's a rosebush"),
        ("A's", "A's"),
        ("", ""),
    ],
)
def test_what_an_answer_names(text, said):
    assert kinds.chosen(text, CHOICE) == said


def test_a_letter_that_is_also_a_choice_is_a_letter():
    gases = dataclasses.replace(CHOICE, answers=("O2",), choices=("C", "NO2", "O2", "CO"))
    assert kinds.chosen("C", gases) == "O2" and kinds.chosen("A", gases) == "C"
    assert kinds.chosen("It is O2.", gases) == "It is O2."


@given(st.sets(st.integers(0, 2)), st.text("xyz .,:\n", max_size=8))
def test_letters_count_wherever_they_stand(numbers, filler):
    text = "".join(f" {filler} {'ABC'[n]} {filler}" for n in sorted(numbers))
    expected = "; ".join(CHOICE.choices[n] for n in sorted(numbers)) or text
    assert kinds.chosen(text, CHOICE) == expected


def test_yes_or_no_is_a_task():
    assert question_kinds.role_of(YES_NO) == "yes_no" and question_kinds.options(YES_NO) == (
        "yes",
        "no",
    )
    assert question_kinds.gold_option(YES_NO) == 0
    assert question_kinds.gold_option(dataclasses.replace(YES_NO, answers=("No",))) == 1
    with pytest.raises(InputError, match=r"has the task yes_no.*\['Rome'\]"):
        question_kinds.role_of(dataclasses.replace(YES_NO, answers=("Rome",)))


def test_a_prompt_may_have_words_of_its_own():
    template = prompts.Template("{question}", words=("true", "false"))
    assert kinds.words(YES_NO, template) == ("true", "false")
    assert kinds.verdict("That is False.", YES_NO, template) == "no"
    assert kinds.verdict("truely", YES_NO, template) == "truely"  # no word of its own
    assert kinds.verdict("yes", YES_NO, template) == "yes"  # not a word of this prompt, left alone
    assert kinds.words(CHOICE, template) == ("A", "B", "C")
    with pytest.raises(InputError, match=r"has the words \['a'\].*there are to be 2"):
        kinds.words(YES_NO, prompts.Template("{question}", words=("a",)))


@pytest.mark.parametrize(
    "text, said",
    [("Yes.", "yes"), ("no, since yes is wrong", "no"), ("It is: NO", "no"), ("nobody", "nobody"),
     ("", ""), ("maybe", "maybe")],
)  # fmt: skip
def test_the_first_word_is_the_verdict(text, said):
    assert kinds.verdict(text, YES_NO, prompts.Template("{question}")) == said
