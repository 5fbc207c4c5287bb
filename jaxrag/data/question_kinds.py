"""Kinds of questions (open, fact checking, yes/no, multiple choice) and their options.

A question of task "fact_checking", or with the choices true and false, is a statement to verify.
One of task "yes_no" is answered with yes or no; any other with choices, by the letter of a choice;
all others are open. R3 and ARS-RAG evaluate on such data (docs/methods.md, "Common: kinds of
questions").
"""

from __future__ import annotations

import string
from typing import Literal

from jaxrag.types import InputError, Question

Role = Literal["context", "fact_checking", "yes_no", "multiple_choice"]

TASKS = ("open", "fact_checking", "yes_no", "multiple_choice")
VERDICTS = ("true", "false")
YES_NO = ("yes", "no")
LETTERS = string.ascii_uppercase


def role_of(question: Question) -> Role:
    """Kind of the question, which is also the role of the prompt that asks it with passages.

    Raises:
      InputError: the task is unknown, there are too few or too many choices, or the gold answer of
        a yes/no question is neither.
    """
    if question.task not in TASKS:
        raise InputError(
            f"Question {question.id}: its task is {question.task!r}; allowed: {', '.join(TASKS)}."
        )
    if question.task == "yes_no":
        if {answer.lower() for answer in question.answers} - {*YES_NO}:
            raise InputError(
                f"Question {question.id} has the task yes_no, but its gold answer is "
                f"{list(question.answers)}: set data.task to open."
            )
        return "yes_no"
    choices = {choice.lower() for choice in question.choices}
    if question.task == "fact_checking" or choices == {*VERDICTS}:
        return "fact_checking"
    if not question.choices and question.task == "open":
        return "context"
    if not 2 <= len(question.choices) <= len(LETTERS):
        raise InputError(
            f"Question {question.id} has {len(question.choices)} choices; 2 to {len(LETTERS)} "
            "are allowed."
        )
    return "multiple_choice"


def options(question: Question) -> tuple[str, ...]:
    """Allowed answers: true and false, yes and no, or letters; () for open questions."""
    role = role_of(question)
    if role == "multiple_choice":
        return tuple(LETTERS[: len(question.choices)])
    return {"fact_checking": VERDICTS, "yes_no": YES_NO, "context": ()}[role]


def gold_option(question: Question) -> int:
    """Index of the correct option, from 0.

    Raises:
      InputError: no option is a gold answer, or the question is open.
    """
    role = role_of(question)
    texts = question.choices if role == "multiple_choice" else options(question)
    gold = {answer.lower() for answer in question.answers}
    for index, text in enumerate(texts):
        if text.lower() in gold:
            return index
    raise InputError(
        f"Question {question.id}: none of its options {list(texts)} is the gold answer "
        f"{list(question.answers)}; the gold answer of a closed question must be the full text of "
        "an option."
    )
