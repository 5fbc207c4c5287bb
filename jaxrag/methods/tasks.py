"""Closed questions beside open ones: how each kind is asked, read, and scored by its options.

METHODS sections 3.4 and 3.8 (R3, after Self-RAG). A question of the task "fact_checking", or whose
choices are true and false, is a statement to judge; another one with choices is to be answered by a
letter; the rest are open.
"""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Sequence
from typing import Literal

from jaxrag.engines.requests import gather
from jaxrag.functional.answers import contains
from jaxrag.methods import prompts, steps
from jaxrag.methods.tools import LanguageModelTool, Tools
from jaxrag.types import InputError, Passage, Prompt, Question

Role = Literal["context", "fact_checking", "multiple_choice"]

TASKS = ("open", "fact_checking", "multiple_choice")
VERDICTS = ("true", "false")
_LETTERS = string.ascii_uppercase
_LONE_LETTER = re.compile(r"(?<![\w'’])[A-Z](?![\w'’])")


def role_of(question: Question) -> Role:
    """The role of a prompt that asks the question from passages.

    Raises:
      InputError: an unknown task, or choices that letters cannot tell apart.
    """
    if question.task not in TASKS:
        raise InputError(
            f"Question {question.id}: its task is {question.task!r}; there are {', '.join(TASKS)}."
        )
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
    """What the model may say: true or false, or one of the letters; nothing to open questions."""
    role = role_of(question)
    if role == "multiple_choice":
        return tuple(_LETTERS[: len(question.choices)])
    return VERDICTS if role == "fact_checking" else ()


def gold_option(question: Question) -> int:
    """The number of the option that is right.

    Raises:
      InputError: no option is among the gold answers, or the question is open.
    """
    role = role_of(question)
    texts = {"fact_checking": VERDICTS, "multiple_choice": question.choices, "context": ()}[role]
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


def prompt(
    question: Question,
    passages: Sequence[Passage],
    llm: LanguageModelTool,
    reader: steps.Reader,
    trace: steps.Trace,
) -> Prompt:
    """What asks the question from passages (best first), cut where the reader says so."""
    role, told = role_of(question), fields(question)
    shown = steps.show_passages(question, passages, llm, reader, trace, role=role, **told)
    return prompts.load(reader.prompts).role(role).prompt(passages=shown, **told)


def continuation(asked: Prompt, text: str) -> str:
    """A text as it would follow a prompt: with a blank where that is plain text within a line."""
    within = isinstance(asked, str) and not asked[-1:].isspace()
    return f" {text}" if within else text


async def choice_logprobs(
    question: Question, passages: Sequence[Passage], tools: Tools, reader: steps.Reader
) -> tuple[float, ...]:
    """Log-probability of each of the `options`, natural, by its first token alone.

    METHODS section 3.4: a passage helps where the gold option's next-token probability is above
    every other's. First tokens differ, as the options' first letters do, unless a tokenizer makes
    the blank before them a token.

    Raises:
      InputError: the question is open, or the options have one first token.
    """
    asked = prompt(question, passages, tools.llm, reader, {})
    said = options(question)
    if not said:
        raise InputError(f"Question {question.id} is open: it has no options to compare.")
    parts = (tools.llm.logprob(asked, continuation(asked, option)) for option in said)
    found = tuple(float(part[0]) for part in await gather(*parts))
    if len(set(found)) == 1:
        raise InputError(
            f"Question {question.id}: all options have the same probability, {found[0]:.4g} in "
            "logarithm, so their first tokens must be one, such as a blank: take prompts that end "
            "with a line break, as r3's do."
        )
    return found


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


async def answer_from_passages(
    question: Question,
    rows: Sequence[int],
    tools: Tools,
    reader: steps.Reader,
    trace: steps.Trace,
    *,
    closed_tokens: int,
) -> steps.Reply:
    """Answers a question of any kind from the passages at ``rows``, shown in that order.

    Args:
      question: of a closed one with choices, ``text`` of the reply is what it has `chosen`.
      rows: of the corpus.
      tools: the model and the index.
      reader: how the model is asked.
      trace: gets the kind of question and the answer.
      closed_tokens: most new tokens for a closed question.
    """
    role, passages = role_of(question), tools.index.passages(rows)
    if role == "multiple_choice" and question.answers:
        gold_option(question)  # an answer that is no choice could never be met
    if role != "context":
        reader = dataclasses.replace(reader, answer_tokens=closed_tokens)
    reply = await steps.ask_from_passages(
        question, passages, tools.llm, reader, trace, role=role, **fields(question)
    )
    if role == "multiple_choice":
        reply = reply._replace(text=chosen(reply.text, question))
    trace["task"] = "open" if role == "context" else role
    trace["answer"] = reply.record()
    return reply
