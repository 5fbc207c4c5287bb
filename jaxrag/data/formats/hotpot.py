"""HotpotQA's JSON, which 2WikiMultiHopQA uses too: a list of questions with their paragraphs.

Sources: Yang et al., HotpotQA, EMNLP 2018; Ho et al., 2WikiMultiHopQA, COLING 2020.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.json_stream import read_elements
from jaxrag.core.jsonl_input import InputLine, type_name, well_named
from jaxrag.data.dataset import GoldPassage, SetRow, context
from jaxrag.types import Passage, Question


def read_hotpot(
    path: Path,
    *,
    titles_of: str = "",
    title_ids: bool = False,
    aliases: Mapping[str, Sequence[str]] | None = None,
    answered: bool = True,
) -> Iterator[SetRow]:
    """The questions of a file, in order, in the memory of one question.

    A question's paragraphs are its contexts. The paragraphs with the titles of its
    ``supporting_facts`` are gold, of the contexts and, by title, of the corpus ``titles_of``; also
    those that were not retrieved for the question (in the fullwiki files), see `supporting_gold`.

    Args:
      path: the file: ``_id``, ``question``, ``answer``, ``supporting_facts`` as [title, number of
        the sentence], ``context`` as [title, sentences]; else InputError.
      titles_of: name of a corpus in which a passage's id is its title; "" for none.
      title_ids: a context's id is its title, instead of a hash of title and text.
      aliases: other names of an answer, by ``answer_id``.
      answered: False for test files, which have no answers.
    """

    def contexts_of(element: InputLine) -> tuple[Passage, ...]:
        return paragraphs(element, "context", _pairs(element, "context"), title_ids=title_ids)

    pooled = functools.cache(lambda: ids_of_titles(map(contexts_of, read_elements(path))))
    for element in well_named(read_elements(path), "supporting_facts", "context"):
        if answered and "answer" not in element.fields:
            raise element.error("answer", "is missing; is this the test file, without answers?")
        answer_id = element.string("answer_id", optional=True)
        names = (*element.answer("answer"), *(aliases or {}).get(answer_id, ())) if answered else ()
        question = Question(
            id=element.string("_id"),
            text=element.string("question"),
            answers=tuple(dict.fromkeys(names)),
        )
        supporting = [title for title, _ in _pairs(element, "supporting_facts")]
        contexts = contexts_of(element)
        gold = supporting_gold(contexts, supporting, titles_of, pooled)
        yield SetRow(question, gold, contexts)


def paragraphs(
    record: InputLine, field: str, found: Sequence[tuple[str, Any]], *, title_ids: bool = False
) -> tuple[Passage, ...]:
    """Passages of (title, sentences), without repetitions and those that have no sentence."""
    passages = []
    for title, sentences in found:
        if sentences:
            passage = context(title, _joined(record, field, sentences))
            passages.append(Passage(title, title, passage.text) if title_ids else passage)
    return tuple(dict.fromkeys(passages))


def ids_of_titles(contexts: Iterable[Iterable[Passage]]) -> dict[str, str]:
    """Ids of the contexts of all questions by title; of several the first."""
    ids: dict[str, str] = {}
    for passage in itertools.chain.from_iterable(contexts):
        ids.setdefault(passage.title, passage.id)
    return ids


def supporting_gold(
    contexts: Sequence[Passage],
    supporting: Sequence[str],
    titles_of: str,
    pooled: Callable[[], Mapping[str, str]],
) -> tuple[GoldPassage, ...]:
    """Gold passages: contexts with supporting titles, and these titles in a corpus of titles.

    A title that is not among the contexts is another question's context (``pooled``, which is read
    only then); or it stands for a passage that is in no corpus, so that it counts as not found.
    """
    named, titles = dict.fromkeys(supporting), {passage.title for passage in contexts}
    gold = [GoldPassage(passage.id) for passage in contexts if passage.title in named]
    gold += [GoldPassage(pooled().get(title, title)) for title in named if title not in titles]
    by_title = [GoldPassage(title, titles_of) for title in named] if titles_of else []
    return (*dict.fromkeys(gold), *by_title)


def _joined(record: InputLine, field: str, sentences: Any) -> str:
    """A paragraph from its sentences; HotpotQA's begin with their spaces, 2WikiMultiHopQA's not."""
    if isinstance(sentences, str):
        return sentences.strip()
    if not isinstance(sentences, list) or not all(isinstance(s, str) for s in sentences):
        raise record.error(field, "has a paragraph that is not a list of sentences")
    return "".join(s if s[:1].isspace() else f" {s}" for s in sentences if s).strip()


def _pairs(element: InputLine, field: str) -> list[tuple[str, Any]]:
    """A field's list of [title, something]."""
    pairs = []
    for position, item in enumerate(element.items(field, optional=True), 1):
        if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str):
            kind = f"a list of {len(item)}" if isinstance(item, list) else type_name(item)
            raise element.error(field, f"item {position} is {kind}; [title, ...] is needed")
        pairs.append((item[0], item[1]))
    return pairs
