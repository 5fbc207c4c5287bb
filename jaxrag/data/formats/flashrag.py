"""FlashRAG's JSONL: ``id``, ``question``, ``golden_answers``, ``metadata``, sometimes ``choices``.

Source: Jin et al., FlashRAG, 2024, https://github.com/RUC-NLPIR/FlashRAG.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrag.core.jsonl_input import InputLine, read_input, type_name
from jaxrag.data.builder import SetRow
from jaxrag.data.formats.hotpot import paragraphs_and_gold
from jaxrag.types import Question


def read_flashrag(path: Path, *, titles_of: str = "") -> Iterator[SetRow]:
    """The questions of a file, in order.

    - Sets with options: ``golden_answers`` holds positions in ``choices``, from 0; the answer is
      the text of the option.
    - BoolQ: ``golden_answers`` is [true] or [false]; the answer is yes or no.
    - Multi-hop sets: ``metadata`` has the paragraphs and the titles of the supporting ones, which
      become contexts and gold passages.

    Args:
      path: the file.
      titles_of: name of a corpus in which a passage's id is its title; the supporting titles are
        gold passages of it too.

    Raises:
      InputError: a line is not such an object.
    """
    for line in read_input(path):
        choices = line.strings("choices", optional=True)
        question = Question(
            id=line.identifier("id"),
            text=line.string("question"),
            answers=_answers(line, choices),
            choices=choices,
            task="yes_no" if _is_boolean(line) else "open",
        )
        gold, contexts = (), ()
        metadata = line.fields.get("metadata")
        if isinstance(metadata, dict) and "supporting_facts" in metadata:
            gold, contexts = _supporting(line.record("metadata"), titles_of)
        yield SetRow(question, gold, contexts)


def _is_boolean(line: InputLine) -> bool:
    return all(isinstance(answer, bool) for answer in line.items("golden_answers"))


def _answers(line: InputLine, choices: tuple[str, ...]) -> tuple[str, ...]:
    field = "golden_answers"
    answers = line.items(field)
    if _is_boolean(line):
        return tuple(dict.fromkeys("yes" if answer else "no" for answer in answers))
    if not choices:
        return tuple(dict.fromkeys(line.strings(field)))
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


def _supporting(metadata: InputLine, titles_of: str) -> tuple[Any, Any]:
    """Gold passages and contexts of a multi-hop question."""
    supporting = metadata.record("supporting_facts").strings("title", optional=True)
    context = metadata.record("context")
    titles = context.strings("title", optional=True)
    field = "sentences" if "sentences" in context.fields else "content"
    texts = context.items(field, optional=bool(not titles))
    if len(texts) != len(titles):
        raise context.error(field, f"has {len(texts)} paragraphs for {len(titles)} titles")
    return paragraphs_and_gold(
        context, list(zip(titles, texts, strict=True)), supporting, titles_of, field
    )
