"""Kinds of questions: told apart, and read out of what a model writes."""

import dataclasses

import pytest

from jaxrag.data import question_kinds
from jaxrag.steps import kinds, prompts
from jaxrag.types import InputError
from tests.steps.closed_questions import CHOICE, CLAIM, LABELS, OPEN, YES_NO


@pytest.mark.parametrize(
    "question, role, options",
    [
        (OPEN, "context", ()),
        (CLAIM, "fact_checking", ("true", "false")),
        (dataclasses.replace(OPEN, choices=("False", "True")), "fact_checking", ("true", "false")),
        (CHOICE, "multiple_choice", ("A", "B", "C")),
        (dataclasses.replace(CHOICE, task="multiple_choice"), "multiple_choice", ("A", "B", "C")),
        (dataclasses.replace(OPEN, choices=("yes", "no")), "multiple_choice", ("A", "B")),
        (LABELS, "labels", ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")),
        (
            dataclasses.replace(LABELS, answers=(), choices=("true", "false")),
            "labels",
            ("true", "false"),
        ),
    ],
)
def test_kinds_of_questions(question, role, options):
    assert question_kinds.role_of(question) == role and question_kinds.options(question) == options


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"task": "essay"}, r"Question o: its task is 'essay'; allowed: open, fact_checking"),
        ({"task": "multiple_choice"}, r"Question o has 0 choices; 2 to 26"),
        ({"choices": ("yes",)}, r"has 1 choices"),
        ({"choices": tuple(map(str, range(27)))}, r"has 27 choices"),
        ({"task": "labels"}, r"Question o has the labels \[\]: at least two .*data.labels=yes,no"),
        ({"task": "labels", "choices": ("yes", "Yes ")}, "none blank and none twice"),
        ({"task": "labels", "choices": ("yes", " ")}, "none blank and none twice"),
        ({"task": "labels", "choices": ("yes", "no")}, r"o: its gold answer 'Ada' is none of the"),
    ],
)
def test_invalid_questions_are_refused(changes, said):
    with pytest.raises(InputError, match=said):
        question_kinds.role_of(dataclasses.replace(OPEN, **changes))


def test_the_gold_option():
    assert question_kinds.gold_option(CHOICE) == 1
    assert question_kinds.gold_option(CLAIM) == 1
    assert question_kinds.gold_option(dataclasses.replace(CLAIM, answers=("True",))) == 0
    assert question_kinds.gold_option(LABELS) == 1
    both = dataclasses.replace(CHOICE, answers=CHOICE.choices[1:])
    assert question_kinds.gold_options(both) == [1, 2] and kinds.is_right("C", both)
    said = [kinds.option_record(text, both) for text in (*CHOICE.choices, "?")]
    assert [one and one.get("gold") for one in said] == [1, 1, 2, 1]
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
        ("(b).", "a rose"),
        ("**Option \uff42**", "a rose"),  # a wide letter
        ("b and more", "b and more"),
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
def test_choices_named_by_an_answer(text, said):
    assert kinds.chosen(text, CHOICE) == said


def test_a_letter_that_is_also_a_choice_is_a_letter():
    gases = dataclasses.replace(CHOICE, answers=("O2",), choices=("C", "NO2", "O2", "CO"))
    assert kinds.chosen("C", gases) == "O2" and kinds.chosen("A", gases) == "C"
    assert kinds.chosen("It is O2.", gases) == "O2" and kinds.chosen("no2", gases) == "NO2"
    assert kinds.chosen("It is O2, not A", gases) == "C"  # words count where no letter does
    assert kinds.chosen("H2O2", gases) == "H2O2"
    assert (
        kinds.chosen("It's King's", dataclasses.replace(CHOICE, choices=("O2", "King\u2019s")))[0]
        == "K"
    )


LENGTHS = ("2 N", "2 N to the left", "a 5 N push", "Vitamin A", "+1 charge", "+1 charge/2")


