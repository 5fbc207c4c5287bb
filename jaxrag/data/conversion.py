"""Files of a user converted once for each content, under the cache of runs.

A converted corpus or set of questions lies in a directory whose name has the hash of all that it
was made from, so that a changed file is converted again and an unchanged one never.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from jaxrag.core.hashing import digest, digest_bytes
from jaxrag.data.dataset import Dataset, LabelledQuestion, write_questions
from jaxrag.data.question_kinds import with_task
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError, Passage

_log = logging.getLogger("jaxrag")


def short_hash(text: str) -> str:
    """The first 64 bits of a text's SHA-256, in hex."""
    return digest_bytes(text.encode())[:16]


def convert_corpus(
    cache: Path, key: str, source: Path, passages: Callable[[], Iterable[Passage]]
) -> Passages:
    """A corpus in ``cache/data/corpus-KEY``, made from ``passages()`` if it is not there.

    Raises:
      InputError: from reading or writing; it names ``source``.
    """
    root = cache / "data" / f"corpus-{key}"
    if not is_complete(root):
        try:
            write_passages(root, passages())
        except InputError as error:
            # write_passages does not know the file
            message = str(error)
            raise InputError(
                message if str(source) in message else f"{source}: {message}"
            ) from None
    return Passages.open(root)


def convert_questions(
    cache: Path, split: str, key: str, questions: Callable[[], Iterable[LabelledQuestion]]
) -> Path:
    """The directory ``cache/data/SPLIT-KEY`` of questions, made from ``questions()`` if need be."""
    root = cache / "data" / f"{split}-{key}"
    if not is_complete(root):
        write_questions(root, {split: questions()})
    return root


def keep_present(
    questions: Iterable[LabelledQuestion], passages: Passages, source: Path, *, corpus: str = ""
) -> Iterator[LabelledQuestion]:
    """Questions without the gold passages of ``corpus`` that the corpus lacks; logs their number.

    Gold passages of other corpora are dropped, too.
    """
    missing = 0
    for question, gold in questions:
        named = [one for one in dict.fromkeys(gold) if one.corpus == corpus]
        there = passages.has([one.id for one in named])
        present = tuple(itertools.compress(named, there))
        missing += len(named) - len(present)
        yield LabelledQuestion(question, present)
    if missing:
        _log.info("%s: dropped %d gold passages that the searched corpus lacks", source, missing)


def with_kind(dataset: Dataset, task: str, labels: tuple[str, ...]) -> Dataset:
    """The data set with the task and labels of its settings; "open" keeps the questions' own.

    Raises:
      InputError: a gold answer does not fit them.
    """
    if task == "open":
        return dataset
    questions = tuple(with_task(question, task, labels) for question in dataset.questions)
    identity = digest(" ".join([dataset.identity, task, *labels]))
    return dataset._replace(questions=questions, identity=identity)
