"""Prompts and answers of closed questions: statements to check, yes or no, labels, choices.

For the kinds see `jaxrag.data.question_kinds` and docs/methods, "Common: kinds of questions".
"""

from __future__ import annotations

import bisect
import functools
import logging
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from jaxrag.data.question_kinds import (
    LETTERS,
    gold_option,
    gold_options,
    option_texts,
    options,
    role_of,
    whole_letter,
)
from jaxrag.steps import prompts
from jaxrag.text.answers import contains
from jaxrag.trace import OptionRecord
from jaxrag.types import InputError, Question

_log = logging.getLogger("jaxrag")

_LONE_LETTER = re.compile(r"(?<![\w'’])([A-Z])(?![\w'’])[ \t]*")
_QUOTES = str.maketrans("‘’“”", "''\"\"")
# What may stand beside a whole choice: blanks, brackets, quotes and punctuation, but nothing that
# makes it part of a longer number, formula or word.
_BEFORE = r"""(?:(?<![^\s"“‘'(\[{—])|(?<=\*\*)|(?<=[^\W\d][:;,]))"""
_AFTER = r"""(?!(?<=\d)['’!])(?=(?:[.,;:!?"”’')\]}]|\*\*)*(?:[\s—]|$))"""


def words(question: Question, template: prompts.Template) -> tuple[str, ...]:
    """The prompt's word for each of the `options`; InputError if it has some, but not for all."""
    names = options(question)
    if template.words and role_of(question) != "multiple_choice":
        if len(template.words) != len(names):
            raise InputError(
                f"A prompt has the words {list(template.words)}; question {question.id} has the "
                f"options {list(names)}, so there must be {len(names)}."
            )
        return template.words
    return names


def fields(question: Question) -> dict[str, Any]:
    """Fields of the prompt of the question's role, besides the passages.

    "choices" are lines of letters and choices; of labels, the labels with commas between them.
    """
    if role_of(question) == "labels":
        return {"question": question.text, "choices": ", ".join(question.choices)}
    lines = zip(options(question), question.choices, strict=False)
    choices = "\n".join(f"{letter}: {choice}" for letter, choice in lines)
    return {"question": question.text, "choices": choices}


def content_free_fields(question: Question) -> dict[str, str]:
    """Fields of a prompt that shows no content: "N/A" in all but the data set's list of labels."""
    empty: dict[str, str] = dict.fromkeys(("question", "passages", "choices"), "N/A")
    if role_of(question) == "labels":
        empty["choices"] = fields(question)["choices"]
    return empty


def question_text(question: Question) -> str:
    """The question as an open prompt shows it: with its choices, if it has some."""
    if not question.choices:
        return question.text
    return f"{question.text}\nChoices: {'; '.join(question.choices)}"


def shown_by(
    question: Question, layout: prompts.PromptSet, *, directly: bool
) -> tuple[str, dict[str, Any]]:
    """The role by which a set of prompts asks a question, and its fields besides the passages.

    A set without the role of a closed question asks by its open role; the log says so once.
    """
    role = prompt_role(question, directly=directly)
    instead = "direct" if directly else "context"
    if role in layout.roles or instead not in layout.roles:
        return role, fields(question)
    _tell_of(layout.path, role, instead)
    return instead, {"question": question_text(question)}


@functools.cache
def _tell_of(path: str, role: str, instead: str) -> None:
    _log.warning(
        "%s has no [%s]: such questions are asked by its [%s], which names no options as answers",
        path, role, instead,
    )  # fmt: skip


def answer_limit(question: Question, closed_tokens: int) -> int:
    """Most new tokens of a closed answer: ``closed_tokens``, or the bytes of the longest label."""
    if role_of(question) != "labels":
        return closed_tokens
    return max(closed_tokens, *(len(label.encode()) for label in question.choices))


def task_of(question: Question) -> str:
    """The kind of question, by its name in traces; InputError where no choice is a gold answer."""
    role = role_of(question)
    if role == "multiple_choice" and question.answers:
        gold_option(question)
    return "open" if role == "context" else role


def prompt_role(question: Question, *, directly: bool = False) -> str:
    """Role of the prompt with passages, or without any."""
    role = role_of(question)
    if directly:
        return "direct" if role == "context" else f"direct_{role}"
    return role


def check_roles(questions: Sequence[Question], layout: prompts.PromptSet) -> None:
    """InputError where prompts have no role by which options of a kind of question are compared."""
    for role in dict.fromkeys(map(role_of, questions)):
        if role != "context" and layout.roles.keys().isdisjoint((role, f"direct_{role}")):
            raise InputError(
                f"{layout.path} has neither [{role}] nor [direct_{role}], after which reader.by "
                "compares the options of such questions: add them, or set reader.by=text."
            )


