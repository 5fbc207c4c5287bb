"""Kinds of questions (open, fact checking, yes/no, labels, multiple choice) and their options.

A question of task "fact_checking", or with the choices true and false, is a statement to verify.
One of task "yes_no" is answered with yes or no; one of task "labels" with one of its ``choices``,
which are the labels of its data set, such as yes, no and maybe; any other with choices, by the
letter of a choice; all others are open. R3 and ARS-RAG evaluate on such data (docs/methods,
"Common: kinds of questions").
"""

from __future__ import annotations

import dataclasses
import re
import string
import unicodedata
from typing import Literal

from jaxrag.types import InputError, Question

Role = Literal["context", "fact_checking", "yes_no", "labels", "multiple_choice"]

TASKS = ("open", "fact_checking", "yes_no", "labels", "multiple_choice")
VERDICTS = ("true", "false")
YES_NO = ("yes", "no")
FEVER = {"supports": VERDICTS[0], "refutes": VERDICTS[1]}
"""FEVER's labels of statements, in lower case, and what they mean."""
LETTERS = string.ascii_uppercase
_OWN_LETTER = re.compile(r"\s*\(?([A-Z])(?:\)|[.:](?=\s))\s*(?=\S)")  # not that of "B.C."
_MARKS = r"\s\[\](){}'\"`*.:"
_WHOLE_LETTER = re.compile(
    rf"[{_MARKS}]*(?:(?:option|choice)[{_MARKS}]+)?([A-Z])[{_MARKS}]*", re.I | re.A
)


def role_of(question: Question) -> Role:
    """Kind of the question, which is also the role of the prompt that asks it with passages.

    InputError if the task is unknown, there are too few, too many or repeated choices, or the gold
    answer of a statement, a yes/no question or one with labels is none of them.
    """
    if question.task not in TASKS:
        raise InputError(
            f"Question {question.id}: its task is {question.task!r}; allowed: {', '.join(TASKS)}."
        )
    if question.task == "labels":
        _check_labels(question)
        return "labels"
    allowed = {"yes_no": YES_NO, "fact_checking": VERDICTS}.get(question.task)
    if allowed and {answer.strip().lower() for answer in question.answers} - {*allowed}:
        raise InputError(
            f"Question {question.id} has the task {question.task}, but its gold answer is "
            f"{list(question.answers)}, not {' or '.join(allowed)}: set data.task to open."
        )
    if question.task == "yes_no":
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


def _check_labels(question: Question) -> None:
    labels = [label.strip().lower() for label in question.choices]
    if len(set(labels)) < max(2, len(labels)) or "" in labels:
        raise InputError(
            f"Question {question.id} has the labels {list(question.choices)}: at least two are "
            "needed, none blank and none twice, such as --config.data.labels=yes,no,maybe."
        )
    if unknown := [a for a in question.answers if a.strip().lower() not in labels]:
        raise InputError(
            f"Question {question.id}: its gold answer {unknown[0]!r} is none of the labels "
            f"{list(question.choices)}: add it to data.labels, or correct the answer."
        )


def with_task(question: Question, task: str, labels: tuple[str, ...] = ()) -> Question:
    """The question with the task, and the labels if there are any, that settings give its data.

    Of a statement, FEVER's labels become true and false; of a question with choices, see
    `with_chosen_answers`. InputError if its gold answer does not fit them.
    """
    changed = dataclasses.replace(question, task=task, choices=labels or question.choices)
    if task == "fact_checking":
        answers = (FEVER.get(answer.strip().lower(), answer) for answer in question.answers)
        changed = dataclasses.replace(changed, answers=tuple(dict.fromkeys(answers)))
    role_of(changed)
    return with_chosen_answers(changed) if task == "multiple_choice" else changed


def whole_letter(text: str) -> int:
    """Index of the letter that is a whole text, such as "B", "(b)" or "Option B."; -1 of others."""
    match = _WHOLE_LETTER.fullmatch(unicodedata.normalize("NFKC", text))
    return LETTERS.index(match[1].upper()) if match else -1


def with_chosen_answers(question: Question) -> Question:
    """The question with texts of choices in place of gold answers that are letters of choices.

    An answer that is itself the text of a choice is no letter; "(b)" and "B." are letters, too.
    Letters that all choices begin with, as in "(A) Rome", are no part of choices and answers.
    InputError if there are choices, and none of the gold answers is one.
    """
    marks = [mark for mark in map(_OWN_LETTER.match, question.choices) if mark]
    letters = "".join(mark[1] for mark in marks)
    if letters and len(letters) == len(question.choices) and LETTERS.startswith(letters):
        bare = {mark.string.strip().lower(): mark.string[mark.end() :] for mark in marks}
        answers = tuple(bare.get(answer.strip().lower(), answer) for answer in question.answers)
        question = dataclasses.replace(question, choices=tuple(bare.values()), answers=answers)
    if not question.choices or not question.answers:
        return question
    texts = {choice.strip().lower() for choice in question.choices}

    def text(answer: str) -> str:
        at = whole_letter(answer)
        is_letter = answer.strip().lower() not in texts and 0 <= at < len(question.choices)
        return question.choices[at] if is_letter else answer

    answers = tuple(dict.fromkeys(map(text, question.answers)))
    if not any(answer.strip().lower() in texts for answer in answers):
        raise InputError(
            f"Question {question.id}: its gold answer {question.answers[0]!r} is none of its "
            f"choices {list(question.choices)}: give the text of a choice, or its letter."
        )
    return dataclasses.replace(question, answers=answers)


def check_task(task: str, labels: tuple[str, ...]) -> None:
    """Checks data.task and data.labels; InputError for an unknown task, or labels of another."""
    if task not in TASKS:
        raise InputError(f"data.task is {task!r}; allowed: {', '.join(TASKS)}.")
    if labels and task != "labels":
        raise InputError(
            f"data.labels is {list(labels)}, and data.task {task!r}: set data.task=labels, too."
        )
    if task == "labels" and labels:
        _check_labels(Question("of data.labels", "", (), labels, task))


def options(question: Question) -> tuple[str, ...]:
    """Allowed answers: true and false, yes and no, labels, or letters; () for open questions."""
    if role_of(question) == "multiple_choice":
        return tuple(LETTERS[: len(question.choices)])
    return option_texts(question)


def option_texts(question: Question) -> tuple[str, ...]:
    """The `options` as texts that gold answers are compared with: choices in place of letters."""
    own: dict[str, tuple[str, ...]] = {"fact_checking": VERDICTS, "yes_no": YES_NO, "context": ()}
    return own.get(role_of(question), question.choices)


def gold_options(question: Question) -> list[int]:
    """Indices of the correct options, from 0; InputError without one, as for open questions."""
    texts = option_texts(question)
    # as written first, since choices may differ in case only, such as the genotypes Tt and tt
    for form in (str.strip, lambda text: text.strip().lower()):
        gold = set(map(form, question.answers))
        if indices := [index for index, text in enumerate(texts) if form(text) in gold]:
            return indices
    raise InputError(
        f"Question {question.id}: none of its options {list(texts)} is the gold answer "
        f"{list(question.answers)}; the gold answer of a closed question must be the full text of "
        "an option."
    )


def gold_option(question: Question) -> int:
    """The first of the `gold_options`."""
    return gold_options(question)[0]
