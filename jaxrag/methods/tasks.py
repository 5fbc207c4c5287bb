"""Closed questions beside open ones: how each kind is asked, read, and scored by its options.

METHODS sections 3.4 and 3.8 (R3, after Self-RAG), 5.6 and 5.7 (ARS-RAG). A question of the task
"fact_checking", or whose choices are true and false, is a statement to judge; one of the task
"yes_no" is answered by yes or no, in which words its prompt says; another one with choices is to be
answered by a letter; the rest are open.
"""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Sequence
from typing import Literal, get_args

from jaxrag.engines.requests import gather
from jaxrag.functional.answers import contains
from jaxrag.methods import prompts, steps
from jaxrag.methods.tools import LanguageModelTool, Tools
from jaxrag.types import Generation, InputError, Passage, Prompt, Question

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


def prompt(
    question: Question,
    passages: Sequence[Passage] | None,
    llm: LanguageModelTool,
    reader: steps.Reader,
    trace: steps.Trace,
) -> Prompt:
    """What asks the question from passages (best first), cut where the reader says so.

    Without passages (None) it asks for the model's own knowledge.
    """
    role, told = asked_role(question, directly=passages is None), fields(question)
    if passages is not None:
        shown = steps.show_passages(question, passages, llm, reader, trace, role=role, **told)
        told = {**told, "passages": shown}
    return prompts.load(reader.prompts).role(role).prompt(**told)


def continuation(asked: Prompt, text: str) -> str:
    """A text as it would follow a prompt: with a blank where that is plain text within a line."""
    within = isinstance(asked, str) and not asked[-1:].isspace()
    return f" {text}" if within else text


async def choice_logprobs(
    question: Question,
    passages: Sequence[Passage] | None,
    tools: Tools,
    reader: steps.Reader,
    trace: steps.Trace | None = None,
) -> tuple[float, ...]:
    """Log-probability of each of the `options`, natural, by its first token alone.

    METHODS section 3.4: a passage helps where the gold option's next-token probability is above
    every other's. First tokens differ, as the options' first letters do, unless a tokenizer makes
    the blank before them a token.

    Args:
      question: a closed one.
      passages: best first; None asks without any.
      tools: the model.
      reader: how it is asked.
      trace: gets what was cut of the passages.

    Raises:
      InputError: the question is open, or the options have one first token.
    """
    if not options(question):
        raise InputError(f"Question {question.id} is open: it has no options to compare.")
    asked = prompt(question, passages, tools.llm, reader, {} if trace is None else trace)
    return await _option_logprobs(question, asked, passages is None, tools, reader)


async def _option_logprobs(
    question: Question, asked: Prompt, directly: bool, tools: Tools, reader: steps.Reader
) -> tuple[float, ...]:
    role = asked_role(question, directly=directly)
    said = words(question, prompts.load(reader.prompts).role(role))
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


async def answer_from_passages(
    question: Question,
    rows: Sequence[int],
    tools: Tools,
    reader: steps.Reader,
    trace: steps.Trace,
    *,
    closed_tokens: int,
    by: By = "text",
) -> steps.Reply:
    """Answers a question of any kind from the passages at ``rows``, shown in that order.

    Args:
      question: of a closed one with choices, ``text`` of the reply is what it has `chosen`.
      rows: of the corpus.
      tools: the model and the index.
      reader: how the model is asked.
      trace: gets the kind of question and the answer.
      closed_tokens: most new tokens for a closed question.
      by: what answers a closed question: what the model writes, or which option is most probable.
    """
    passages = tools.index.passages(rows)
    return await _answer(question, passages, tools, reader, trace, closed_tokens, by)


async def answer_directly(
    question: Question,
    tools: Tools,
    reader: steps.Reader,
    trace: steps.Trace,
    *,
    closed_tokens: int,
    by: By = "text",
) -> steps.Reply:
    """Answers a question of any kind from the model's own knowledge; see `answer_from_passages`."""
    return await _answer(question, None, tools, reader, trace, closed_tokens, by)


async def _answer(
    question: Question,
    passages: Sequence[Passage] | None,
    tools: Tools,
    reader: steps.Reader,
    trace: steps.Trace,
    closed_tokens: int,
    by: By,
) -> steps.Reply:
    role = role_of(question)
    if role == "multiple_choice" and question.answers:
        gold_option(question)  # an answer that is no choice could never be met
    trace["task"] = "open" if role == "context" else role
    if role != "context" and by != "text":
        return await _most_probable(question, passages, tools, reader, trace, by)
    if role != "context":
        reader = dataclasses.replace(reader, answer_tokens=closed_tokens)
    asked, told = asked_role(question, directly=passages is None), fields(question)
    if passages is None:
        reply = await steps.ask(asked, question, tools.llm, reader, **told)
    else:
        reply = await steps.ask_from_passages(
            question, passages, tools.llm, reader, trace, role=asked, **told
        )
    template = prompts.load(reader.prompts).role(asked)
    reply = reply._replace(text=read(reply.text, question, template))
    trace["answer"] = reply.record()
    _note_option(reply.text, question, trace)
    return reply


async def _most_probable(
    question: Question,
    passages: Sequence[Passage] | None,
    tools: Tools,
    reader: steps.Reader,
    trace: steps.Trace,
    by: By,
) -> steps.Reply:
    """The option with the greatest log-probability, as a reply; ties go to the first."""
    found = await choice_logprobs(question, passages, tools, reader, trace)
    if by == "calibrated":
        nothing = await _of_nothing(question, passages is None, tools, reader)
        found = tuple(one - other for one, other in zip(found, nothing, strict=True))
    best = max(range(len(found)), key=found.__getitem__)
    choice = role_of(question) == "multiple_choice"
    text = question.choices[best] if choice else options(question)[best]
    said = Generation(text, (), (found[best],), "stop", 0)
    reply = steps.Reply(text, text, -found[best], said)
    trace["answer"] = {**reply.record(), "option_logprobs": list(found)}
    _note_option(text, question, trace)
    return reply


async def _of_nothing(
    question: Question, directly: bool, tools: Tools, reader: steps.Reader
) -> tuple[float, ...]:
    """`choice_logprobs` where the prompt holds "N/A" for all that it is filled in with."""
    template = prompts.load(reader.prompts).role(asked_role(question, directly=directly))
    asked = template.prompt(**dict.fromkeys(("question", "passages", "choices"), "N/A"))
    return await _option_logprobs(question, asked, directly, tools, reader)


def check_closed(closed_tokens: int, by: By) -> None:
    """Refuses settings of closed questions that will not do."""
    if closed_tokens < 1:
        raise InputError(f"closed_tokens is {closed_tokens}; it must be at least 1.")
    if by not in get_args(By):
        raise InputError(f"by is {by!r}; allowed: {', '.join(get_args(By))}.")


def _note_option(text: str, question: Question, trace: steps.Trace) -> None:
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
