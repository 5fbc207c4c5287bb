"""FlashRAG's JSONL: ``id``, ``question``, ``golden_answers``, ``metadata``, sometimes ``choices``.

Source: Jin et al., FlashRAG, 2024, https://github.com/RUC-NLPIR/FlashRAG.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxrag.core.jsonl_input import InputLine, read_input, type_name, well_named
from jaxrag.data.dataset import GoldPassage, SetRow, context
from jaxrag.data.formats.hotpot import ids_of_titles, paragraphs, supporting_gold
from jaxrag.data.question_kinds import FEVER, LETTERS, VERDICTS
from jaxrag.types import Passage, Question


def read_flashrag(
    path: Path,
    *,
    task: str = "",
    titles_of: str = "",
    where: Callable[[InputLine], bool] | None = None,
) -> Iterator[SetRow]:
    """The questions of a file, in order.

    - Sets with options: ``golden_answers`` holds positions in ``choices``, from 0; the answer is
      the text of the option.
    - BoolQ: ``golden_answers`` is [true] or [false]; the answer is yes or no.
    - FEVER, of task fact_checking: SUPPORTS or REFUTES; the answer is true or false.
    - SQuAD and BoolQ: ``metadata`` has the paragraph that answers, which becomes the context.
    - HotpotQA and 2WikiMultiHopQA: ``metadata`` has the paragraphs and the titles of the supporting
      ones, which become contexts and gold passages. MuSiQue: only the supporting ones.

    ``task`` "" is yes_no for questions whose answer is true or false, else open; ``titles_of`` is
    the name of a corpus in which a passage's id is its title, of which the supporting titles are
    gold, too; ``where`` says which lines are read. InputError for other lines.
    """
    pooled = functools.cache(lambda: ids_of_titles(map(_contexts, read_input(path))))
    for line in well_named(read_input(path), "choices", "metadata"):
        if where is not None and not where(line):
            continue
        choices = line.strings("choices", optional=task != "multiple_choice")
        question = Question(
            id=line.identifier("id"),
            text=line.string("question"),
            answers=_answers(line, choices, task),
            choices=choices,
            task=task or ("yes_no" if _is_boolean(line) else "open"),
        )
        metadata = line.fields.get("metadata")
        if not isinstance(metadata, dict):
            yield SetRow(question)
        elif "supporting_facts" in metadata:
            facts = line.record("metadata").record("supporting_facts")
            supporting = facts.strings("title", optional=True)
            contexts = _contexts(line)
            gold = supporting_gold(contexts, supporting, titles_of, pooled)
            yield SetRow(question, gold, contexts)
        else:
            contexts = tuple(dict.fromkeys(_gold_paragraphs(line.record("metadata"))))
            yield SetRow(question, tuple(GoldPassage(passage.id) for passage in contexts), contexts)


def _is_boolean(line: InputLine) -> bool:
    return all(isinstance(answer, bool) for answer in line.items("golden_answers"))


def _answers(line: InputLine, choices: tuple[str, ...], task: str) -> tuple[str, ...]:
    field = "golden_answers"
    answers = line.items(field)
    if task == "fact_checking":
        words = [str(answer).lower() for answer in answers]
        verdicts = tuple(dict.fromkeys(FEVER.get(word, word) for word in words))
        if not {*verdicts} <= {*VERDICTS}:
            raise line.error(field, f"is {answers}; SUPPORTS or REFUTES, true or false is needed")
        return verdicts
    if _is_boolean(line):
        return tuple(dict.fromkeys("yes" if answer else "no" for answer in answers))
    if not choices:
        return line.answers(field)
    if "".join(choice.strip(" ().:") for choice in choices).upper() == LETTERS[: len(choices)]:
        raise line.error("choices", "has the letters of the options only; their texts are needed")
    return tuple(dict.fromkeys(_choice(line, answer, choices) for answer in answers))


def _choice(line: InputLine, answer: Any, choices: tuple[str, ...]) -> str:
    """The text of the option that an answer names by its position or its text."""
    if type(answer) is int and 0 <= answer < len(choices):
        return choices[answer]
    if isinstance(answer, str) and answer in choices:
        return answer
    quoted = repr(answer) if isinstance(answer, (int, str)) else type_name(answer)
    raise line.error(
        "golden_answers",
        f"has {quoted}; with choices it must be the position of one, from 0 to {len(choices) - 1}, "
        "or the text of one",
    )


def _gold_paragraphs(metadata: InputLine) -> Iterator[Passage]:
    """The paragraph of SQuAD (``title``, ``text``) or BoolQ (``passage``), those of MuSiQue."""
    if {"title", "text"} <= metadata.fields.keys():
        yield context(metadata.string("title"), metadata.string("text"))
    elif "passage" in metadata.fields:
        yield context(metadata.string("title", optional=True), metadata.string("passage"))
    elif "question_decomposition" in metadata.fields:
        for step in metadata.records("question_decomposition", optional=True):
            if "support_paragraph" in step.fields:
                part = step.record("support_paragraph")
                yield context(part.string("title", optional=True), part.string("paragraph_text"))


def _contexts(line: InputLine) -> tuple[Passage, ...]:
    """Paragraphs of a multi-hop question."""
    holder = line.record("metadata").record("context")
    titles = holder.strings("title", optional=True)
    field = "content" if "content" in holder.fields else "sentences"  # 2wiki's; HotpotQA's
    texts = holder.items(field, optional=not titles)
    if len(texts) != len(titles):
        raise holder.error(field, f"has {len(texts)} paragraphs for {len(titles)} titles")
    return paragraphs(holder, field, list(zip(titles, texts, strict=True)))
