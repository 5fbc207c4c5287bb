"""Kinds of questions: open ones, statements to check, yes or no, multiple choice.

METHODS sections 3.4 and 3.8 (R3, after Self-RAG), 5.6 and 5.7 (ARS-RAG). A question of the task
"fact_checking", or whose choices are true and false, is a statement to judge; one of the task
"yes_no" is answered by yes or no, in which words its prompt says; another one with choices is to be
answered by a letter; the rest are open.
"""

from __future__ import annotations

import re
import string
from typing import Literal, get_args

from jaxrag.functional.answers import contains
from jaxrag.methods import prompts, steps
from jaxrag.types import InputError, Question

Role = Literal["context", "fact_checking", "yes_no", "multiple_choice"]
By = Literal["text", "logprob", "calibrated"]
"""What answers a closed question: what the model writes; the most probable option; the option that
question and passages make more probable than a prompt does that says nothing (Zhao et al. 2021)."""

TASKS = ("open", "fact_checking", "yes_no", "multiple_choice")
VERDICTS = ("true", "false")
YES_NO = ("yes", "no")
_LETTERS = string.ascii_uppercase
_LONE_LETTER = re.compile(r"(?<![\w'’])[A-Z](?![\w'’])")


def role_of(question: Question) -> Role:
    """The role of a prompt that asks the question from passages.

    Raises:
      InputError: an unknown task, choices that letters cannot tell apart, or a question of yes
        or no with another gold answer.
    """
    if question.task not in TASKS:
        raise InputError(
            f"Question {question.id}: its task is {question.task!r}; there are {', '.join(TASKS)}."
        )
    if question.task == "yes_no":
        if {answer.lower() for answer in question.answers} - {*YES_NO}:
            raise InputError(
                f"Question {question.id} is to be answered by yes or no, and its gold answer is "
                f"{list(question.answers)}: set the data's task to open."
            )
        return "yes_no"
    given = {choice.lower() for choice in question.choices}
    if question.task == "fact_checking" or given == {*VERDICTS}:
        return "fact_checking"
    if not question.choices and question.task == "open":
        return "context"
    if not 2 <= len(question.choices) <= len(_LETTERS):
        raise InputError(
            f"Question {question.id} has {len(question.choices)} choices; 2 to {len(_LETTERS)} "
            "are possible."
        )
    return "multiple_choice"


def options(question: Question) -> tuple[str, ...]:
    """What may be answered: true or false, yes or no, a letter; nothing to open questions."""
    role = role_of(question)
    if role == "multiple_choice":
        return tuple(_LETTERS[: len(question.choices)])
    return {"fact_checking": VERDICTS, "yes_no": YES_NO, "context": ()}[role]


def words(question: Question, template: prompts.Template) -> tuple[str, ...]:
    """What the model says for each of the `options`, in the words of a prompt.

    Raises:
      InputError: the prompt has words, but not as many as there are options.
    """
    said = options(question)
    if template.words and role_of(question) != "multiple_choice":
        if len(template.words) != len(said):
            raise InputError(
                f"A prompt has the words {list(template.words)}; question {question.id} has the "
                f"options {list(said)}, so there are to be {len(said)}."
            )
        return template.words
    return said


def gold_option(question: Question) -> int:
    """The number of the option that is right.

    Raises:
      InputError: no option is among the gold answers, or the question is open.
    """
    role = role_of(question)
    texts = question.choices if role == "multiple_choice" else options(question)
    gold = {answer.lower() for answer in question.answers}
    for number, text in enumerate(texts):
        if text.lower() in gold:
            return number
    raise InputError(
        f"Question {question.id}: none of its options {list(texts)} is the gold answer "
        f"{list(question.answers)}; gold answers of closed questions are an option's whole text."
    )


def fields(question: Question) -> dict[str, str]:
    """What the prompt of the question's role is filled in with beside the passages."""
    lines = zip(options(question), question.choices, strict=False)
    choices = "\n".join(f"{letter}: {choice}" for letter, choice in lines)
    return {"question": question.text, "choices": choices}


def asked_role(question: Question, *, directly: bool = False) -> str:
    """The role that asks the question from passages, or without any."""
    role = role_of(question)
    if directly:
        return "direct" if role == "context" else f"direct_{role}"
    return role


def chosen(text: str, question: Question) -> str:
    """The choices that an answer names by a lone letter, or by a text of several words.

    The answer itself where it names none: it may be a choice of one word, which is not looked for,
    since "C" may be one, too. Naming several counts for each, as in the paper, which
    looks only whether the right letter occurs.
    """
    letters = {_LETTERS.index(letter) for letter in _LONE_LETTER.findall(text)}
    named = [
        choice
        for number, choice in enumerate(question.choices)
        if number in letters or (" " in choice and contains(text, (choice,)))
    ]
    return "; ".join(named) or text


def verdict(text: str, question: Question, template: prompts.Template) -> str:
    """The option whose word comes first in an answer; the answer itself where none does."""
    said = words(question, template)
    found = re.search(rf"\b({'|'.join(map(re.escape, said))})\b", text, re.I)
    if not found:
        return text
    number = [word.lower() for word in said].index(found.group(1).lower())
    return options(question)[number]


def read(text: str, question: Question, template: prompts.Template) -> str:
    """The answer that a reply to a question of any kind gives: an option's text where it names one.

    A statement's verdict stays as it was written, since R3 counts what it contains.
    """
    role = role_of(question)
    if role == "multiple_choice":
        return chosen(text, question)
    return verdict(text, question, template) if role == "yes_no" else text


def check_closed(closed_tokens: int, by: By) -> None:
    """Refuses settings of closed questions that will not do."""
    if closed_tokens < 1:
        raise InputError(f"closed_tokens is {closed_tokens}; it must be at least 1.")
    if by not in get_args(By):
        raise InputError(f"by is {by!r}; allowed: {', '.join(get_args(By))}.")


def note_option(text: str, question: Question, trace: steps.Trace) -> None:
    """Writes which option a closed question was answered with, and which is right, by number."""
    role = role_of(question)
    if role == "context":
        return
    texts = question.choices if role == "multiple_choice" else options(question)
    if role == "fact_checking":  # counted by what the answer contains, so the first verdict is it
        found = re.search(rf"\b({'|'.join(texts)})\b", text, re.I)
        text = found.group(1).lower() if found else ""
    trace["option"] = {
        "said": texts.index(text) if text in texts else None,
        "gold": gold_option(question) if question.answers else None,
        "positive": role != "multiple_choice",
    }
