"""FlashRAG's JSONL: ``id``, ``question``, ``golden_answers``, ``metadata``, sometimes ``choices``.

Source: Jin et al., FlashRAG, 2024, https://github.com/RUC-NLPIR/FlashRAG.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrag.core.jsonl_input import InputLine, read_input, type_name, well_named
from jaxrag.data.dataset import GoldPassage
from jaxrag.data.formats.hotpot import ids_of_titles, paragraphs, supporting_gold
from jaxrag.data.set_row import SetRow, context
from jaxrag.types import Passage, Question


def read_flashrag(
    path: Path, *, task: str = "", titles_of: str = "", title_ids: bool = False
) -> Iterator[SetRow]:
    """The questions of a file, in order.

    - Sets with options: ``golden_answers`` holds positions in ``choices``, from 0; the answer is
      the text of the option.
    - BoolQ: ``golden_answers`` is [true] or [false]; the answer is yes or no.
    - SQuAD and BoolQ: ``metadata`` has the paragraph that answers, which becomes the context.
    - Multi-hop sets: ``metadata`` has the paragraphs and the titles of the supporting ones, which
      become contexts and gold passages.

    Args:
      path: the file.
      task: of the questions; "" is yes_no for those whose answer is true or false, else open.
      titles_of: name of a corpus in which a passage's id is its title; the supporting titles are
        gold passages of it too.
      title_ids: a context's id is its title, instead of a hash of title and text.

    Raises:
      InputError: a line is not such an object.
    """
    pooled = functools.cache(
        lambda: ids_of_titles(_contexts(line, title_ids) for line in read_input(path))
    )
    for line in well_named(read_input(path), "choices", "metadata"):
        choices = line.strings("choices", optional=True)
        question = Question(
            id=line.identifier("id"),
            text=line.string("question"),
            answers=_answers(line, choices),
            choices=choices,
            task=task or ("yes_no" if _is_boolean(line) else "open"),
        )
        metadata = line.fields.get("metadata")
        if not isinstance(metadata, dict):
            yield SetRow(question)
        elif "supporting_facts" in metadata:
            facts = line.record("metadata").record("supporting_facts")
            supporting = facts.strings("title", optional=True)
            contexts = _contexts(line, title_ids)
            gold = supporting_gold(contexts, supporting, titles_of, pooled)
            yield SetRow(question, gold, contexts)
        else:
            contexts = tuple(_paragraph(line.record("metadata")))
            yield SetRow(question, tuple(GoldPassage(one.id) for one in contexts), contexts)


def _is_boolean(line: InputLine) -> bool:
    return all(isinstance(answer, bool) for answer in line.items("golden_answers"))


def _answers(line: InputLine, choices: tuple[str, ...]) -> tuple[str, ...]:
    field = "golden_answers"
    answers = line.items(field)
    if _is_boolean(line):
        return tuple(dict.fromkeys("yes" if answer else "no" for answer in answers))
    if not choices:
        return line.answers(field)
    if all(len(choice) == 1 and choice.isupper() for choice in choices):
        raise line.error("choices", "has the letters of the options only; their texts are needed")
    return tuple(dict.fromkeys(_choice(line, answer, choices) for answer in answers))


def _choice(line: InputLine, answer: Any, choices: tuple[str, ...]) -> str:
    """The text of the option that an answer names by its position or its text."""
    if type(answer) is int and 0 <= answer < len(choices):
        return choices[answer]
    if isinstance(answer, str) and answer in choices:
        return answer
    shown = repr(answer) if isinstance(answer, (int, str)) else type_name(answer)
    raise line.error(
        "golden_answers",
        f"has {shown}; with choices it must be the position of one, from 0 to {len(choices) - 1}, "
        "or the text of one",
    )


def _paragraph(metadata: InputLine) -> Iterator[Passage]:
    """The paragraph of a question of SQuAD (``title`` and ``text``) or BoolQ (``passage``)."""
    if {"title", "text"} <= metadata.fields.keys():
        yield context(metadata.string("title"), metadata.string("text"))
    elif "passage" in metadata.fields:
        yield context(metadata.string("title", optional=True), metadata.string("passage"))


def _contexts(line: InputLine, title_ids: bool) -> tuple[Passage, ...]:
    """Paragraphs of a multi-hop question."""
    holder = line.record("metadata").record("context")
    titles = holder.strings("title", optional=True)
    field = "content" if "content" in holder.fields else "sentences"  # 2wiki's; HotpotQA's
    texts = holder.items(field, optional=not titles)
    if len(texts) != len(titles):
        raise holder.error(field, f"has {len(texts)} paragraphs for {len(titles)} titles")
    found = list(zip(titles, texts, strict=True))
    return paragraphs(holder, field, found, title_ids=title_ids)
