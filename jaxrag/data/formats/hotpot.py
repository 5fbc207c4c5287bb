"""HotpotQA's JSON, which 2WikiMultiHopQA uses too: a list of questions with their paragraphs.

Sources: Yang et al., HotpotQA, EMNLP 2018; Ho et al., 2WikiMultiHopQA, COLING 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.json_stream import read_elements
from jaxrag.core.jsonl_input import InputLine, type_name
from jaxrag.data.builder import SetRow, context
from jaxrag.data.dataset import GoldPassage
from jaxrag.types import Passage, Question


def read_hotpot(
    path: Path, *, titles_of: str = "", aliases: Mapping[str, Sequence[str]] | None = None
) -> Iterator[SetRow]:
    """The questions of a file, in order, in the memory of one question.

    A question's paragraphs are its contexts. The paragraphs with the titles of its
    ``supporting_facts`` are gold, of the contexts and, by title, of the corpus ``titles_of``.

    Args:
      path: the file: ``_id``, ``question``, ``answer``, ``supporting_facts`` as [title, number of
        the sentence], ``context`` as [title, sentences], and others that are not used.
      titles_of: name of a corpus in which a passage's id is its title; "" for none.
      aliases: other names of an answer, by ``answer_id``.

    Raises:
      InputError: an element is not such an object; test files, for one, have no answers.
    """
    for element in read_elements(path):
        if "answer" not in element.fields:
            raise element.error("answer", "is missing; is this the test file, without answers?")
        answer_id = element.string("answer_id", optional=True)
        names = (element.string("answer"), *(aliases or {}).get(answer_id, ()))
        question = Question(
            id=element.string("_id"),
            text=element.string("question"),
            answers=tuple(dict.fromkeys(names)),
        )
        supporting = [title for title, _ in _pairs(element, "supporting_facts")]
        paragraphs = _pairs(element, "context")
        gold, contexts = paragraphs_and_gold(element, paragraphs, supporting, titles_of, "context")
        yield SetRow(question, gold, contexts)


def paragraphs_and_gold(
    record: InputLine,
    paragraphs: Sequence[tuple[str, Any]],
    supporting: Sequence[str],
    titles_of: str,
    field: str,
) -> tuple[tuple[GoldPassage, ...], tuple[Passage, ...]]:
    """Gold passages and contexts from paragraphs (title, sentences) and supporting titles.

    ``field`` of ``record`` holds the paragraphs; errors name it. A paragraph's id is the hash of
    its title and text: one title has other texts in other questions of 2WikiMultiHopQA.
    """
    contexts = tuple(
        context(title, joined_sentences(record, field, sentences))
        for title, sentences in paragraphs
        if sentences  # some paragraphs are published without a sentence
    )
    wanted = dict.fromkeys(supporting)
    own = [GoldPassage(passage.id) for passage in contexts if passage.title in wanted]
    named = [GoldPassage(title, titles_of) for title in wanted] if titles_of else []
    return (*dict.fromkeys(own), *named), tuple(dict.fromkeys(contexts))


def joined_sentences(record: InputLine, field: str, sentences: Any) -> str:
    """A paragraph from its sentences; HotpotQA's begin with their spaces, 2WikiMultiHopQA's not."""
    if isinstance(sentences, str):
        return sentences.strip()
    if not isinstance(sentences, list) or not all(isinstance(one, str) for one in sentences):
        raise record.error(field, "has a paragraph that is not a list of sentences")
    return "".join(one if one[:1].isspace() else f" {one}" for one in sentences if one).strip()


def _pairs(element: InputLine, field: str) -> list[tuple[str, Any]]:
    """A field's list of [title, something]."""
    pairs = []
    for position, item in enumerate(element.items(field, optional=True), 1):
        if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str):
            shown = f"a list of {len(item)}" if isinstance(item, list) else type_name(item)
            raise element.error(field, f"item {position} is {shown}; [title, ...] is needed")
        pairs.append((item[0], item[1]))
    return pairs