def named_choices(text: str, question: Question) -> list[int]:
    """Indices of the choices that an answer names, by a lone letter or by their text.

    A choice's text counts only as a whole: "5 N" is not in "0.5 N". Choices of one word count only
    where no other is named, since "C" may be one, too. A mention within a longer one does not:
    "2 N to the left" does not name "2 N". A small or wide letter counts as a whole answer: "(b)".
    An "A" right before another choice is its article. Forms of Unicode and quotes do not count.
    """
    text, *choices = (
        unicodedata.normalize("NFC", raw).translate(_QUOTES) for raw in (text, *question.choices)
    )
    phrases, words = [], []
    for index, choice in enumerate(choices):
        parts = choice.strip().rstrip(".").split()
        if len(parts) > 2 and parts[0].lower() in ("a", "an", "the"):
            parts = parts[1:]
        pattern = _BEFORE + r"\s+".join(map(re.escape, parts)) + _AFTER
        mentions = [(*m.span(), index) for m in re.finditer(pattern, text, re.I) if parts]
        (phrases if len(parts) > 1 else words).extend(mentions)
    begins = {start for start, _, index in phrases + words if index}
    begins -= {start for start, _, index in phrases + words if not index}
    lone = ((*mark.span(), LETTERS.index(mark[1])) for mark in _LONE_LETTER.finditer(text))
    letters = [(a, i) for a, b, i in lone if i < len(choices) and (i or b not in begins)]
    outer = _outer(phrases if phrases or letters else words)
    indices = {index for _, _, index in outer}
    starts, reach = [start for start, _, _ in outer], [0, *(end for _, end, _ in outer)]
    # the last mention that begins before a letter reaches farthest
    indices |= {i for place, i in letters if reach[bisect.bisect(starts, place)] <= place}
    return sorted(indices or {whole_letter(text)} & {*range(len(question.choices))})


def _outer(mentions: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The mentions (start, end, index) that lie within no longer one, in order."""
    outer, reach = [], 0
    for start, end, index in sorted(mentions, key=lambda mention: (mention[0], -mention[1])):
        if end > reach or (outer and (start, end) == outer[-1][:2]):
            outer.append((start, end, index))
            reach = end
    return outer


def chosen(text: str, question: Question) -> str:
    """The texts of the `named_choices`, joined by "; "; the answer itself where it names none."""
    return "; ".join(question.choices[i] for i in named_choices(text, question)) or text


def is_right(text: str, question: Question, template: prompts.Template | None = None) -> bool:
    """Whether a generation names a right choice or label; else, contains a gold answer."""
    role = role_of(question)
    if role == "multiple_choice":
        return not {*gold_options(question)}.isdisjoint(named_choices(text, question))
    if role == "labels":
        names = question.choices if template is None else words(question, template)
        return first_named(text, names) in gold_options(question)
    return bool(contains(text, question.answers))


def first_named(text: str, said: Sequence[str]) -> int | None:
    """Index of the words that occur first in a text, as whole words; None if none does.

    Case does not count, nor what separates words: NOT_ENOUGH_INFO is "not enough info". Of two that
    begin at one place, the longer counts: "mostly true" names neither "mostly" nor "true".
    """

    def pattern(words: str) -> str:
        return r"[\s_-]+".join(map(re.escape, re.split(r"[\s_-]+", words.strip())))

    order = sorted(range(len(said)), key=lambda number: -len(said[number].strip()))
    either = "|".join(f"({pattern(said[number])})" for number in order)
    match = re.search(rf"(?<!\w)(?:{either})(?!\w)", text, re.I)
    return None if not match or match.lastindex is None else order[match.lastindex - 1]


def verdict(text: str, question: Question, template: prompts.Template) -> str:
    """The option whose word occurs first in an answer; without one, the answer itself."""
    number = first_named(text, words(question, template))
    return text if number is None else options(question)[number]


def read(text: str, question: Question, template: prompts.Template) -> str:
    """The answer in a generation, for any kind of question: the text of an option if it names one.

    The answer to a statement stays as generated, since R3 evaluates by containment.
    """
    role = role_of(question)
    if role == "multiple_choice":
        return chosen(text, question)
    return verdict(text, question, template) if role in ("yes_no", "labels") else text


def option_record(text: str, question: Question) -> OptionRecord | None:
    """Indices of the predicted and a gold option, if possible the predicted; None if it is open."""
    role = role_of(question)
    if role == "context":
        return None
    texts = option_texts(question)
    if role == "fact_checking":  # evaluated by containment, so the first verdict counts
        number = first_named(text, texts)
        text = "" if number is None else texts[number]
    said = texts.index(text) if text in texts else None
    gold = gold_options(question) if question.answers else [None]
    record: OptionRecord = {
        "said": said,
        "gold": said if said in gold else gold[0],
        "positive": role in ("fact_checking", "yes_no"),
    }
    return {**record, "labels": list(texts)} if role == "labels" else record