@pytest.mark.parametrize(
    "text, named",
    [
        ("It is 2 N.", [0]),
        ("2\nN", [0]),
        ("**2 N**", [0]),
        ('Answer:"2 n", I think', [0]),
        ("2 N to the left", [1]),  # not the choice within it
        ("2 N, not 2 N to the left", [0, 1]),
        ("B, since 2 N is less", [0, 1]),
        ("5 N push", [2]),  # an article before it is no part of it
        ("0.5 N push", []),
        ("-5 N push", []),
        ("1/5 N push", []),
        ("5 N push-up", []),
        ("5 N push's", []),
        ("2 N!", [0]),
        ("22 N and 2 Nm, 1:2 N and 2 N/m, 1,2 N or 2 N.5", []),
        ("vitamin a", [3]),
        ("Vitamin A", [3]),  # not the letter A
        ("Vitamin A, so D", [3]),
        ("Vitamin C", [2]),  # a letter: no choice's text is there
        ("A +1 charge", [4]),  # an article
        ("A\n2 N to the left is too far", [0, 1]),  # a letter
        ("A 2 N, not 2 N to the left", [0, 1]),
        ("+1 charge/2", [5]),
        ("+1 charge/2, or (A)", [0, 5]),
        ("1 charge", []),
        ("-1 charge", []),
    ],
)
def test_a_choice_is_named_by_the_whole_of_its_text(text, named):
    asked = dataclasses.replace(CHOICE, answers=("+1 charge",), choices=LENGTHS)
    assert kinds.named_choices(text, asked) == named
    assert kinds.is_right(text, asked) == (named == [4])


def test_yes_no_questions():
    assert question_kinds.role_of(YES_NO) == "yes_no" and question_kinds.options(YES_NO) == (
        "yes",
        "no",
    )
    assert question_kinds.gold_option(YES_NO) == 0
    assert question_kinds.gold_option(dataclasses.replace(YES_NO, answers=("No",))) == 1
    with pytest.raises(InputError, match=r"has the task yes_no.*\['Rome'\]"):
        question_kinds.role_of(dataclasses.replace(YES_NO, answers=("Rome",)))


def test_a_prompt_can_define_its_option_words():
    template = prompts.Template("{question}", words=("true", "false"))
    assert kinds.words(YES_NO, template) == ("true", "false")
    assert kinds.verdict("That is False.", YES_NO, template) == "no"
    assert kinds.verdict("truely", YES_NO, template) == "truely"  # no word of its own
    assert kinds.verdict("yes", YES_NO, template) == "yes"  # not a word of this prompt, left alone
    assert kinds.words(CHOICE, template) == ("A", "B", "C")
    with pytest.raises(InputError, match=r"has the words \['a'\].*there must be 2"):
        kinds.words(YES_NO, prompts.Template("{question}", words=("a",)))


@pytest.mark.parametrize(
    "text, said",
    [
        ("Refutes.", "REFUTES"),
        ("not_enough  info", "NOT ENOUGH INFO"),
        ("NOT-ENOUGH-INFO: it supports nothing", "NOT ENOUGH INFO"),
        ("It is refuted", "It is refuted"),  # not the label's word
        ("NOT ENOUGH", "NOT ENOUGH"),
        ("", ""),
    ],
)
def test_labels_are_read_as_whole_words(text, said):
    template = prompts.Template("{question} {choices}")
    assert kinds.read(text, LABELS, template) == kinds.verdict(text, LABELS, template) == said
    assert kinds.is_right(text, LABELS, template) == (said == "REFUTES")


def test_of_two_labels_at_one_place_the_longer_counts():
    truth = ("true", "mostly true", "half true", "C++", "true (but old)")
    for text, number in [("mostly true", 1), ("It is true", 0), ("Half-true!", 2), ("C++, true", 3),
                         ("true (but old)", 4), ("untrue", None)]:  # fmt: skip
        assert kinds.first_named(text, truth) == number


def test_a_prompt_may_name_labels_by_other_words():
    template = prompts.Template("", words=("yes", "no", "unclear"))
    assert kinds.verdict("No", LABELS, template) == "REFUTES"
    assert kinds.is_right("No", LABELS, template) and not kinds.is_right("No", LABELS)
    assert kinds.fields(LABELS)["choices"] == "SUPPORTS, REFUTES, NOT ENOUGH INFO"
    # 15 bytes: no tokenizer needs more tokens
    assert kinds.answer_limit(LABELS, 4) == 15 and kinds.answer_limit(LABELS, 20) == 20
    assert kinds.answer_limit(YES_NO, 4) == 4


def test_prompts_that_cannot_compare_the_options_of_a_kind_are_refused() -> None:
    direct = prompts.PromptSet("mine.toml", {"direct_yes_no": prompts.Template("{question}")})
    kinds.check_roles([OPEN, YES_NO], direct)
    with pytest.raises(InputError, match=r"neither \[multiple_choice\] nor \[direct_multiple_choi"):
        kinds.check_roles([OPEN, YES_NO, CHOICE], direct)
